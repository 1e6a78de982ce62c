"""More partitions and replicas: does a message cost the same?

One, two and four of everything, with twice and four times the load, as one does it when there is more to do; and the
same with replicas. Counted is the CPU time of each role for each message that it handled. Rooms have one person each,
so a message is one delivery. Routers handle no messages but news of who comes and goes: that is what is counted there,
as many for each partition as for one.

CPU time is not worth the same at all times: others on the machine, and on its host, make the same work up to twice as
dear for minutes. So all clusters stand at the same time, and take turns of a few seconds. Each turn of a larger one is
between two turns of the one of each, and is held against their mean; of these ratios the median counts.

What a process costs when nothing is said (heartbeats, looks at the registry) is measured in every round, told apart,
and taken off: it grows with processes and time, not with messages.

Datagrams are counted, too: what one role sends to four others leaves in more datagrams than what it sends to one,
whatever else runs.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
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
"""Messages a second for each proxy, broker and gateway, and news for each router; low enough that 4 of each fit two
cores."""
ROOMS = 64
NEWS_PEOPLE = 50
"""People of each of as many other rooms, for each gateway: their coming and going is the routers' work."""
NEWS_SECONDS = 1.0
FLAT_MAX = 1.10
CARRIED_MIN = 0.95
ROUNDS_OF_ONE = 2
"""Turns of each shape for a round of other sections."""
SETTLE_SECONDS = 2.5
NEWS_SETTLE_SECONDS = 0.4
IDLE_SECONDS = 3.0
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


ONE = Shape("1 of each")
LARGER = (
    Shape("2 partitions, proxies, gateways", partitions=2),
    Shape("4 partitions, proxies, gateways", partitions=4),
    Shape("2 replicas", replicas=2),
    Shape("4 replicas", replicas=4),
)


