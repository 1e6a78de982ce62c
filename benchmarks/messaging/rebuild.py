"""All stores made anew from the log, and how that grows."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.messaging.rig import TEXT, Meter, create_users, senders, settings
from benchmarks.queue.section import Check, Section, below, whole
from pixiu.im.draft import Actor
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import rebuild_stores

USERS = 1000


async def measure(folder: Path, *, sizes: list[int]) -> Section:
    """Seconds per size; the cost per message should not grow."""
    section = Section(
        "rebuild", "Every store from the log alone", ["messages", "seconds", "messages/s", "µs per message"]
    )
    costs: list[float] = []
    seconds = 0.0
    for size in sizes:
        with TemporaryDirectory(dir=folder) as data:
            await _fill(data, size)
            began = perf_counter()
            rebuild_stores(Path(data))
            seconds = perf_counter() - began
        costs.append(seconds / size * 1e6)
        section.rows.append([f"{size:,}", f"{seconds:.2f}", whole(size / seconds), f"{costs[-1]:.1f}"])
    if sizes[-1] >= 1_000_000:
        section.checks.append(below("a million messages", seconds, 60, " s"))
    growth = costs[-1] / costs[0]
    section.checks.append(Check("cost per message, largest over smallest", "< 1.5 x", f"{growth:.2f} x", growth < 1.5))
    section.runs = [{"sizes": sizes, "us_per_message": costs}]
    return section


async def _fill(data: str, size: int) -> None:
    """A log of private messages among a thousand users."""
    async with EmbeddedNode(data, settings=settings(yield_ms=60_000)) as node:
        numbers = await create_users(node, [f"u{number}" for number in range(USERS)])
        accepted = Meter(size)
        senders(node, _jobs(numbers, size), accepted, 256)
        await accepted.done


def _jobs(numbers: list[int], size: int) -> Iterator[tuple[Actor, str, dict[str, object]]]:
    for number in range(size):
        to = f"u{number * 7919 % USERS}"
        yield Actor(numbers[number % USERS]), "send", {"to": to, "text": TEXT, "send_id": str(number)}
