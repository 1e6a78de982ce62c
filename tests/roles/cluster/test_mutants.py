"""The article's rules, switched back on one at a time: each must be caught, or the simulated cluster proves little.

Every check is run on the cluster as it is, where it must hold, and on the mutant, where it must fail.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import pytest

from pixiu.machines.dedup import Seen
from pixiu.machines.lifecycle import Command, Lifecycle, Phase, SetRunning
from pixiu.machines.rooms import room_number
from pixiu.machines.routes import RouteRow, RouteTable
from pixiu.machines.split import Counts
from pixiu.model.errors import PixiuError
from pixiu.testing.cluster_world import Cluster, Weather
from tests.roles.cluster.test_rooms import churn

pytestmark = pytest.mark.sim

Check = Callable[[int], bool]


def shows_every_slice(seed: int) -> bool:
    """E6: copies of one message for different people of a gateway are all delivered."""
    cluster = Cluster(random.Random(seed))
    gateway = cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    gateway.enter(1, "slice 1")
    gateway.enter(2, "slice 2")
    assert cluster.run_until(cluster.is_settled)
    (broker,) = cluster.live_brokers
    for room in ("slice 1", "slice 2"):
        broker.broker.passed_on(room_number(room), 77, b'{"push":"message"}', is_reliable=True)
    cluster.run(2_000)
    return [len(gateway.shown[session_id]) for session_id in (1, 2)] == [1, 1]


def runs_only_when_it_knows_all(seed: int) -> bool:
    """E8: a broker that says Running knows everyone who had entered by then."""
    rng = random.Random(seed)
    cluster = Cluster(rng, weather=Weather(loss=0.1, delay_ms_max=20, reorder=0.2))
    gateway = cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    for session_id in range(1, 30):
        gateway.enter(session_id, f"room {session_id % 5}")
    assert cluster.run_until(cluster.is_settled)
    late = cluster.brokers_by_node[cluster.add_broker().boot]
    known: list[bool] = []
    late.replica.when_running = lambda: known.append(cluster.known_to([late.table]) == cluster.truth)
    cluster.run_until(lambda: bool(known))
    return known == [True]


def ends_with_the_truth(seed: int) -> bool:
    """E11: whatever is overtaken, routes end as the gateways have them."""
    rng = random.Random(seed)
    cluster = Cluster(rng, weather=Weather(reorder=0.5, delay_ms_max=50))
    cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    cluster.run(2_000)
    churn(cluster, rng, 60)
    return cluster.run_until(cluster.is_settled, within_ms=10_000)


def finds_its_routers(seed: int) -> bool:
    """E17: with four parts of the brokers and two of the routers every broker has its router."""
    cluster = Cluster(random.Random(seed), brokers=4, routers=2)
    gateway = cluster.add_gateway()
    for partition in range(2):
        cluster.add_router(partition)
    for partition in range(4):
        cluster.add_broker(partition)
    for number in range(16):
        gateway.enter(number + 1, str(number + 1))  # rooms called 1, 2, … are their own numbers
    return cluster.run_until(cluster.is_settled, within_ms=10_000)


def loads_a_new_partition(seed: int) -> bool:
    """E18: partitions 2 and 3, started while there are two, have the rooms of 0 and 1 before the count doubles."""
    cluster = Cluster(random.Random(seed), brokers=2)
    gateway = cluster.add_gateway()
    cluster.add_router()
    for partition in range(4):
        cluster.add_broker(partition)
    for number in range(16):
        gateway.enter(number + 1, str(number + 1))
    return cluster.run_until(cluster.is_settled, within_ms=10_000)


def hears_all_while_it_doubles(seed: int) -> bool:
    """E19: proxies that still use the old count send to a broker that still has the room; live talk goes on."""
    cluster = Cluster(random.Random(seed), weather=Weather(watch_loss=1.0))
    gateway = cluster.add_gateway()
    cluster.add_router()
    for partition in range(2):
        cluster.add_broker(partition)
    cluster.add_proxy()
    gateway.enter(1, "1")  # of partition 1 of two
    assert cluster.run_until(lambda: cluster.is_settled() and bool(gateway.publishing.proxies.usable()))
    cluster.run(1_000 * seed + 200)
    cluster.double("broker")
    for node in cluster.brokers:  # brokers read it first, the proxy polls later
        node.directory.refresh("broker")
    for number in range(80):
        gateway.say(1, "1", f"text {number}")
        cluster.run(100)
    return len(gateway.shown[1]) == 80


def keeps_the_new_session(seed: int) -> bool:
    """E43: who leaves at the old gateway after it has entered at a new one is still in."""
    cluster = Cluster(random.Random(seed), weather=Weather(delay_ms_max=100, reorder=0.5), relays=1)
    one, other = cluster.add_gateway(), cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    cluster.add_proxy()
    cluster.add_relay()
    one.enter_as(7, 71, "lobby")
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    other.enter_as(7, 72, "lobby")
    cluster.run(500)
    one.rooms.session_gone(71)
    cluster.run(5_000)
    answer = other.say(72, "lobby", "x", is_reliable=True)
    cluster.run_until(lambda: bool(answer))
    return len(other.shown[72]) == 1


def by_id_alone() -> AbstractContextManager[object]:
    """E6 as written: a message id that was seen is dropped, whomever it is for."""
    has, mark = Seen.has, Seen.mark
    return patch.multiple(
        Seen,
        has=lambda self, message_id, key, now_ms: has(self, message_id, 0, now_ms),
        mark=lambda self, message_id, key, now_ms: mark(self, message_id, 0, now_ms),
    )


def register_and_hope() -> AbstractContextManager[object]:
    """E8 as written: registered is noticed, so what is loaded now and told from now on is all there is."""

    def registered(self: Lifecycle[object], replica: int) -> list[Command[object]]:
        self.replica, self.phase = replica, Phase.RUNNING
        return [SetRunning()]

    return patch.object(Lifecycle, "registered", registered)


def drop_what_is_smaller() -> AbstractContextManager[object]:
    """E11 as written: what has a smaller number than the gateway's largest is stale, whomever it concerns."""
    apply, largest = RouteTable.apply, {}  # type: ignore[var-annotated]

    def literal(self: RouteTable, row: RouteRow) -> list[RouteRow]:
        key = (id(self), row.gateway)
        if row.version < largest.get(key, 0):
            return []
        largest[key] = row.version
        return apply(self, row)

    return patch.object(RouteTable, "apply", literal)


