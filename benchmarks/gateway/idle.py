"""Connections that only are there: what does one cost, and how fast do they come?

Every client is a real WebSocket of its own user, with a token of its own that the server sees for the first time. The
users exist before: the server that is measured starts anew on their data, so that neither their making nor memory
that was used and freed is counted.
"""

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.crowd import Held
from benchmarks.gateway.servers import PixiuServe
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, at_least, below, faults_check, whole

CONNECTIONS = 10_000
KEPT_BACK = 256
"""Descriptors of a process that are not for clients."""
TOWARDS = 100_000
CONCURRENCY = 256
"""Connections that are being opened at a time."""
SETTLE_SECONDS = 2.0
COLUMNS = [
    "connections",
    "connects/s",
    "RSS KiB per connection",
    "RSS MB",
    "server CPU ms per connect",
    "generator CPU",
]


def measure(bench: Bench) -> Section:
    """As many as the target names."""
    return _measure(bench, "idle", min(bench.connections, _limit()))


def measure_max(bench: Bench) -> Section:
    """As many as this machine's limits allow."""
    section = _measure(bench, "idle-max", min(TOWARDS, _limit() * max(PixiuServe.gateways, 1)))
    section.notes.append(f"A process may have {_limit() + KEPT_BACK:,} descriptors here (RLIMIT_NOFILE).")
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


def _crowds(bench: Bench, server: PixiuServe, users: int, stack: ExitStack) -> Iterator[Held]:
    """So many clients, in as many generators as it takes; one after the other is started."""
    for first in range(0, users, _limit()):
        count = min(users - first, _limit())
        options = {"connections": count, "concurrency": CONCURRENCY}
        yield stack.enter_context(Held(server, bench.crowd_cores, range(first, first + count), **options))


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] - KEPT_BACK


def _measure(bench: Bench, key: str, connections: int) -> Section:
    section = Section(key, f"{connections:,} idle connections, without TLS", COLUMNS)
    before = load_average()
    with prepared(bench, connections) as server, ExitStack() as stack:
        empty_mb = server.all_memory_mb()
        found = [held.line() for held in _crowds(bench, server, connections, stack)]
        time.sleep(SETTLE_SECONDS)
        full_mb = server.all_memory_mb()
    per_connection = (full_mb - empty_mb) * 1e6 / connections / 1024
    seconds = sum(each["seconds"] for each in found)
    rate = connections / seconds
    cpu_ms = sum(each["server_cpu_seconds"] for each in found) / connections * 1000
    share = sum(each["cpu_seconds"] for each in found) / seconds
    memory = f"{empty_mb:.0f} → {full_mb:.0f}"
    section.rows = [[whole(connections), whole(rate), f"{per_connection:.1f}", memory, f"{cpu_ms:.2f}", f"{share:.0%}"]]
    section.runs += [each | {"rss_mb_before": empty_mb, "rss_mb": full_mb} for each in found]
    faults = sum(each["errors"] + each["closed"] for each in found)
    section.checks = [
        below("RSS per idle connection", per_connection, 20, " KiB"),
        at_least("connects with token check", rate, 2000, "/s"),
        faults_check("refused or lost connections", faults, found[0]["first_error"]),
    ]
    section.notes.append(f"Load average before: {before:.2f}.")
    return section
