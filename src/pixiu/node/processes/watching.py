"""The roles that look after the others, as processes: ``pixiu role probe`` and ``pixiu role meta``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pixiu.console.pages import STATIC, TYPES
from pixiu.links.member import Member
from pixiu.machines.probes import ProbeRules
from pixiu.machines.view import PeerState
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.metric import Metric
from pixiu.roles.meta.map import METRICS as META
from pixiu.roles.meta.map import ClusterMap
from pixiu.roles.probe.probe import Probe
from pixiu.runtime.admin import Response
from pixiu.runtime.http_client import get

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.metric import Snapshot
    from pixiu.node.processes.cluster_end import ClusterEnd
    from pixiu.node.processes.rooms import RoleProcess
    from pixiu.ports.registry import Folder
    from pixiu.runtime.admin import Handler

__all__ = ["MetaPart", "ProbePart", "make_probe", "map_routes"]

log = logging.getLogger(__name__)

GATHER_SECONDS = 2.0
"""Processes are asked this often."""
ASK_SECONDS = 1.5
AT_A_TIME = 16
ALARM_MS = 15_000
"""An alarm is shown this long after it is over."""
CONSOLE_FILES = ("styles/tokens.css", "styles/parts.css", "styles/shell.css", "icons.js", "logo.svg")
APART = ("shard",)
"""Roles that are on no links, and so know nothing of their peers."""
ANSWER_BYTES_MAX = 4 * 2**20

PROBE_METRICS = (
    Metric("pixiu_probe_sent_total", "counter", "Probes that left."),
    Metric("pixiu_probe_back_total", "counter", "Probes that came back in time."),
    Metric("pixiu_probe_lost_total", "counter", "Probes that did not."),
    Metric("pixiu_probe_paths", "gauge", "Paths that are probed: every proxy, partition and replica."),
    Metric("pixiu_probe_alarms", "gauge", "What is broken."),
)


def make_probe(end: ClusterEnd, rules: ProbeRules | None = None) -> tuple[Probe, Member]:
    """A probe, and its entry among the gateways, which is not made yet."""
    member = Member(end.registry, end.scheduler, end.root, role="gateway", partition=0, boot=end.boot,
                    address=end.address, name=f"probe-{end.boot:x}", more={"probe": True})  # fmt: skip
    member.state = PeerState.RUNNING
    probe = Probe(
        end.endpoint, end.directory, member, end.clock, end.scheduler, end.bigs, new_life=end.new_life, rules=rules
    )
    return probe, member


class ProbePart:
    """``pixiu role probe``."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        # Quicker than heartbeats: a proxy goes around a broker that is suspect, and so do probes.
        pause_ms = max(process.end.settings.suspect_ms // 5, 50)
        self._probe, self._gateway = make_probe(process.end, ProbeRules(pause_ms, pause_ms))
        process.metrics.add(PROBE_METRICS, self._snapshot)
        process.routes["/paths.json"] = lambda _request: Response.json(200, self.content())

    def content(self) -> dict[str, Any]:
        """``/paths.json``."""
        return {"paths": self._probe.rows(), "alarms": self._probe.alarm_texts(within_ms=ALARM_MS)}

    async def start(self) -> None:
        """Begin; as a gateway it is found at once."""
        self._process.end.bigs.start()
        self._probe.start()
        self._process.say(PeerState.RUNNING)
        self._process.member.register()
        self._gateway.register()

    async def drain(self) -> None:
        """Nobody waits for it."""
        self._process.say(PeerState.DRAINING)

    async def stop(self) -> None:
        """Leave the gateways."""
        self._probe.stop()
        left = asyncio.Event()
        self._gateway.leave(left.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(left.wait(), 2)

    def reasons(self) -> dict[str, str]:
        """What is broken is not its own trouble."""
        return {} if self._probe.probes.paths else {"paths": "no proxy and broker are known"}

    def notes(self) -> dict[str, str]:
        """Nothing that would keep others from asking it."""
        return {}

    def says(self) -> dict[str, object]:
        """Nothing more."""
        return {}

    def _snapshot(self) -> Snapshot:
        probes = self._probe.probes
        return {
            "pixiu_probe_sent_total": probes.sent,
            "pixiu_probe_back_total": probes.came,
            "pixiu_probe_lost_total": probes.lost,
            "pixiu_probe_paths": len(probes.paths),
            "pixiu_probe_alarms": len(self._probe.alarms),
        }


def map_routes(content: Callable[[], dict[str, Any]]) -> dict[str, Handler]:
    """The page of the map, its data, and the files of the console that give it the console's look."""
    pages = {f"/{name}": STATIC / name for name in CONSOLE_FILES}
    answers = {path: Response(200, file.read_bytes(), TYPES[file.suffix]) for path, file in pages.items()}
    page = (files("pixiu.roles.meta") / "map.html").read_bytes()
    answers["/"] = Response(200, page, "text/html; charset=utf-8")
    routes: dict[str, Handler] = {path: _always(answer) for path, answer in answers.items()}
    routes["/cluster.json"] = lambda _request: Response.json(200, content())
    return routes


def _always(answer: Response) -> Handler:
    return lambda _request: answer


class MetaPart:
    """``pixiu role meta``: two of them are enough, and each knows everything."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        self._map = ClusterMap()
        self._task: asyncio.Task[None] | None = None
        self._is_read = False
        clock = process.end.clock
        process.metrics.add(META, lambda: self._map.snapshot(clock.now_ms()))
        process.routes.update(map_routes(lambda: self._map.content(clock.now_ms())))

    async def start(self) -> None:
        """Begin to ask."""
        self._process.say(PeerState.RUNNING)
        self._process.member.register()
        self._task = asyncio.create_task(self._gather())

    async def drain(self) -> None:
        """Nobody waits for it."""
        self._process.say(PeerState.DRAINING)

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def reasons(self) -> dict[str, str]:
        """Until the registry was read once."""
        return {} if self._is_read else {"registry": "not read yet"}

    def notes(self) -> dict[str, str]:
        """Nothing that would keep others from asking it."""
        return {}

    def says(self) -> dict[str, object]:
        """Nothing more."""
        return {}

    async def _gather(self) -> None:
        while True:
            try:
                await self._round()
            except PixiuError as error:
                log.warning("the cluster could not be read", extra={"reason": str(error)})
            await asyncio.sleep(GATHER_SECONDS)

    async def _round(self) -> None:
        end = self._process.end
        answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        end.registry.read(end.root, lambda found: None if answer.done() else answer.set_result(found))
        try:
            async with asyncio.timeout(ASK_SECONDS * 4):
                found = await answer
        except TimeoutError:
            raise Unavailable("the registry does not answer") from None
        if isinstance(found, PixiuError):
            raise found
        admins = self._map.listed(
            {path: (entry.data, entry.version) for path, entry in found.items()}, end.clock.now_ms()
        )
        self._is_read = True
        gate = asyncio.Semaphore(AT_A_TIME)
        await asyncio.gather(*(self._ask(gate, path, admin) for path, admin in admins.items()))

    async def _ask(self, gate: asyncio.Semaphore, path: str, admin: str) -> None:
        role = path.partition("/")[0]
        try:
            async with gate:
                metrics = (await _get(admin, "/metrics")).decode(errors="replace")
                peers = json.loads(await _get(admin, "/peers")) if role not in APART else []
                hot = json.loads(await _get(admin, "/hot.json")) if role == "broker" else []
                paths = json.loads(await _get(admin, "/paths.json")) if role == "probe" else {}
        except (PixiuError, ValueError) as error:
            log.info("process_unanswered", extra={"path": path, "reason": str(error)})
            is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            self._map.unheard(path, self._process.end.clock.now_ms(), is_refused=is_refused)
            return
        self._map.heard(path, self._process.end.clock.now_ms(), metrics, peers, hot, paths)


async def _get(admin: str, path: str) -> bytes:
    status, body = await get(f"http://{admin}{path}", timeout_seconds=ASK_SECONDS, bytes_max=ANSWER_BYTES_MAX)
    if status != 200:
        raise Unavailable(f"{path} answers {status}")
    return body
