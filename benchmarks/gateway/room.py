"""One room: how many deliveries a second, and how late at half of that?

A thousand subscribers, one publisher, 100 bytes. The publisher keeps a window of messages on their way and says the
next one as soon as the oldest has reached every subscriber: nobody is flooded, so nobody may lose anything. Rounds are
interleaved; each round saturates each server, then loads it with half of what it just did, at a fixed rate.
"""

from collections import defaultdict
from statistics import median

from benchmarks.gateway import crowd
from benchmarks.gateway.bench import Bench
from benchmarks.gateway.crowd import FAULTS, Talk
from benchmarks.gateway.servers import NatsCore, Pinned, PixiuServe, ValkeyPubSub, Websockets
from benchmarks.queue.bench import faults_of, load_average, notes_of
from benchmarks.queue.section import Section, below, milliseconds, ratio_check, spread, whole

SUBSCRIBERS = 1000
PAYLOAD_BYTES = 100
WINDOW = 128
KINDS: tuple[type[Pinned], ...] = (PixiuServe, NatsCore, ValkeyPubSub, Websockets)
TARGETS: dict[type[Pinned], float] = {NatsCore: 0.8, Websockets: 5.0}
COLUMNS = [
    "server",
    "deliveries/s",
    "rounds",
    "p99 ms",
    "at half: p50 ms",
    "p99 ms",
    "CPU s per 1M",
    "server cores",
    "generator CPU",
]


def measure(bench: Bench) -> Section:
    """Run all rounds."""
    title = f"A room of {SUBSCRIBERS:,} subscribers, {PAYLOAD_BYTES}-byte messages"
    section = Section("room", title, COLUMNS)
    full: dict[type[Pinned], list[Talk]] = defaultdict(list)
    half: dict[type[Pinned], list[Talk]] = defaultdict(list)
    kinds = [kind for kind in KINDS if bench.wanted(kind)]
    averages: list[float] = []
    for round_number in range(1, bench.rounds + 1):
        if averages and not bench.has_time(0.45):
            break
        averages.append(load_average())
        bench.say(f"  load average {averages[-1]:.2f}")
        for kind in kinds:
            with bench.running(kind) as server:
                saturated = _run(bench, server, window=WINDOW)
            with bench.running(kind) as server:
                eased = _run(bench, server, rate=max(saturated.published_per_second / 2, 1.0))
            full[kind].append(saturated)
            half[kind].append(eased)
            bench.say_talk(round_number, kind.product, saturated)
            bench.say_talk(round_number, f"{kind.product}, half", eased)
            for name, talk in (("saturated", saturated), ("half", eased)):
                section.runs.append({"server": kind.product, "load": name, "round": round_number} | talk.as_json())
    section.rows = [_row(kind, full[kind], half[kind]) for kind in kinds]
    if PixiuServe in kinds:
        ours = [talk.per_second for talk in full[PixiuServe]]
        for kind, target in TARGETS.items():
            if kind in kinds:
                theirs = [talk.per_second for talk in full[kind]]
                section.checks.append(ratio_check(f"Pixiu / {kind.product}", ours, theirs, target))
        p99 = median(talk.p99_us for talk in half[PixiuServe]) / 1000
        section.checks.append(below("p99 at half of saturation", p99, 50, " ms"))
        section.checks.append(faults_of(full[PixiuServe] + half[PixiuServe], FAULTS))
    section.notes = bench.rounds_note(len(averages)) + notes_of(
        averages, [talk for talks in full.values() for talk in talks]
    )
    section.notes += _faults_of_peers(full, half)
    section.notes.append(
        f"Window of {WINDOW} messages. Servers on core {bench.server_cores or 'any'}, the generator on core "
        f"{bench.crowd_cores or 'any'}. Pixiu writes JSON over WebSocket, about twice the bytes of NATS or Valkey."
    )
    return section


def _run(bench: Bench, server: Pinned, **options: int | float) -> Talk:
    return crowd.talk(
        server,
        bench.crowd_cores,
        range(SUBSCRIBERS + 1),
        mode="room",
        connections=SUBSCRIBERS,
        bytes=PAYLOAD_BYTES,
        seconds=bench.seconds,
        warmup=bench.warmup,
        **options,
    )


def _row(kind: type[Pinned], full: list[Talk], half: list[Talk]) -> list[str]:
    speeds = [talk.per_second for talk in full]
    return [
        kind.product,
        whole(median(speeds)),
        spread(speeds),
        milliseconds(median(talk.p99_us for talk in full)),
        milliseconds(median(talk.p50_us for talk in half)),
        milliseconds(median(talk.p99_us for talk in half)),
        f"{median(talk.cpu_per_million for talk in full):.2f}",
        f"{median(talk.server_cpu_seconds / talk.seconds for talk in full):.2f}",
        f"{median(talk.cpu_share for talk in full):.0%}",
    ]


def _faults_of_peers(full: dict[type[Pinned], list[Talk]], half: dict[type[Pinned], list[Talk]]) -> list[str]:
    notes = []
    for kind in full:
        faults = sum(talk.faults for talk in full[kind] + half[kind])
        if faults and kind is not PixiuServe:
            notes.append(f"{kind.product}: {faults} gaps, repeats, disorder or errors.")
    return notes
