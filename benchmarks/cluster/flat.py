"""More partitions and replicas: does a message cost the same?

One, two and four of everything, with twice and four times the load, as one does it when there is more to do; and the
same with replicas. Counted is the CPU time of each role for each message that it handled. Rooms have one person each,
so a message is one delivery. Routers handle no messages but news of who comes and goes: that is what is counted there,
as many for each partition as for one.

What a process costs when nothing is said (heartbeats, looks at the registry) is measured first, told apart, and taken
off: it grows with processes and time, not with messages, and a slow machine takes longer over the same messages.

CPU time grows when others use the machine, and most for the shape with most processes. So datagrams are counted, too:
what one role sends to four others leaves in more datagrams than what it sends to one, whatever else runs. That is the
part of a difference which is the cluster's own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cluster.proxies import load_words
from benchmarks.cluster.roles import used
from benchmarks.cluster.small_rooms import crowded, order, tell
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Check, Section, at_least

if TYPE_CHECKING:
    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.roles import Child, Roles

__all__ = ["Shape", "measure"]

RATE = 6_000
"""Messages a second for each proxy, broker and gateway; low enough that 4 of each fit two cores."""
ROOMS = 64
NEWS_PEOPLE = 200
"""People of each of as many other rooms, for each gateway: their coming is the routers' work."""
FLAT_MAX = 1.10
SETTLE_SECONDS = 2.5
IDLE_SECONDS = 4.0
ROLES = ("proxy", "broker", "gateway", "router")
DATAGRAMS_OUT = 'pixiu_links_datagrams_total{direction="out"}'


@dataclass(frozen=True, slots=True)
class Shape:
    """How many of what."""

    label: str
    partitions: int = 1
    replicas: int = 1

    @property
    def ways(self) -> int:
        """How many times the load of one."""
        return self.partitions * self.replicas

    @property
    def gateways(self) -> int:
        """As many as partitions: replicas share what partitions have."""
        return self.partitions


SHAPES = (
    Shape("1 of each"),
    Shape("2 partitions, proxies, gateways", partitions=2),
    Shape("4 partitions, proxies, gateways", partitions=4),
    Shape("2 replicas", replicas=2),
    Shape("4 replicas", replicas=4),
)


def measure(bench: Bench) -> Section:
    """Each shape once per round; the cheapest counts, since what else the machine does only adds."""
    columns = ["", "messages/s", *(f"{role} CPU s per 1M" for role in ROLES), "datagrams", "idle", "heard"]
    section = Section("flat", "1, 2, 4 partitions and replicas: CPU seconds per million messages", columns)
    found: dict[Shape, list[dict[str, float]]] = {shape: [] for shape in SHAPES}
    averages = []
    for number in range(bench.rounds):
        averages.append(load_average())
        for shape in SHAPES:
            costs = _run(bench, shape)
            found[shape].append(costs)
            section.runs.append({"shape": shape.label, "round": number + 1, **costs})
            bench.say(f"  {shape.label:<34} " + "  ".join(f"{role} {costs[role]:.2f}" for role in ROLES))
    costs_of = {shape: {role: min(each[role] for each in found[shape]) for role in ROLES} for shape in SHAPES}
    for shape, costs in costs_of.items():
        costs |= {key: max(each[key] for each in found[shape]) for key in ("rate", "heard")}
        costs |= {key: min(each[key] for each in found[shape]) for key in ("idle", "datagrams")}
    base = costs_of[SHAPES[0]]
    for shape, costs in costs_of.items():
        cells = [f"{costs[role]:.2f} ({costs[role] / base[role]:.2f} x)" for role in ROLES]
        counted = [f"{costs['datagrams']:.3f}", f"{costs['idle']:.1f}", f"{costs['heard']:.1%}"]
        section.rows.append([shape.label, f"{costs['rate']:,.0f}", *cells, *counted])
    for role in ROLES:
        worst = max(costs[role] / base[role] for costs in costs_of.values())
        section.checks.append(
            Check(
                f"{role}: CPU per message, worst shape over one",
                f"≤ {FLAT_MAX:g} x",
                f"{worst:.2f} x",
                worst <= FLAT_MAX,
            )
        )
    heard = min(costs["heard"] for costs in costs_of.values())
    section.checks.append(at_least("of what was said, heard", heard, 0.99, ""))
    bench.figures["broker_messages"] = 1e6 / base["broker"]
    bench.figures["gateway_frames"] = 1e6 / base["gateway"]
    bench.figures["router_news"] = 1e6 / base["router"]
    section.notes = [
        f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}.",
        (
            f"{RATE:,} messages/s for each of them, in bursts of 20 ms; {ROOMS * NEWS_PEOPLE:,} people who come for "
            "each partition of the routers. Of several rounds the cheapest counts. `datagrams` are those that "
            "proxies and brokers send for a message, which other load hardly changes. `idle` is the CPU time in ms a "
            "second that a process takes while nothing is said; it is taken off. A router replica hears all news, so "
            "the news that it handles are what counts. Queue and carriers are replicated for safety, not for speed: "
            "each replica writes and applies everything that is its partition's."
        ),
    ]
    return section


