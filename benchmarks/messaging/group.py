"""A group whose members are all online: one body, many deliveries."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.messaging.rig import TEXT, Meter, Stopwatch, connect, create_users, newest, rig, senders, settings
from benchmarks.queue.section import Check, Section, at_least, whole
from pixiu.im.draft import Actor

MEMBERS = 200
IN_FLIGHT = 64


async def measure(folder: Path, *, rounds: int, sends: int) -> Section:
    """Deliveries per second."""
    section = Section(
        "group",
        f"A group of {MEMBERS} members, all online, {IN_FLIGHT} sends in flight",
        ["what", "deliveries/s", "rounds", "per CPU-second"],
    )
    rates: list[float] = []
    per_cpu: list[float] = []
    balanced = True
    for _ in range(rounds):
        async with rig(folder, settings()) as node:
            names = [f"m{number}" for number in range(MEMBERS)]
            numbers = await create_users(node, names)
            await node.create_group(names[0], "g", members=names[1:], name="group")
            # A member's own message is not pushed back only to the session it was sent from; these come from none.
            meters: list[Meter] = [Meter(MEMBERS)]
            for name in names:
                await connect(node, name, newest(meters))
            await meters[-1].done
            meters.append(Meter(MEMBERS * sends))
            watch = Stopwatch()
            senders(node, _jobs(numbers, sends), Meter(sends), IN_FLIGHT)
            await meters[-1].done
            wall, cpu = watch.read()
            rates.append(MEMBERS * sends / wall)
            per_cpu.append(MEMBERS * sends / cpu)
            balanced &= bool((await node.audit())["balanced"])
    section.rows = [
        ["delivered", whole(median(rates)), f"{min(rates):,.0f} – {max(rates):,.0f}", whole(median(per_cpu))]
    ]
    section.checks = [
        at_least("deliveries", median(rates), 150_000, "/s"),
        Check("audit balanced", "yes", "yes" if balanced else "no", balanced),
    ]
    section.runs = [{"deliveries": rates, "per_cpu_second": per_cpu}]
    return section


def _jobs(numbers: list[int], sends: int) -> Iterator[tuple[Actor, str, dict[str, object]]]:
    for number in range(sends):
        actor = Actor(numbers[number % MEMBERS])
        yield actor, "gsend", {"group": "g", "text": TEXT, "send_id": f"g{number}"}
