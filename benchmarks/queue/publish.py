"""How fast are messages taken in? Publish and wait for the answer, beside Valkey Streams and NATS JetStream.

256 connections, 200 bytes, with one and with ten requests in flight per connection, at two levels of safety:
on disk before the answer, and flushed now and then. Rounds are interleaved (A, B, C, A, B, C, …), so a slow
minute of the machine hits everyone.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from benchmarks.queue import generator
from benchmarks.queue.bench import Bench, faults_of, load_average, notes_of
from benchmarks.queue.generator import Load
from benchmarks.queue.section import Section, milliseconds, ratio_check, spread, whole
from benchmarks.queue.servers import JetStream, Pixiu, Server, Valkey

CONNECTIONS = 256
PAYLOAD_BYTES = 200


@dataclass(frozen=True, slots=True)
class Rival:
    """A server at a flush level, and how many times its speed Pixiu must reach (None: Pixiu itself)."""

    kind: type[Server]
    flush: str
    target: float | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.kind.product} {self.flush}"


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison; the first rival is Pixiu."""

    key: str
    title: str
    in_flight: int
    rivals: tuple[Rival, ...]


CASES = (
    Case(
        "flushed",
        f"Publish, on disk before the answer: {CONNECTIONS} connections, one request in flight each",
        1,
        (Rival(Pixiu, "always"), Rival(Valkey, "always", 1.0), Rival(JetStream, "always", 5.0)),
    ),
    Case(
        "interval",
        f"Publish, flushed now and then: {CONNECTIONS} connections, one request in flight each",
        1,
        (Rival(Pixiu, "interval"), Rival(Valkey, "everysec", 0.9), Rival(JetStream, "default")),
    ),
    Case(
        "flushed-ten",
        f"Publish, on disk before the answer: {CONNECTIONS} connections, ten requests in flight each",
        10,
        (Rival(Pixiu, "always"), Rival(Valkey, "always", 1.0)),
    ),
    Case(
        "interval-ten",
        f"Publish, flushed now and then: {CONNECTIONS} connections, ten requests in flight each",
        10,
        (Rival(Pixiu, "interval"), Rival(Valkey, "everysec", 1.0)),
    ),
)


def measure(bench: Bench, case: Case) -> Section:
    """Run all rounds of one comparison."""
    rivals = [rival for rival in case.rivals if bench.wanted(rival.kind)]
    loads: dict[str, list[Load]] = defaultdict(list)
    section = Section(case.key, case.title, COLUMNS)
    averages: list[float] = []
    for round_number in range(1, bench.rounds + 1):
        averages.append(load_average())
        bench.say(f"  load average {averages[-1]:.2f}")
        for rival in rivals:
            load = _one_round(bench, case, rival)
            loads[rival.label].append(load)
            bench.say_load(round_number, bench.rounds, rival.label, load)
            section.runs.append({"server": rival.label, "round": round_number} | load.as_json())
    section.rows = [_row(rival.label, loads[rival.label]) for rival in rivals]
    ours = [load.per_second for load in loads[case.rivals[0].label]]
    for rival in rivals:
        if rival.target is not None and ours:
            theirs = [load.per_second for load in loads[rival.label]]
            what = f"{case.rivals[0].label} / {rival.label}"
            section.checks.append(ratio_check(what, ours, theirs, rival.target))
    everything = [load for several in loads.values() for load in several]
    section.checks.append(faults_of(everything))
    section.notes = notes_of(averages, everything)
    return section


COLUMNS = [
    "server",
    "messages/s",
    "rounds",
    "p50 ms",
    "p99 ms",
    "per server CPU-second",
    "server cores",
    "generator CPU",
]


def _one_round(bench: Bench, case: Case, rival: Rival) -> Load:
    with bench.running(rival.kind, rival.flush) as server:
        return generator.run(
            server.protocol,
            server.port,
            seconds=bench.seconds,
            warmup=bench.warmup,
            connections=CONNECTIONS,
            in_flight=case.in_flight,
            bytes=PAYLOAD_BYTES,
            topic=server.topic,
            watch_pid=server.pid,
        )


def _row(label: str, loads: list[Load]) -> list[str]:
    speeds = [load.per_second for load in loads]
    return [
        label,
        whole(median(speeds)),
        spread(speeds),
        milliseconds(median(load.p50_us for load in loads)),
        milliseconds(median(load.p99_us for load in loads)),
        whole(median(load.per_core for load in loads)),
        f"{median(load.server_cores for load in loads):.2f}",
        f"{median(load.cpu_share for load in loads):.0%}",
    ]