def _run(bench: Bench, shape: Shape) -> dict[str, float]:
    with bench.roles("flat") as roles:
        for partition in range(shape.partitions):
            for _ in range(shape.replicas):
                roles.start("router", partition=partition, partitions=shape.partitions)
                roles.start("broker", partition=partition, partitions=shape.partitions)
        for _ in range(shape.ways):
            roles.start("proxy")
        roles.wait_ready()
        gateways = [crowded(roles) for _ in range(shape.gateways)]
        share = ROOMS // shape.gateways
        for place, gateway in enumerate(gateways):
            tell(gateway, enter="load", first=place * share, rooms=share, people=1)
        idle = _idle(roles, gateways)
        router = _news(roles, gateways, shape, share, idle["router"])
        datagrams = _datagrams(roles)
        before, had, began = _cpu(roles, gateways), _written(gateways), time.monotonic()
        child = roles.beside(load_words(roles, bench, rate=RATE * shape.ways, rooms=ROOMS))
        child.line()
        seen = child.line()
        heard = _settled(gateways, had, seen["sent_all"])
        cpu, seconds = used(before, _cpu(roles, gateways)), time.monotonic() - began
        datagrams = _datagrams(roles) - datagrams
    sent = max(seen["sent_all"], 1)
    found = {role: (cpu[role] - idle[role] * seconds) / sent * 1e6 for role in ("proxy", "broker", "gateway")}
    found |= {"router": router, "idle": sum(idle.values()) * 1e3 / (len(roles.all) + len(gateways))}
    found |= {"datagrams": datagrams / sent, "heard": min(heard / sent, 1.0)}
    return {"rate": seen["taken"] / seen["seconds"], **found}


def _datagrams(roles: Roles) -> float:
    """What proxies and brokers have sent, answers and heartbeats included. Asked outside of what is measured."""
    return sum(each.metrics()[DATAGRAMS_OUT] for role in ("proxy", "broker") for each in roles.of(role))


def _cpu(roles: Roles, gateways: list[Child]) -> dict[str, float]:
    return {**roles.cpu(), "gateway": sum(gateway.cpu for gateway in gateways)}


def _idle(roles: Roles, gateways: list[Child]) -> dict[str, float]:
    """CPU seconds a second of all processes of each role, while nothing is said."""
    before, began = _cpu(roles, gateways), time.monotonic()
    tell(gateways[0], wait=IDLE_SECONDS)
    seconds = time.monotonic() - began
    return {role: spent / seconds for role, spent in used(before, _cpu(roles, gateways)).items()}


def _written(gateways: list[Child]) -> int:
    return sum(tell(gateway)["events"] for gateway in gateways)


def _settled(gateways: list[Child], had: int, sent: int) -> int:
    """Wait until all of it is heard, or nothing more comes. Returns how much was heard."""
    heard, until = -1, time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until:
        now = _written(gateways) - had
        if now >= sent:
            return now
        if now > heard:
            heard, until = now, time.monotonic() + SETTLE_SECONDS
        time.sleep(0.1)
    return heard


def _news(roles: Roles, gateways: list[Child], shape: Shape, rooms: int, idle: float) -> float:
    """People come, at all gateways at once: CPU seconds of the routers per million news that one of them handled."""
    before, began = sum(router.cpu for router in roles.of("router")), time.monotonic()
    people = NEWS_PEOPLE * len(gateways)
    for place, gateway in enumerate(gateways):
        order(gateway, enter="more", first=place * rooms, rooms=rooms, people=people)
    for gateway in gateways:
        gateway.line()
    tell(gateways[0], wait=SETTLE_SECONDS)
    spent = sum(router.cpu for router in roles.of("router")) - before - idle * (time.monotonic() - began)
    return spent / (rooms * people * len(gateways) * shape.replicas) * 1e6
