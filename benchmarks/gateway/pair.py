"""From one person to another: how long does a message take at a steady thousand a second?

Open loop: a message counts from the time it was due, whether or not the sender got to it then. Durable means that it is
on disk before it is accepted, and pushed after that; the receivers ack. Live is a room of two, with nothing stored.
"""

from collections import defaultdict
from statistics import median

from benchmarks.gateway import crowd
from benchmarks.gateway.bench import Bench
from benchmarks.gateway.crowd import FAULTS, Talk
from benchmarks.gateway.servers import NatsCore, Pinned, PixiuServe, ValkeyPubSub
from benchmarks.queue.bench import faults_of, load_average, notes_of
from benchmarks.queue.section import Check, Section, below, milliseconds

RATE = 1000
PAIRS = 100
PAYLOAD_BYTES = 100
CASES: tuple[tuple[type[Pinned], str], ...] = (
    (PixiuServe, "durable"),
    (PixiuServe, "live"),
    (NatsCore, "live"),
    (ValkeyPubSub, "live"),
)
COLUMNS = ["server", "p50 ms", "p99 ms", "p99.9 ms", "p50 of the rounds", "server cores", "generator CPU"]


def measure(bench: Bench) -> Section:
    """Run all rounds."""
    title = f"One to one: {RATE:,} messages/s over {PAIRS} pairs, open loop, sent → delivered"
    section = Section("pair", title, COLUMNS)
    talks: dict[str, list[Talk]] = defaultdict(list)
    averages: list[float] = []
    for round_number in range(1, bench.rounds + 1):
        if averages and not bench.has_time(0.65):
            break
        averages.append(load_average())
        for kind, talk_class in CASES:
            if not bench.wanted(kind):
                continue
            label = f"{kind.product} {talk_class}" if kind is PixiuServe else kind.product
            with bench.running(kind) as server:
                talk = crowd.talk(
                    server,
                    bench.crowd_cores,
                    range(2 * PAIRS),
                    mode="pair",
                    pairs=PAIRS,
                    rate=RATE,
                    bytes=PAYLOAD_BYTES,
                    seconds=max(bench.seconds, 3.0),
                    warmup=max(bench.warmup, 1.0),
                    **{"class": talk_class},
                )
            talks[label].append(talk)
            bench.say_talk(round_number, label, talk)
            section.runs.append({"server": label, "round": round_number} | talk.as_json())
    section.rows = [_row(label, runs) for label, runs in talks.items()]
    section.notes = bench.rounds_note(len(averages)) + notes_of(
        averages, [talk for runs in talks.values() for talk in runs]
    )
    if durable := talks.get("Pixiu durable"):
        section.checks.append(below("durable p50", median(talk.p50_us for talk in durable) / 1000, 3, " ms"))
        section.checks.append(below("durable p99", median(talk.p99_us for talk in durable) / 1000, 25, " ms"))
    live, nats = talks.get("Pixiu live"), talks.get(NatsCore.product)
    if live and nats:
        ratio = median(talk.p50_us for talk in live) / max(median(talk.p50_us for talk in nats), 1)
        section.checks.append(Check("live p50 / NATS core p50", "≤ 2.0 x", f"{ratio:.2f} x", ratio <= 2.0))
    ours = [talk for label, runs in talks.items() if "Pixiu" in label for talk in runs]
    section.checks.append(faults_of(ours, FAULTS))
    return section


def _row(label: str, talks: list[Talk]) -> list[str]:
    p50s = [talk.p50_us for talk in talks]
    return [
        label,
        milliseconds(median(p50s)),
        milliseconds(median(talk.p99_us for talk in talks)),
        milliseconds(median(talk.p999_us for talk in talks)),
        f"{milliseconds(min(p50s))} – {milliseconds(max(p50s))}",
        f"{median(talk.server_cpu_seconds / talk.seconds for talk in talks):.2f}",
        f"{median(talk.cpu_share for talk in talks):.0%}",
    ]