@dataclass(slots=True)
class _Standing:
    """A cluster that stands, and what its turns have cost."""

    shape: Shape
    roles: Roles
    gateways: list[Child]
    turns: list[dict[str, float]] = field(default_factory=list)
    ratios: list[dict[str, float]] = field(default_factory=list)
    """Of each turn, by role: over what one of each cost just before and after."""
    idle: dict[str, float] = field(default_factory=dict)
    """CPU seconds a second of all processes of each role, while nothing is said."""

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by role."""
        return {**self.roles.cpu(), "gateway": sum(gateway.cpu for gateway in self.gateways)}

    def middle(self, key: str) -> float:
        """The median of all turns."""
        return median(turn[key] for turn in self.turns)

    def ratio(self, role: str) -> float:
        """The median of all turns over those of one of each."""
        return median(each[role] for each in self.ratios) if self.ratios else 1.0


def measure(bench: Bench) -> Section:
    """By turns: one of each, a larger one, one of each, the next larger one."""
    columns = ["", "messages/s", *(f"{role} CPU s per 1M" for role in ROLES), "datagrams", "idle", "heard"]
    section = Section("flat", "1, 2, 4 partitions and replicas: CPU seconds per million messages", columns)
    averages = []
    rounds = bench.rounds * ROUNDS_OF_ONE
    with ExitStack() as stack:
        one = _stand(bench, stack, ONE)
        larger = [_stand(bench, stack, shape) for shape in LARGER]
        for number in range(rounds):
            averages.append(load_average())
            _measure_idle([one, *larger])
            before = _turn(bench, section, one, number)
            for each in larger:
                mine = _turn(bench, section, each, number)
                after = _turn(bench, section, one, number)
                each.ratios.append({role: 2 * mine[role] / (before[role] + after[role]) for role in ROLES})
                before = after
            bench.say(f"  round {number + 1} of {rounds}: " + "; ".join(map(_said, larger)))
    _tell_rows(section, [one, *larger])
    bench.figures["broker_messages"] = 1e6 / one.middle("broker")
    bench.figures["gateway_frames"] = 1e6 / one.middle("gateway")
    bench.figures["router_news"] = 1e6 / one.middle("router")
    section.notes = [
        f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}.",
        (
            f"{RATE:,} messages/s for each of them, in bursts of 20 ms; as many people a second come and go for each "
            f"partition of the routers. All clusters run at the same time. {rounds} turns of each larger one, each "
            "between two turns of one of each and held against their mean; ratios, and CPU times, are the medians. "
            "`datagrams` are those that proxies and brokers send for a message, which other load hardly changes. "
            "`idle` is the CPU time in ms a second that a process takes while nothing is said; it is taken off. A "
            "router replica receives all changes, so the changes that it handles are what counts. A shard is not "
            "measured here: it is replicated for safety, not for speed, and each replica writes and applies everything."
        ),
    ]
    return section


def _said(cluster: _Standing) -> str:
    ratios = " ".join(f"{cluster.ratios[-1][role]:.2f}" for role in ROLES)
    return f"{cluster.shape.label.partition(',')[0]} {ratios}"


def _tell_rows(section: Section, clusters: list[_Standing]) -> None:
    """The table, and what is held against the target."""
    for each in clusters:
        cells = [f"{each.middle(role):.2f} ({each.ratio(role):.2f} x)" for role in ROLES]
        processes = len(each.roles.all) + len(each.gateways)
        counted = [f"{each.middle('datagrams'):.3f}", f"{each.middle('idle') / processes * 1e3:.1f}"]
        row = [each.shape.label, f"{each.middle('rate'):,.0f}", *cells, *counted, f"{each.middle('heard'):.1%}"]
        section.rows.append(row)
    for role in ROLES:
        worst = max(clusters, key=lambda each: each.ratio(role))
        rounds = sorted(ratios[role] for ratios in worst.ratios)
        spread = f" (turns {rounds[0]:.2f} – {rounds[-1]:.2f})" if rounds else ""
        found = worst.ratio(role)
        section.checks.append(
            Check(
                f"{role}: CPU per message, worst shape over one", f"≤ {FLAT_MAX:g} x", f"{found:.2f} x{spread}",
                found <= FLAT_MAX,
            )
        )  # fmt: skip
    heard = min(each.middle("heard") for each in clusters)
    section.checks.append(at_least("of what was said, heard", heard, 0.99, ""))
    # A machine that is too busy carries less, in larger batches, which cost less each: that would be no comparison.
    carried = min(each.middle("rate") / (RATE * each.shape.ways) for each in clusters)
    section.checks.append(at_least("of the load that was meant, carried", carried, CARRIED_MIN, ""))


def _stand(bench: Bench, stack: ExitStack, shape: Shape) -> _Standing:
    """Start a cluster, with people in its rooms."""
    roles = stack.enter_context(bench.roles("flat"))
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
        rooms = {"first": place * share, "rooms": share}
        tell(gateway, enter="load", people=1, **rooms)
        tell(gateway, enter="more", people=NEWS_PEOPLE * shape.gateways, **rooms)
    tell(gateways[0], wait=SETTLE_SECONDS)
    bench.say(f"  {shape.label} stands: {len(roles.all)} roles, {len(gateways)} gateways")
    return _Standing(shape, roles, gateways)


def _measure_idle(clusters: list[_Standing]) -> None:
    """Of all of them at once."""
    before, began = [each.cpu() for each in clusters], time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    for each, had in zip(clusters, before, strict=True):
        each.idle = {role: spent / seconds for role, spent in used(had, each.cpu()).items()}


def _turn(bench: Bench, section: Section, cluster: _Standing, number: int) -> dict[str, float]:
    """Messages, then news, which brokers have to do with a while longer: CPU seconds per million of them."""
    datagrams = _datagrams(cluster.roles)
    before, had, began = cluster.cpu(), _written(cluster.gateways), time.monotonic()
    words = load_words(cluster.roles, bench, rate=RATE * cluster.shape.ways, rooms=ROOMS, warmup=0.2)
    child = cluster.roles.beside(words)
    child.line()
    seen = child.line()
    heard = _settled(cluster.gateways, had, seen["sent_all"])
    cpu, seconds = used(before, cluster.cpu()), time.monotonic() - began
    sent, idle = max(seen["sent_all"], 1), cluster.idle
    found = {role: (cpu[role] - idle[role] * seconds) / sent * 1e6 for role in ("proxy", "broker", "gateway")}
    found |= {"datagrams": (_datagrams(cluster.roles) - datagrams) / sent, "heard": min(heard / sent, 1.0)}
    found |= {"router": _news(cluster), "idle": sum(idle.values()), "rate": seen["taken"] / seen["seconds"]}
    cluster.turns.append(found)
    section.runs.append({"shape": cluster.shape.label, "round": number + 1, **found})
    return found


def _datagrams(roles: Roles) -> float:
    """What proxies and brokers have sent, answers and heartbeats included. Asked outside of what is measured."""
    return sum(each.metrics()[DATAGRAMS_OUT] for role in ("proxy", "broker") for each in roles.of(role))


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


def _news(cluster: _Standing) -> float:
    """People come and go, at all gateways at once: CPU seconds of routers per million news that one of them handled."""
    before, began = cluster.cpu()["router"], time.monotonic()
    for gateway in cluster.gateways:
        order(gateway, churn="more", seconds=NEWS_SECONDS, rate=RATE)
    told: int = sum(gateway.line()["news"] for gateway in cluster.gateways)
    time.sleep(NEWS_SETTLE_SECONDS)
    spent = cluster.cpu()["router"] - before - cluster.idle["router"] * (time.monotonic() - began)
    return spent / max(told * cluster.shape.replicas, 1) * 1e6
