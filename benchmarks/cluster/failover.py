"""How long the end of a leader is felt: the queue's, and that of the carrier which serves a partition (Pi and Xiu).

Writers never stop. Each repetition kills or freezes whoever leads, and looks for the longest time in which nothing was
accepted; then it waits until everything is whole again.
"""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlopen

from benchmarks.cluster.path import tokens_file
from benchmarks.cluster.roles import used
from benchmarks.cluster.servers import PixiuThree
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, below
from benchmarks.queue.servers import ServerError
from pixiu.model.errors import PixiuError
from pixiu.queue.client import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.roles import Role, Roles

__all__ = ["longest_gap", "measure"]

RESUME_SECONDS_MAX = 3.0
WRITERS = 8
BEFORE_SECONDS = 1.5
AFTER_SECONDS = 5.0
HEAL_SECONDS = 60.0
CARRIER_SETTINGS = {"messaging.sends_per_second": 0}


def longest_gap(times: list[float], began: float) -> float:
    """The longest time without a write, of those that end after ``began``."""
    ordered = sorted(times)
    return max((after - before for before, after in pairwise(ordered) if after >= began), default=float("inf"))


class Writers:
    """Threads that write; ``times`` is when each write was accepted."""

    def __init__(self, write: Callable[[int, int], bool]) -> None:
        """``write`` gets the writer and the number of the message, and says whether it was accepted."""
        self.times: list[float] = []
        self._write = write
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def _run(self, writer: int) -> None:
        number = 0
        while not self._is_over.is_set():
            if self._write(writer, number):
                self.times.append(time.monotonic())
                number += 1
            else:
                time.sleep(0.02)

    def felt(self, strike: Callable[[], object]) -> float:
        """The longest time without a write around a strike."""
        time.sleep(BEFORE_SECONDS)
        began = time.monotonic()
        strike()
        time.sleep(AFTER_SECONDS)
        return longest_gap(self.times, began)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def measure(bench: Bench) -> Section:
    """Both, killed and frozen."""
    section = Section(
        "failover", "The end of a leader: how long no write is accepted", ["", "times", "median s", "worst s"]
    )
    before = load_average()
    found = {**_queue(bench), **_carrier(bench)}
    for what, seconds in found.items():
        section.rows.append([what, str(len(seconds)), f"{median(seconds):.2f}", f"{max(seconds):.2f}"])
        section.checks.append(below(f"{what}: worst", max(seconds), RESUME_SECONDS_MAX, " s"))
        section.runs.append({"what": what, "seconds": seconds})
    section.notes = [
        f"Load average before: {before:.2f}.",
        (
            f"{WRITERS} writers, one write under way each. Lease 1.2 s, then compare-and-set; ZooKeeper's session "
            "timeout (10 s) plays no part."
        ),
    ]
    return section


def _queue(bench: Bench) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with PixiuThree(bench.directory("failover")) as server, BlockingClient(server.registry, patience_s=30) as client:
        last = [0] * WRITERS  # what each of them knows of its own: a repeat can only be behind that

        def write(writer: int, number: int) -> bool:
            try:
                appended = client.append(
                    "bench-0", f"{writer} {number}", key=f"{writer} {number}", unless_after=last[writer]
                )
            except PixiuError:
                return False
            last[writer] = appended.event_id
            return True

        with Writers(write) as writers:
            for action in ("kill", "freeze"):
                seconds = found[f"queue, leader {action.replace('freeze', 'frozen').replace('kill', 'killed')}"] = []
                for _ in range(bench.repetitions):
                    leader = server.leader()
                    seconds.append(writers.felt(lambda: server.tell(action, leader)))  # noqa: B023 - called at once
                    if action == "freeze":
                        server.tell("thaw", leader)
                    server.wait_in_sync()
                    bench.say(f"  queue {action}: {seconds[-1]:.2f} s")
    return found


def _carrier(bench: Bench) -> dict[str, list[float]]:
    """One partition of users with two replicas, one gateway, one queue."""
    found: dict[str, list[float]] = {}
    with bench.roles("carriers") as roles:
        roles.start("queue", data="queue")
        for name in ("a", "b"):
            roles.start("carrier", data=f"carrier-{name}", settings=CARRIER_SETTINGS)
        gateway = roles.start("gateway", data="gateway")
        roles.wait_ready()
        port = int(gateway.about["port"])
        lines = tokens_file(roles.folder / "gateway", range(WRITERS)).read_text().splitlines()
        tokens = [line.split()[1] for line in lines]
        ways: list[http.client.HTTPConnection | None] = [None] * WRITERS

        def write(writer: int, number: int) -> bool:
            way = ways[writer] = ways[writer] or http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            body = json.dumps({"to": f"user-{(writer + 1) % WRITERS}", "text": "hi", "send_id": f"{writer}-{number}"})
            try:
                way.request("POST", "/v1/actions/send", body, {"Authorization": f"Bearer {tokens[writer]}"})
                answer = way.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                way.close()
                ways[writer] = None
                return False
            return answer.status == 200

        _wait("a first message", lambda: write(0, -1))
        with Writers(write) as writers:
            _keep_figures(bench, roles, writers)
            for action in ("killed", "frozen"):
                seconds = found[f"carrier that serves {action}"] = []
                for _ in range(bench.repetitions):
                    serving = _serving(roles)
                    number = signal.SIGKILL if action == "killed" else signal.SIGSTOP
                    seconds.append(writers.felt(lambda: serving.process.send_signal(number)))  # noqa: B023 - called at once
                    _heal(roles, serving, is_gone=action == "killed")
                    bench.say(f"  carrier {action}: {seconds[-1]:.2f} s")
    return found


def _keep_figures(bench: Bench, roles: Roles, writers: Writers) -> None:
    """What a durable message costs the roles behind a gateway, while nothing is wrong: for ``scaling``."""
    time.sleep(1.0)
    before, count = roles.cpu(), len(writers.times)
    time.sleep(max(bench.seconds, 2.0))
    spent, written = used(before, roles.cpu()), max(len(writers.times) - count, 1)
    bench.figures["carrier_messages"] = written * len(roles.of("carrier")) / max(spent["carrier"], 1e-9)
    bench.figures["gateway_sends"] = written / max(spent["gateway"], 1e-9)


def _state(carrier: Role) -> dict[str, Any]:
    try:
        with urlopen(f"{carrier.about['admin']}/carrier", timeout=2) as answer:
            state: dict[str, Any] = json.load(answer)
            return state
    except OSError:
        return {}


def _serving(roles: Roles) -> Role:
    found: list[Role] = []

    def look() -> bool:
        found[:] = [carrier for carrier in roles.of("carrier") if _state(carrier).get("serving")]
        return len(found) == 1

    _wait("one carrier that serves", look)
    return found[0]


def _heal(roles: Roles, struck: Role, *, is_gone: bool) -> None:
    """Start it again, or let it go on, and wait until it has caught up."""
    if is_gone:
        struck.wait()
        struck.process.wait()
        roles.all.remove(struck)
        struck = roles.start("carrier", data=struck.words[struck.words.index("--data") + 1], settings=CARRIER_SETTINGS)
        struck.about = struck.line()
    else:
        struck.process.send_signal(signal.SIGCONT)
    _wait("a replica that has caught up", lambda: _state(struck).get("behind", 1) == 0)


def _wait(what: str, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + HEAL_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise ServerError(f"waited for {what} for {HEAL_SECONDS:.0f} s")
        time.sleep(0.1)
