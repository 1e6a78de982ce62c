"""Publishing: which proxies a message takes, in how many copies, and how it is answered."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from pixiu.links.publishing import COPY_PAUSE_MS, Publishing
from pixiu.machines.links.codec import decode
from pixiu.machines.links.messages import Talk
from pixiu.machines.rooms import room_number
from pixiu.model.errors import Overloaded, PixiuError, Unavailable
from pixiu.model.partitions import replica_of
from pixiu.testing.cluster.world import Cluster, Environment, Node

Answers = list[PixiuError | None]


def started(
    proxies: int = 3, *, environment: Environment | None = None, replicas: int = 1
) -> tuple[Cluster, Publishing]:
    cluster = Cluster(random.Random(2), environment=environment)
    cluster.add_gateway()
    cluster.add_router()
    for _ in range(replicas):
        cluster.add_broker()
    for _ in range(proxies):
        cluster.add_proxy()
    _, publishing = cluster.add_publisher()
    assert cluster.run_until(lambda: len(publishing.proxies.usable()) == proxies and cluster.is_settled())
    return cluster, publishing


def talks_at(cluster: Cluster, nodes: list[Node]) -> list[tuple[int, float, Talk]]:
    """Note every talk that these get: who, when, what."""
    seen: list[tuple[int, float, Talk]] = []
    for node in nodes:
        handle = node.endpoint._talks
        assert handle is not None

        def noted(talks: list, node: Node = node, handle: object = handle) -> None:  # type: ignore[type-arg]
            seen.extend((node.boot, cluster.clock.now_us / 1000, decode(*talk)) for _, talk in talks)  # type: ignore[misc]
            handle(talks)  # type: ignore[operator]

        node.endpoint.on_talks(noted)
    return seen


@pytest.mark.feature("X27")
def test_three_copies_take_three_proxies_under_one_id() -> None:
    cluster, publishing = started(3, replicas=3)
    seen = talks_at(cluster, cluster.proxies)
    answers: Answers = []
    publishing.publish(5, publishing.next_id(), b"{}", "copies", answers.append)
    cluster.run(100)
    assert answers == [None]
    assert len({boot for boot, _, _ in seen}) == 3
    assert len({talk.message_id for _, _, talk in seen}) == 1
    assert sorted(talk.copy for _, _, talk in seen) == [0, 1, 2]


@pytest.mark.feature("X27")
def test_with_fewer_proxies_copies_are_apart_in_time() -> None:
    cluster, publishing = started(1)
    seen = talks_at(cluster, cluster.proxies)
    answers: Answers = []
    publishing.publish(5, publishing.next_id(), b"{}", "copies", answers.append)
    cluster.run(100)
    times = sorted(at for _, at, _ in seen)
    assert len(times) == 3
    assert all(later - sooner > COPY_PAUSE_MS - 2 for sooner, later in pairwise(times))


@pytest.mark.parametrize("proxies", [1, 2, 3])
def test_nothing_counts_as_under_way_when_everything_is_answered(proxies: int) -> None:
    cluster, publishing = started(proxies)
    answers: Answers = []
    for mode in ("copies", "live", "acked") * 20:
        publishing.publish(5, publishing.next_id(), b"{}", mode, answers.append)
        cluster.run(50)
    assert answers == [None] * 60
    assert publishing._in_flight == {}, "a proxy that looks busy for ever is chosen less and less"


@pytest.mark.sim
@pytest.mark.feature("X27", "X25")
def test_of_copies_hardly_one_is_lost_and_none_is_shown_twice() -> None:
    cluster, publishing = started(3, environment=Environment(loss=0.01), replicas=3)
    gateway = cluster.gateways[0]
    gateway.enter(1, "lobby")
    assert cluster.run_until(cluster.is_settled)
    count = 300
    for _ in range(count):
        publishing.publish(
            room_number("lobby"), publishing.next_id(), b'{"push":"message"}', "copies", lambda _error: None
        )
        cluster.run(2)
    cluster.run(2_000)
    assert len(gateway.shown[1]) == count
    assert gateway.listeners.repeats > count


@pytest.mark.feature("X72")
def test_a_room_keeps_its_proxy_and_one_comes_for_one() -> None:
    cluster, publishing = started(3)
    seen = talks_at(cluster, cluster.proxies)
    for room in range(40):
        for _ in range(3):
            publishing.publish(room, publishing.next_id(), b"{}", "live", lambda _error: None)
    cluster.run(50)
    assert len(seen) == 120
    by_room: dict[int, set[int]] = {}
    for boot, _, talk in seen:
        by_room.setdefault(talk.room, set()).add(boot)
    assert all(len(boots) == 1 for boots in by_room.values())
    assert len({boot for boots in by_room.values() for boot in boots}) == 3
    (broker,) = cluster.live_brokers
    assert broker.broker.counters.messages == {"live": 0, "reliable": 0}, "nobody is in these rooms"


@pytest.mark.feature("X72")
def test_a_room_moves_at_once_when_its_proxy_is_gone_and_the_others_stay() -> None:
    cluster, publishing = started(3)
    usable, weights = publishing.proxies.usable(), publishing.proxies.weights()
    before = {room: publishing._proxy_of(room) for room in range(60)}
    assert before == {room: replica_of(room, usable, weights) for room in range(60)}, "as every publisher chooses"
    gone = cluster.proxies[0]
    gone.crash()
    assert cluster.run_until(lambda: len(publishing.proxies.usable()) == 2)
    after = {room: publishing._proxy_of(room) for room in range(60)}
    assert gone.boot in before.values()
    assert gone.boot not in after.values()
    assert all(after[room] == boot for room, boot in before.items() if boot != gone.boot)


def test_a_room_moves_when_the_shares_of_its_proxies_change() -> None:
    cluster, publishing = started(2)
    slow = cluster.proxies[0]
    before = Counter(publishing._proxy_of(room) for room in range(200))
    way = slow.way.datagram
    slow.way.datagram = lambda data, address: cluster.scheduler.after(80, lambda: way(data, address))  # type: ignore[assignment, method-assign]
    cluster.run(70_000)
    after = Counter(publishing._proxy_of(room) for room in range(200))
    assert after[slow.boot] < before[slow.boot] / 2


def test_copies_prefer_the_faster_of_two() -> None:
    cluster, publishing = started(2)
    slow = cluster.proxies[0]
    way = slow.way.datagram
    slow.way.datagram = lambda data, address: cluster.scheduler.after(80, lambda: way(data, address))  # type: ignore[assignment, method-assign]
    cluster.run(20_000)
    first = Counter(publishing._better(publishing.proxies.usable()) for _ in range(400))
    assert first[slow.boot] < 0.35 * 400, "chosen alone, or to probe"
    assert first[slow.boot] > 0


def test_who_waits_is_told_what_became_of_it() -> None:
    cluster, publishing = started(1)
    cluster.proxies[0].crash()
    answers: Answers = []
    publishing.publish(5, publishing.next_id(), b"{}", "live", answers.append)
    cluster.run(1_500)
    assert isinstance(answers[0], Unavailable)
    cluster.run(5_000)
    publishing.publish(5, publishing.next_id(), b"{}", "live", answers.append)
    assert "no proxy" in str(answers[1])
    publishing.publish(5, publishing.next_id(), b"{}", "acked", answers.append)
    cluster.run(1_000)
    assert len(answers) == 2, "acked talk waits for a proxy"
    cluster.add_proxy()
    assert cluster.run_until(lambda: len(answers) == 3)
    assert answers[2] is None
    assert publishing.pending == 0


def test_what_waits_is_bounded() -> None:
    cluster, publishing = started(1)
    cluster.proxies[0].freeze()
    answers: Answers = []
    for number in range(publishing._rules.lane_max + 1):
        publishing.publish(5, publishing.next_id(), b"{}", "acked", answers.append, sender=1)
        assert len(answers) == (number == publishing._rules.lane_max)
    assert isinstance(answers[0], Overloaded)


def test_whoever_waits_is_told_when_it_is_over() -> None:
    cluster, publishing = started(2)
    for proxy in cluster.proxies:
        proxy.crash()
    answers: Answers = []
    for mode in ("live", "copies", "acked", "acked"):
        publishing.publish(5, publishing.next_id(), b"{}", mode, answers.append)
    cluster.run(100)
    assert answers == []
    publishing.stop()
    assert [type(answer) for answer in answers] == [Unavailable] * 4
    assert (publishing.pending, publishing._lanes, publishing._in_flight) == (0, {}, {})
    publishing.publish(5, publishing.next_id(), b"{}", "acked", answers.append)
    cluster.run(60_000)
    assert len(answers) == 5 and isinstance(answers[4], Unavailable)
