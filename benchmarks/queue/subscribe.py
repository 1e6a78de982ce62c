"""How fast are messages handed out? Subscribers read a topic from its start, in batches of 255.

A subscriber that catches up is the hard case: every batch is read from the topic's log and waits for the ack
of the one before. With 1, 10 and 100 subscribers of one topic, the server's CPU time per delivered message
must stay the same: no work and no copy per subscriber beyond the write to its socket.
"""

from statistics import median

from benchmarks.queue import generator
from benchmarks.queue.bench import Bench, faults_of, load_average, notes_of
from benchmarks.queue.generator import Load
from benchmarks.queue.publish import CONNECTIONS, PAYLOAD_BYTES
from benchmarks.queue.section import Section, at_least, below, spread, whole
from benchmarks.queue.servers import Pixiu, Server, ServerError

BATCH = 255
SUBSCRIBERS = (1, 10, 100)
PER_CORE_TARGET = 500_000
LINEAR_TARGET = 1.2  # CPU per delivered message, 100 subscribers over one
SECONDS_MAX = 120.0


def measure(bench: Bench) -> Section:
    """Fill one topic, then read it with 1, 10 and 100 subscribers in turn."""
    section = Section(
        "subscribe",
        f"Subscribe: one topic, batches of {BATCH}, {PAYLOAD_BYTES} bytes",
        [
            "subscribers",
            "messages/s",
            "rounds",
            "per core",
            "CPU µs per message",
            "RSS MB, peak",
            "generator CPU",
        ],
    )
    loads: dict[int, list[Load]] = {count: [] for count in SUBSCRIBERS}
    memory: dict[int, float] = {}
    averages: list[float] = []
    with bench.running(Pixiu, "interval") as server:
        stored = _fill(bench, server)
        for round_number in range(1, bench.rounds + 1):
            averages.append(load_average())
            bench.say(f"  load average {averages[-1]:.2f}")
            for count in SUBSCRIBERS:
                load = _one_round(server, count, _share(stored, count))
                loads[count].append(load)
                memory[count] = server.memory_mb("VmHWM")
                bench.say(_line(round_number, count, load))
                section.runs.append({"subscribers": count, "round": round_number} | load.as_json())
    section.rows = [_row(count, loads[count], memory[count]) for count in SUBSCRIBERS]
    _judge(section, loads)
    section.notes = notes_of(averages, [load for several in loads.values() for load in several])
    section.notes.append("Per core: messages per second of the server's CPU time.")
    return section


def _fill(bench: Bench, server: Server) -> int:
    bench.say(f"  filling the topic with {bench.million:,} messages")
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
        raise ServerError(f"only {load.acked_total:,} of {bench.million:,} were stored; {load.first_error}")
    return load.acked_total


def _share(stored: int, subscribers: int) -> int:
    """Messages per subscriber, so that a run of a hundred takes seconds and not minutes."""
    return min(stored, 5 * stored // subscribers)


def _one_round(server: Server, subscribers: int, messages: int) -> Load:
    load = generator.run(
        "sub",
        server.port,
        seconds=SECONDS_MAX,
        messages=messages,
        connections=subscribers,
        bytes=PAYLOAD_BYTES,
        batch=BATCH,
        topic=server.topic,
        watch_pid=server.pid,
    )
    if load.least < messages:
        raise ServerError(f"a subscriber got {load.least:,} of {messages:,} messages; {load.first_error}")
    return load


def _line(round_number: int, subscribers: int, load: Load) -> str:
    return (
        f"  round {round_number}  {subscribers:>3} subscribers {load.per_second:>11,.0f}/s  "
        f"{load.per_core:>11,.0f} per core  generator {load.cpu_share:4.0%} CPU"
    )


def _cost_us(loads: list[Load]) -> float:
    return median(load.server_cpu_seconds / load.acked * 1e6 for load in loads)


def _row(count: int, loads: list[Load], memory_mb: float) -> list[str]:
    speeds = [load.per_second for load in loads]
    return [
        str(count),
        whole(median(speeds)),
        spread(speeds),
        whole(median(load.per_core for load in loads)),
        f"{_cost_us(loads):.2f}",
        f"{memory_mb:.1f}",
        f"{median(load.cpu_share for load in loads):.0%}",
    ]


def _judge(section: Section, loads: dict[int, list[Load]]) -> None:
    for count in (SUBSCRIBERS[0], SUBSCRIBERS[-1]):
        per_core = median(load.per_core for load in loads[count])
        section.checks.append(at_least(f"{count} subscribers: messages/s per core", per_core, PER_CORE_TARGET, ""))
    growth = _cost_us(loads[SUBSCRIBERS[-1]]) / _cost_us(loads[SUBSCRIBERS[0]])
    what = f"CPU per delivered message, {SUBSCRIBERS[-1]} subscribers over one (linear: 1)"
    section.checks.append(below(what, growth, LINEAR_TARGET, " x"))
    section.checks.append(faults_of([load for several in loads.values() for load in several]))
