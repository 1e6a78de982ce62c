"""Private messages: 64 senders, each to a device of its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.messaging.rig import TEXT, Meter, Stopwatch, connect, create_users, newest, rig, senders, settings
from benchmarks.queue.section import Check, Section, at_least, below, whole
from pixiu.im.draft import Actor
from pixiu.model.errors import PixiuError
from pixiu.node.embedded import EmbeddedNode

SENDERS = 64
BURST = 30_000
UNANSWERED = 8
"""Sends of one sender that are on their way at a time, in a burst of senders that do not wait for each answer."""


def jobs(numbers: list[int], count: int, prefix: str) -> Iterator[tuple[Actor, str, dict[str, object]]]:
    """Sends in turn, each with a send_id of its own."""
    pairs = [(Actor(numbers[sender]), f"r{sender}") for sender in range(SENDERS)]
    for number in range(count):
        actor, to = pairs[number % SENDERS]
        yield actor, "send", {"to": to, "text": TEXT, "send_id": f"{prefix}{number}"}


async def people(node: EmbeddedNode) -> tuple[list[int], list[Meter]]:
    """Senders and receivers, whose devices are there. Returns their numbers, and where meters are put."""
    numbers = await create_users(node, [f"s{n}" for n in range(SENDERS)] + [f"r{n}" for n in range(SENDERS)])
    seen: list[Meter] = []
    for number in range(SENDERS):
        await connect(node, f"r{number}", newest(seen))
    return numbers, seen


async def measure(folder: Path, *, rounds: int, count: int) -> Section:
    """End to end, accepted alone, and how long an accept takes at half load."""
    section = Section(
        "private",
        f"Private messages, {SENDERS} senders at a time, flushed before they are accepted, one process",
        ["what", "messages/s", "rounds", "per CPU-second"],
    )
    ends: list[float] = []
    per_cpu: list[float] = []
    accepts: dict[int, list[float]] = {1: [], UNANSWERED: []}
    accepts_per_cpu: dict[int, list[float]] = {1: [], UNANSWERED: []}
    catch_ups: list[float] = []
    p99 = 0.0
    for _ in range(rounds):
        async with rig(folder, settings()) as node:
            numbers, seen = await people(node)
            rate, cpu = await end_to_end(node, numbers, seen, count)
            ends.append(rate)
            per_cpu.append(cpu)
            for unanswered in accepts:
                accepted, cpu, caught_up = await burst(node, numbers, seen, unanswered)
                accepts[unanswered].append(accepted)
                accepts_per_cpu[unanswered].append(cpu)
                catch_ups.append(caught_up)
            p99 = max(p99, await _half_load(node, numbers, seen, rate / 2))
            balanced = (await node.audit())["balanced"]
            section.checks = [Check("audit balanced", "yes", "yes" if balanced else "no", bool(balanced))]
    section.rows = [_row("delivered and acked", ends, per_cpu)]
    for unanswered, rates in accepts.items():
        what = f"accepted, a burst of {BURST:,}, {unanswered} unanswered per sender"
        section.rows.append(_row(what, rates, accepts_per_cpu[unanswered]))
    section.notes = [f"After a burst the devices had everything {median(catch_ups):.2f} s after the last accept."]
    section.checks += [
        at_least("delivered and acked", median(ends), 20_000, "/s"),
        at_least("accepted alone", median(accepts[UNANSWERED]), 60_000, "/s"),
        below("p99 of accept at half load", p99 * 1000, 20, " ms"),
    ]
    section.runs = [
        {"end_to_end": ends, "per_cpu_second": per_cpu, "accepted": list(accepts.values()), "catch_up_s": catch_ups}
    ]
    return section


def _row(what: str, rates: list[float], per_cpu: list[float]) -> list[str]:
    return [what, whole(median(rates)), f"{min(rates):,.0f} – {max(rates):,.0f}", whole(median(per_cpu))]


async def end_to_end(
    node: EmbeddedNode, numbers: list[int], seen: list[Meter], count: int, *, prefix: str = "e"
) -> tuple[float, float]:
    """Delivered and acked, per second and per second of CPU."""
    seen.append(Meter(count))
    watch = Stopwatch()
    senders(node, jobs(numbers, count, prefix), Meter(count), SENDERS)
    await seen[-1].done
    wall, cpu = watch.read()
    return count / wall, count / cpu


async def burst(
    node: EmbeddedNode, numbers: list[int], seen: list[Meter], unanswered: int, count: int = BURST
) -> tuple[float, float, float]:
    """Accepted per second and per second of CPU; seconds from the last accept to the last delivery."""
    seen.append(Meter(count))
    accepted = Meter(count)
    watch = Stopwatch()
    senders(node, jobs(numbers, count, f"b{unanswered}."), accepted, SENDERS * unanswered)
    await accepted.done
    wall, cpu = watch.read()
    await seen[-1].done
    return count / wall, count / cpu, watch.read()[0] - wall


async def _half_load(node: EmbeddedNode, numbers: list[int], seen: list[Meter], rate: float) -> float:
    """Sends at a fixed rate, whatever the answers do; returns the 99th percentile of the time to accept, in seconds."""
    count = int(rate * 2)
    seen.append(Meter(count))
    took: list[float] = []
    act = node.messaging.act
    began = perf_counter()
    for number, job in enumerate(jobs(numbers, count, "h")):
        ahead = began + number / rate - perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        started = perf_counter()

        def done(answer: dict[str, object] | PixiuError, started: float = started) -> None:
            if isinstance(answer, PixiuError):
                raise answer
            took.append(perf_counter() - started)

        act(*job, done)
    await seen[-1].done
    return sorted(took)[int(len(took) * 0.99)]
