"""Connections that only are there: what does one cost, and how fast do they come?

Every client is a real WebSocket of its own user, with a token of its own that the server sees for the first time. The
users exist before: the server that is measured starts anew on their data, so that neither their making nor memory
that was used and freed is counted.
"""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.crowd import Held
from benchmarks.gateway.servers import PixiuServe
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, at_least, below, faults_check, whole
from pixiu.config.gateway import GatewaySettings

CONNECTIONS = 10_000
KEPT_BACK = 256
"""Descriptors of a process that are not for clients."""
TOWARDS = 100_000
CONCURRENCY = 256
"""Connections that are being opened at a time."""
SETTLE_SECONDS = 2.0
COLUMNS = [
    "connections",
    "gateway processes",
    "connects/s",
    "RSS KiB per connection",
    "RSS MB",
    "server CPU ms per connect",
    "generator CPU",
]
IN_PROCESSES = (1, 2)
"""Rows beside the one of a single process, with all cores: as somebody with more clients would run it."""
STEP = 8_000
PER_ADDRESS = 8_000
"""Connections that come from one address; `crowd.c` has the same number."""
POST_EVERY = 100
"""When as many as possible are there, one of so many is sent a message."""
MAX_SECONDS = 240.0
"""How long connections may go on coming when as many as possible are wanted."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of connections that all stay."""

    connections: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    empty_mb: float
    full_mb: float
    faults: int
    first_error: str
    posted: int = 0
    arrived: int = 0

    @property
    def per_second(self) -> float:
        """Connects."""
        return self.connections / self.seconds

    @property
    def kib_each(self) -> float:
        """Resident memory of all processes of the server."""
        return (self.full_mb - self.empty_mb) * 1e6 / self.connections / 1024

    def row(self, gateways: int) -> list[str]:
        """As a table has it."""
        return [
            whole(self.connections),
            str(gateways) if gateways else "none, one process",
            whole(self.per_second),
            f"{self.kib_each:.1f}",
            f"{self.empty_mb:.0f} → {self.full_mb:.0f}",
            f"{self.server_cpu_seconds / self.connections * 1000:.2f}",
            f"{self.cpu_seconds / self.seconds:.0%}",
        ]


def measure(bench: Bench) -> Section:
    """As many as the target names: in one process, then with gateways in processes of their own."""
    connections = min(bench.connections, _limit())
    section = Section("idle", f"{connections:,} idle connections, without TLS", COLUMNS)
    before = load_average()
    with prepared(bench, connections) as server:
        found = _held(bench, server, connections)
        section.rows.append(found.row(server.gateways))
        section.runs.append({"gateways": server.gateways} | asdict(found))
        _say(bench, server, found)
        if not server.gateways:
            server.cores = ""
            for gateways in IN_PROCESSES:
                if not bench.has_time(0.85):
                    section.notes.append("There was no time for more gateway processes.")
                    break
                server.gateways = gateways
                server.stop()
                with server:
                    other = _held(bench, server, connections)
                section.rows.append(other.row(server.gateways))
                section.runs.append({"gateways": server.gateways} | asdict(other))
                _say(bench, server, other)
            section.notes.append("Rows with gateway processes: servers on all cores, beside the generator.")
    section.checks = [
        below("RSS per idle connection", found.kib_each, 20, " KiB"),
        at_least("connects with token check", found.per_second, 2000, "/s"),
        faults_check("refused or lost connections", found.faults, found.first_error),
    ]
    section.notes.insert(0, f"Load average before: {before:.2f}.")
    return section


