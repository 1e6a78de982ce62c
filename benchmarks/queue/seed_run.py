"""The run that the original smss server was praised for: 256 connections, 200 bytes, 100,000 messages each.

Its README gives more than 100,000 messages/s on 20 cores and 16 GB, without naming the flush level. Here it
is run at each level, with messages/s and messages per core.
"""

from statistics import median

from benchmarks.queue import generator
from benchmarks.queue.bench import Bench, faults_of, load_average, notes_of
from benchmarks.queue.generator import Load
from benchmarks.queue.publish import CONNECTIONS, PAYLOAD_BYTES
from benchmarks.queue.section import Section, at_least, milliseconds, spread, whole
from benchmarks.queue.servers import Pixiu

LEVELS = ("none", "interval", "always")
CLAIM_PER_SECOND = 100_000
CLAIM_CORES = 20
SECONDS_MAX = 3600.0  # per level


def measure(bench: Bench) -> Section:
    """Publish the wanted number of messages at each flush level."""
    section = Section(
        "seed",
        f"The seed's run: {CONNECTIONS} connections, {PAYLOAD_BYTES} bytes, {bench.seed_messages:,} messages",
        ["flush level", "messages/s", "rounds", "seconds", "p50 ms", "p99 ms", "per core", "server cores"],
    )
    loads: dict[str, list[Load]] = {level: [] for level in LEVELS}
    averages: list[float] = []
    for round_number in range(1, bench.seed_rounds + 1):
        averages.append(load_average())
        bench.say(f"  load average {averages[-1]:.2f}")
        for level in LEVELS:
            load = _one_round(bench, level)
            loads[level].append(load)
            bench.say_load(round_number, bench.seed_rounds, f"Pixiu {level}", load)
            section.runs.append({"server": f"Pixiu {level}", "round": round_number} | load.as_json())
    section.rows = [_row(level, loads[level]) for level in LEVELS]
    section.rows.append(_claim())
    for level in LEVELS:
        per_core = median(load.per_core for load in loads[level])
        target = CLAIM_PER_SECOND / CLAIM_CORES
        section.checks.append(at_least(f"flush {level}: messages/s per core", per_core, target, ""))
    everything = [load for several in loads.values() for load in several]
    section.checks.append(faults_of(everything))
    section.notes = notes_of(averages, everything)
    return section


def _one_round(bench: Bench, level: str) -> Load:
    with bench.running(Pixiu, level) as server:
        return generator.run(
            server.protocol,
            server.port,
            seconds=SECONDS_MAX,
            messages=bench.seed_messages,
            connections=CONNECTIONS,
            bytes=PAYLOAD_BYTES,
            topic=server.topic,
            watch_pid=server.pid,
        )


def _row(level: str, loads: list[Load]) -> list[str]:
    speeds = [load.per_second for load in loads]
    return [
        f"Pixiu {level}",
        whole(median(speeds)),
        spread(speeds),
        f"{median(load.seconds for load in loads):.1f}",
        milliseconds(median(load.p50_us for load in loads)),
        milliseconds(median(load.p99_us for load in loads)),
        whole(median(load.per_core for load in loads)),
        f"{median(load.server_cores for load in loads):.2f}",
    ]


def _claim() -> list[str]:
    per_core = whole(CLAIM_PER_SECOND / CLAIM_CORES)
    claim = f"{whole(CLAIM_PER_SECOND)}+"
    return ["smss, by its README", claim, "claimed", "–", "–", "–", f"{per_core}+", str(CLAIM_CORES)]
