"""The article's rules, switched back on one at a time: each must be caught, or the simulated cluster proves little.

Every check is run on the cluster as it is, where it must hold, and on the mutant, where it must fail.
"""

import random
from collections.abc import Callable

import pytest

from pixiu.machines.rooms import room_number
from pixiu.model.errors import PixiuError
from pixiu.testing.cluster.environment import churn
from pixiu.testing.cluster.mutants import mutated
from pixiu.testing.cluster.world import Cluster, Environment

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
    cluster = Cluster(rng, environment=Environment(loss=0.1, delay_ms_max=20, reorder=0.2))
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
    cluster = Cluster(rng, environment=Environment(reorder=0.5, delay_ms_max=50))
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
    cluster = Cluster(random.Random(seed), environment=Environment(watch_loss=1.0))
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
    cluster = Cluster(random.Random(seed), environment=Environment(delay_ms_max=100, reorder=0.5), relays=1)
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


CHECKS: dict[str, tuple[Check, str]] = {
    "E6": (shows_every_slice, "by-id-alone"),
    "E8": (runs_only_when_it_knows_all, "register-and-hope"),
    "E11": (ends_with_the_truth, "drop-what-is-smaller"),
    "E17": (finds_its_routers, "routers-as-written"),
    "E18": (loads_a_new_partition, "exact-partition"),
    "E19": (hears_all_while_it_doubles, "clean-at-once"),
    "E43": (keeps_the_new_session, "leave-by-user"),
}


@pytest.mark.feature("X13", "X15", "X23", "X33", "X36", "X68")
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("is_mutant", [False, True])
def test_each_error_is_caught(name: str, *, is_mutant: bool) -> None:
    check, mutant = CHECKS[name]
    with mutated(mutant if is_mutant else ""):
        held = []
        for seed in range(3):
            try:
                held.append(check(seed))
            except (PixiuError, AssertionError):
                held.append(False)
    assert all(held) if not is_mutant else not all(held), f"{name}: {held}"
