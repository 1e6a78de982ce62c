"""How big is it, and how soon is it there? Start, memory, and restart after kill -9 with a million messages.

Pixiu runs at its default level (flush always), the others at their own defaults. A restart is measured on the
directory of a server that was killed while it took messages, to the first answer over the wire; afterwards
every acknowledged message is read back from Pixiu.
"""

import time
from dataclasses import dataclass, field
from statistics import median

from benchmarks.queue import generator
from benchmarks.queue.bench import Bench, load_average
from benchmarks.queue.publish import CONNECTIONS, PAYLOAD_BYTES
from benchmarks.queue.section import Check, Section, below
from benchmarks.queue.servers import JetStream, Pixiu, Server, ServerError, Valkey

RIVALS: tuple[tuple[type[Server], str], ...] = (
    (Pixiu, "always"),
    (Valkey, "everysec"),
    (JetStream, "default"),
)
START_SECONDS_TARGET = 1.0
RESTART_SECONDS_TARGET = 1.0
IDLE_MB_TARGET = 60.0
LOADED_MB_TARGET = 100.0
SECONDS_MAX = 600.0
SETTLE_SECONDS = 1.0
UNDER_LOAD_SECONDS = 0.5
RESTARTS_MAX = 3


@dataclass(slots=True)
class Life:
    """What was measured of one server."""

    label: str
    starts: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    idle_mb: float = 0.0
    loaded_mb: float = 0.0
    peak_mb: float = 0.0
    acked: int = 0
    read_back: int = 0
    faults: int = 0


def measure(bench: Bench) -> Section:
    """Measure each server on its own."""
    section = Section(
        "lifecycle",
        f"Start, memory, restart after kill -9 with {bench.million:,} messages",
        [
            "server",
            "start ms",
            "idle RSS MB",
            "RSS MB after",
            "RSS MB, peak",
            "restart ms",
            "worst restart ms",
        ],
    )
    for kind, flush in RIVALS:
        if not bench.wanted(kind):
            continue
        life = _live(bench, kind, flush)
        section.rows.append(_row(life))
        section.runs.append({"server": life.label, "starts": life.starts, "restarts": life.restarts})
        if kind is Pixiu:
            _judge(section, life)
    section.notes.append(f"Load average at the end: {load_average():.2f}.")
    return section


def _live(bench: Bench, kind: type[Server], flush: str) -> Life:
    life = Life(f"{kind.product} {flush}")
    for _ in range(bench.rounds):
        with bench.running(kind, flush) as server:
            life.starts.append(server.start_seconds)
            if not life.idle_mb:
                time.sleep(SETTLE_SECONDS)
                life.idle_mb = server.memory_mb()
    bench.say(f"  {life.label}: start {median(life.starts) * 1000:.0f} ms, idle {life.idle_mb:.1f} MB")
    server = bench.fresh(kind, flush)
    try:
        server.start()
        server.prepare()
        _fill(bench, server, life)
        bench.say(f"  {life.label}: {life.loaded_mb:.1f} MB after {life.acked:,} messages")
        for crash in range(1, min(bench.rounds, RESTARTS_MAX) + 1):
            _crash_under_load(server, life, crash)
            server.start()
            life.restarts.append(server.start_seconds)
            bench.say(f"  {life.label}: killed and back in {server.start_seconds * 1000:.0f} ms")
        if kind is Pixiu:
            _read_back(server, life)
    finally:
        bench.remove(server)
    return life


def _fill(bench: Bench, server: Server, life: Life) -> None:
    load = generator.run(
        server.protocol,
        server.port,
        seconds=SECONDS_MAX,
        messages=bench.million,
        connections=CONNECTIONS,
        in_flight=10,
        bytes=PAYLOAD_BYTES,
        topic=server.topic,
    )
    if load.acked_total < bench.million:
        raise ServerError(f"{life.label} stored only {load.acked_total:,} messages; {load.first_error}")
    life.acked = load.acked_total
    life.loaded_mb = server.memory_mb()
    life.peak_mb = server.memory_mb("VmHWM")


def _crash_under_load(server: Server, life: Life, crash: int) -> None:
    """Kill -9 while messages come in; the generator then ends by itself, as all its connections are gone."""
    publishing = generator.start(
        server.protocol,
        server.port,
        seconds=30.0,
        connections=CONNECTIONS,
        bytes=PAYLOAD_BYTES,
        topic=server.topic,
        source_base=crash * CONNECTIONS,
    )
    try:
        time.sleep(UNDER_LOAD_SECONDS)
    finally:
        server.kill()
        load = generator.finish(publishing, seconds_max=60.0)
    life.acked += load.acked_total


def _read_back(server: Server, life: Life) -> None:
    load = generator.run(
        "sub",
        server.port,
        seconds=60.0,
        messages=life.acked,
        connections=1,
        topic=server.topic,
        who="read-back",
    )
    life.read_back = load.least
    life.faults = load.faults


def _row(life: Life) -> list[str]:
    return [
        life.label,
        f"{median(life.starts) * 1000:.0f}",
        f"{life.idle_mb:.1f}",
        f"{life.loaded_mb:.1f}",
        f"{life.peak_mb:.1f}",
        f"{median(life.restarts) * 1000:.0f}",
        f"{max(life.restarts) * 1000:.0f}",
    ]


def _judge(section: Section, life: Life) -> None:
    missing = max(0, life.acked - life.read_back) + life.faults
    section.checks += [
        below("start to listening", median(life.starts), START_SECONDS_TARGET, " s"),
        below("idle RSS", life.idle_mb, IDLE_MB_TARGET, " MB"),
        below("RSS after the messages", life.loaded_mb, LOADED_MB_TARGET, " MB"),
        below("worst restart after kill -9", max(life.restarts), RESTART_SECONDS_TARGET, " s"),
        Check(
            "acknowledged messages missing, repeated or out of order after the kills",
            "0",
            f"{missing} of {life.acked:,}",
            missing == 0,
        ),
    ]