def measure_max(bench: Bench) -> Section:
    """As many as this machine's limits allow, in as many gateway processes as that takes."""
    section = Section("idle-max", f"Towards {TOWARDS:,} idle connections, without TLS", COLUMNS)
    before = load_average()
    server = bench.fresh(PixiuServe)
    server.gateways = server.gateways or -(-TOWARDS // (_limit() * 3 // 4))
    server.cores = ""
    try:
        with server:
            most = int(server.metrics()["pixiu_gateway_connections_max"])
            found = _held(bench, server, min(TOWARDS, most * 19 // 20), seconds=MAX_SECONDS)  # chance spreads them
    finally:
        bench.remove(server)
    section.rows = [found.row(server.gateways)]
    section.runs = [{"gateways": server.gateways, "connections_max": most} | asdict(found)]
    section.checks = [
        below("RSS per idle connection", found.kib_each, 20, " KiB"),
        faults_check("refused or lost connections", found.faults, found.first_error),
        faults_check("messages to some of them that did not arrive", found.posted - found.arrived, ""),
    ]
    spare = memory_mb_of_machine() / 2
    by_memory = spare * 1e6 / 1024 / found.kib_each
    section.notes.append(
        f"Load average before: {before:.2f}. Users come for the first time: each is written to the log. "
        f"When all were there, {found.arrived:,} of {found.posted:,} durable messages to them arrived. Servers on all "
        "cores, beside the generators."
    )
    section.notes.append(
        f"A process may have {_limit() + KEPT_BACK:,} descriptors here (RLIMIT_NOFILE); these gateways take {most:,} "
        f"connections, and connections came for at most {MAX_SECONDS:.0f} s."
    )
    section.notes.append(
        f"By memory, half of this machine ({spare:,.0f} MB) holds {by_memory:,.0f} of them; "
        f"`gateway.connections_max` is {GatewaySettings().connections_max:,} for each process, less where its "
        "descriptors do not allow that."
    )
    return section


@contextmanager
def prepared(bench: Bench, users: int) -> Iterator[PixiuServe]:
    """A server that has just started, on data in which these users have connected once."""
    server = bench.fresh(PixiuServe)
    try:
        with server, ExitStack() as stack:
            for held in _crowds(bench, server, users, stack):
                held.line()
        with server:
            yield server
    finally:
        bench.remove(server)


def _crowds(bench: Bench, server: PixiuServe, users: int, stack: ExitStack, *, step: int = 0) -> Iterator[Held]:
    """So many clients, in as many generators as it takes; one after the other is started."""
    step = step or _limit()
    for first in range(0, users, step):
        count = min(users - first, step)
        options = {"connections": count, "concurrency": CONCURRENCY, "address": first // PER_ADDRESS}
        options["missed_every"] = POST_EVERY
        yield stack.enter_context(Held(server, bench.crowd_cores, range(first, first + count), **options))


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] - KEPT_BACK


def memory_mb_of_machine() -> float:
    """All of it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6


def _held(bench: Bench, server: PixiuServe, connections: int, *, seconds: float = 0) -> Crowd:
    """Let them come, and look at the server when all are there; or when it has taken so many ``seconds``."""
    found: list[dict[str, Any]] = []
    crowds: list[Held] = []
    posts: list[dict[str, Any]] = []
    with ExitStack() as stack:
        empty_mb = server.all_memory_mb()
        for held in _crowds(bench, server, connections, stack, step=STEP if seconds else 0):
            found.append(held.line())
            crowds.append(held)
            spent = sum(each["seconds"] for each in found)
            if seconds:
                bench.say(f"  {sum(each['connections'] for each in found):,} connections in {spent:.0f} s")
                if spent > seconds:
                    break
        time.sleep(SETTLE_SECONDS)
        full_mb = server.all_memory_mb()
        if seconds:
            for held in crowds:
                held.tell("post")
                posts.append(held.line())
    return Crowd(
        connections=sum(each["connections"] for each in found),
        seconds=sum(each["seconds"] for each in found),
        cpu_seconds=sum(each["cpu_seconds"] for each in found),
        server_cpu_seconds=sum(each["server_cpu_seconds"] for each in found),
        empty_mb=empty_mb,
        full_mb=full_mb,
        faults=sum(each["errors"] + each["closed"] for each in posts or found),  # counted from the start
        first_error=next((each["first_error"] for each in [*found, *posts] if each["first_error"]), ""),
        posted=sum(each["posted"] for each in posts),
        arrived=sum(each["arrived"] for each in posts),
    )


def _say(bench: Bench, server: PixiuServe, found: Crowd) -> None:
    rate, each = found.per_second, found.kib_each
    bench.say(f"  gateway processes: {server.gateways}  {rate:,.0f} connects/s  {each:.1f} KiB each")