def routers_as_written() -> AbstractContextManager[object]:
    """E17 as written: modulo the brokers' count, whichever is larger."""
    return patch(
        "pixiu.roles.broker.cluster.router_partitions",
        lambda broker, brokers, routers: [each for each in range(routers) if each % brokers == broker % brokers],
    )


def exact_partition() -> AbstractContextManager[object]:
    """E18 as written: a partition keeps the rooms whose remainder is its own number."""
    return patch("pixiu.roles.broker.cluster.owns", lambda partition, key, count: key % count == partition)


def clean_at_once() -> AbstractContextManager[object]:
    """E19 as written: what has moved is dropped on the flip."""
    return patch.multiple(
        Counts, kept_count=property(lambda self: self.count), cleans=lambda self, _now_ms: self._flipped_ms is not None
    )


def leave_by_user() -> AbstractContextManager[object]:
    """E43 as written: a user who logs out is out, wherever else it is."""
    apply = RouteTable.apply

    def literal(self: RouteTable, row: RouteRow) -> list[RouteRow]:
        changed = apply(self, row)
        if not row.is_in and row.session_id:
            users = {71: 7, 72: 7}
            for each in [each for each in self.of(row.room) if each.user == users.get(row.session_id)]:
                self._remove(each)
                changed.append(each._replace(is_in=False))
        return changed

    return patch.object(RouteTable, "apply", literal)


MUTANTS: dict[str, tuple[Check, Callable[[], AbstractContextManager[object]]]] = {
    "E6": (shows_every_slice, by_id_alone),
    "E8": (runs_only_when_it_knows_all, register_and_hope),
    "E11": (ends_with_the_truth, drop_what_is_smaller),
    "E17": (finds_its_routers, routers_as_written),
    "E18": (loads_a_new_partition, exact_partition),
    "E19": (hears_all_while_it_doubles, clean_at_once),
    "E43": (keeps_the_new_session, leave_by_user),
}


@pytest.mark.feature("X13", "X15", "X23", "X33", "X36", "X68")
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("is_mutant", [False, True])
def test_each_error_is_caught(name: str, *, is_mutant: bool) -> None:
    check, mutate = MUTANTS[name]
    with mutate() if is_mutant else nullcontext():
        held = []
        for seed in range(3):
            try:
                held.append(check(seed))
            except (PixiuError, AssertionError):
                held.append(False)
    assert all(held) if not is_mutant else not all(held), f"{name}: {held}"
