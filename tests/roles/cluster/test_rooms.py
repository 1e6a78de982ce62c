"""Rooms of a whole cluster in virtual time: who is there is known everywhere, what is said arrives, whatever breaks."""

import random
from collections.abc import Callable

import pytest

from pixiu.links.splitting import Stand
from pixiu.machines.links.messages import News, Reach, Routes
from pixiu.machines.scheduling import Priority
from pixiu.testing.cluster.environment import churn, texts
from pixiu.testing.cluster.world import Cluster, Environment

FOUL = Environment(loss=0.2, repeat=0.1, reorder=0.2, delay_ms_max=20, watch_loss=0.3)


def small_cluster(
    seed: int = 1, *, environment: Environment | None = None, partitions: int = 1, replicas: int = 1
) -> Cluster:
    cluster = Cluster(random.Random(seed), environment=environment, brokers=partitions)
    cluster.add_gateway()
    cluster.add_gateway()
    cluster.add_router()
    for partition in range(partitions):
        for _ in range(replicas):
            cluster.add_broker(partition)
    cluster.add_proxy()
    cluster.add_proxy()
    return cluster


def is_up(cluster: Cluster) -> bool:
    return cluster.is_settled() and all(len(each.publishing.proxies.usable()) == 2 for each in cluster.gateways)


def test_what_is_said_reaches_everyone_in_order() -> None:
    cluster = small_cluster(partitions=2)
    one, other = cluster.gateways
    for session_id in range(1, 21):
        (one if session_id % 2 else other).enter(session_id, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    answers = [one.say(1, "lobby", f"text {number}") for number in range(50)]
    cluster.run(200)
    assert all(len(answer) == 1 and isinstance(answer[0], dict) for answer in answers)
    for session_id in range(1, 21):
        assert texts(one if session_id % 2 else other, session_id) == [f"text {number}" for number in range(50)]


@pytest.mark.sim
@pytest.mark.feature("X12", "X13", "X34", "X36", "X38")
@pytest.mark.parametrize("seed", range(3))
def test_brokers_know_what_gateways_know_whatever_the_network_does(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(rng, environment=Environment(loss=0.2, repeat=0.1, reorder=0.2, delay_ms_max=20, watch_loss=0.3),
                      brokers=2, routers=2)  # fmt: skip
    for partition in (0, 1):
        cluster.add_router(partition)
        cluster.add_broker(partition)
    cluster.add_gateway()
    cluster.add_gateway()
    churn(cluster, rng)
    late = cluster.add_broker(1)  # registers, loads and replays while others come and go
    churn(cluster, rng, 30)
    rng.choice(cluster.routers).crash()
    cluster.add_router(0)
    cluster.add_router(1)
    churn(cluster, rng, 30)
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    assert cluster.brokers_by_node[late.boot].replica.life.takes_work


@pytest.mark.sim
@pytest.mark.feature("X28", "X25", "X74")
@pytest.mark.parametrize("seed", range(2))
def test_reliable_talk_reaches_everyone_once_and_in_order_whatever_is_lost(seed: int) -> None:
    environment = Environment(loss=0.3, repeat=0.1, reorder=0.2, delay_ms_max=10)
    cluster = small_cluster(seed, environment=environment, replicas=2)
    one, other = cluster.gateways
    for session_id in range(1, 7):
        (one if session_id % 2 else other).enter(session_id, "lobby")
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    answers = [one.say(1, "lobby", f"text {number}", is_reliable=True) for number in range(20)]
    cluster.run(500)
    cluster.brokers[0].crash()
    assert cluster.run_until(lambda: all(answers), within_ms=120_000)
    assert all(isinstance(answer[0], dict) for answer in answers)
    for session_id in range(1, 7):
        assert texts(one if session_id % 2 else other, session_id) == [f"text {number}" for number in range(20)]


@pytest.mark.sim
@pytest.mark.feature("X40")
def test_a_dead_gateway_is_forgotten_everywhere() -> None:
    cluster = small_cluster()
    one, other = cluster.gateways
    one.enter(1, "lobby")
    other.enter(2, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    other.crash()
    assert cluster.run_until(cluster.is_settled, within_ms=10_000)
    (broker,) = cluster.live_brokers
    assert broker.broker.rooms.members(broker.table.of(next(iter(broker.table.rows())).room)[0].room) == 1
    router = cluster.routers_by_node[cluster.routers[0].boot]
    assert cluster.known_to([router.table]) == cluster.truth


@pytest.mark.sim
@pytest.mark.feature("X19", "X20")
def test_a_frozen_broker_gets_no_talk_and_comes_back() -> None:
    cluster = small_cluster(replicas=2)
    one, other = cluster.gateways
    one.enter(1, "lobby")
    other.enter(2, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    for node in cluster.brokers:
        node.freeze()
        cluster.run(2_000)  # the suspect timeout
        one.shown[1].clear()
        for number in range(5):
            one.say(1, "lobby", f"text {number}")
            cluster.run(100)
        assert texts(one, 1) == [f"text {number}" for number in range(5)]
        node.thaw()
        cluster.run(3_000)
    assert all(len(proxy.directory.follow("broker").usable()) == 2 for proxy in cluster.proxies)


@pytest.mark.sim
@pytest.mark.feature("X39")
def test_a_lost_leave_is_told_back() -> None:
    cluster = small_cluster()
    one, other = cluster.gateways
    one.enter(1, "lobby")
    other.enter(2, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    # The gateway forgets a session without a word; digests would find it later, the next message finds it now.
    row = other.rooms.table.of(next(iter(other.rooms.table.rows())).room)[0]
    other.rooms.table._remove(row)
    other.listeners.leave(row.room, 2)
    one.say(1, "lobby", "text")
    cluster.run(20)
    assert cluster.is_settled()
    for _ in range(10):
        one.say(1, "lobby", "text")
        cluster.run(100)
    assert other.rooms.feedback == 1, "no storm"


@pytest.mark.sim
@pytest.mark.feature("X03")
def test_without_any_hint_the_poll_finds_everyone() -> None:
    cluster = small_cluster(environment=Environment(watch_loss=1.0))
    cluster.gateways[0].enter(1, "lobby")
    assert cluster.run_until(lambda: is_up(cluster), within_ms=20_000)


@pytest.mark.sim
@pytest.mark.feature("X03")
def test_a_gateway_of_which_no_hint_came_hears_long_before_the_poll() -> None:
    cluster = Cluster(random.Random(4), poll_ms=60_000)
    one = cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    cluster.add_proxy()
    one.enter(1, "lobby")
    assert cluster.run_until(lambda: cluster.is_settled() and bool(one.publishing.proxies.usable()))
    cluster.environment.watch_loss = 1.0
    new = cluster.add_gateway()
    new.enter(2, "lobby")
    cluster.run(3_000)  # the router has asked it, and has told the broker
    for number in range(20):
        one.say(1, "lobby", f"text {number}")
        cluster.run(200)
    assert texts(new, 2)[-10:] == [f"text {number}" for number in range(10, 20)]


@pytest.mark.sim
@pytest.mark.feature("X07", "X11")
def test_a_proxy_is_found_only_when_it_knows_every_broker() -> None:
    cluster = Cluster(random.Random(3), brokers=2)
    gateway = cluster.add_gateway()
    cluster.add_router()
    proxy = cluster.add_proxy()
    cluster.add_broker(0)
    cluster.run(3_000)
    assert not proxy.member.path
    assert isinstance(gateway.say(1, "lobby", "x")[0], Exception)
    cluster.add_broker(1)
    assert cluster.run_until(lambda: bool(proxy.member.path))
    assert not any(broker.early for broker in cluster.live_brokers)


@pytest.mark.sim
@pytest.mark.feature("X14", "X15", "X17", "X18")
@pytest.mark.parametrize("role", ["broker", pytest.param("router", marks=pytest.mark.long)])
def test_doubling_under_load_misses_nothing(role: str) -> None:
    rng = random.Random(5)
    cluster = small_cluster(5, environment=Environment(loss=0.05, reorder=0.1, delay_ms_max=5, watch_loss=0.7))
    one, other = cluster.gateways
    rooms = [str(number) for number in range(1, 9)]
    for session_id in range(1, 17):
        for room in rooms:
            (one if session_id % 2 else other).enter(session_id, room)
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    answers: list[list[object]] = []

    def talk(rounds: int) -> None:
        for _ in range(rounds):
            room = rng.choice(rooms)
            answers.append(one.say(1, room, f"{room}: {len(answers)}", is_reliable=True))
            cluster.run(150)

    for count in (1, 2):
        talk(10)
        for partition in range(count, 2 * count):
            cluster.add_broker(partition) if role == "broker" else cluster.add_router(partition)
        assert cluster.run_until(cluster.is_settled, within_ms=60_000), "the new half has what the old half has"
        stand = cluster.double(role)
        assert isinstance(stand, Stand) and stand.partitions == count
        talk(60)  # proxies, brokers and gateways learn of it one after the other
        churn(cluster, rng, 20)
        cluster.run(20_000)
        assert cluster.run_until(cluster.is_settled, within_ms=60_000), "after the grace each has its own, and no more"
    assert cluster.run_until(lambda: all(answers), within_ms=60_000)
    assert all(isinstance(answer[0], dict) for answer in answers)
    for session_id in (1, 2, 15, 16):
        heard = texts(one if session_id % 2 else other, session_id)
        assert sorted(heard) == sorted({f"{text}" for text in texts(one, 1)})
        assert len(heard) == len(answers)


@pytest.mark.long
@pytest.mark.sim
@pytest.mark.timeout(1_200)
@pytest.mark.feature("X15", "X17")
def test_doubling_to_eight_while_everyone_learns_of_it_up_to_a_minute_later() -> None:
    # No hint of the registry ever comes: a new count is known at the next poll, of each at another time.
    cluster = Cluster(random.Random(9), environment=Environment(watch_loss=1.0), poll_ms=60_000, grace_ms=125_000)
    cluster.add_router()
    cluster.run(500)
    gateway = cluster.add_gateway()
    cluster.run(7_000)
    cluster.add_broker()
    for _ in range(3):
        cluster.run(11_000)
        cluster.add_proxy()
    rooms = [str(number) for number in range(1, 17)]
    for session_id in (1, 2):
        for room in rooms:
            gateway.enter(session_id, room)
    assert cluster.run_until(
        lambda: cluster.is_settled() and len(gateway.publishing.proxies.usable()) == 3, within_ms=200_000
    )
    answers: list[list[object]] = []

    def talk(seconds: int) -> None:
        for _ in range(seconds):
            for room in rooms[len(answers) % 4 :: 4]:
                answers.append(gateway.say(1, room, str(len(answers)), is_reliable=True))
            cluster.run(1_000)

    for count in (1, 2, 4):
        talk(5)
        for partition in range(count, 2 * count):
            cluster.add_broker(partition)
        assert cluster.run_until(cluster.is_settled, within_ms=200_000)
        assert isinstance(cluster.double("broker"), Stand)
        talk(70)
        cluster.run(130_000)
        assert cluster.run_until(cluster.is_settled, within_ms=200_000)
    assert cluster.run_until(lambda: all(answers), within_ms=60_000)
    assert all(isinstance(answer[0], dict) for answer in answers)
    for session_id in (1, 2):
        assert sorted(texts(gateway, session_id), key=int) == [str(number) for number in range(len(answers))]


@pytest.mark.feature("X37")
def test_news_of_a_nearly_empty_room_goes_three_times() -> None:
    cluster = Cluster(random.Random(1))
    gateway = cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    assert cluster.run_until(cluster.is_settled)
    told: list[tuple[int, int]] = []
    send = gateway.endpoint.send

    def noted(boot: int, message: object, priority: Priority = Priority.CONTROL) -> None:
        if isinstance(message, News):
            told.append((message.first, cluster.clock.now_us // 1000))
        send(boot, message, priority)

    gateway.endpoint.send = noted  # type: ignore[method-assign]
    for session_id in (1, 2, 3):
        gateway.enter(session_id, "lobby")
        cluster.run(100)
    numbers = [number for number, _ in told]
    assert [numbers.count(number) for number in sorted(set(numbers))] == [3, 3, 1]
    first = [at for number, at in told if number == numbers[0]]
    assert [at - first[0] for at in first] == [0, 10, 20]
    assert cluster.is_settled()


@pytest.mark.sim
def test_routers_send_to_brokers_only_and_all_hold_the_same_routes() -> None:
    # Each replica subscribes to the gateways itself, so nothing is forwarded: one replica's loss is not another's.
    cluster = small_cluster(4)
    cluster.add_router()
    told: set[tuple[int, str]] = set()
    roles = {node.boot: node.role for node in cluster.nodes_by_address.values()}
    for node in cluster.routers:
        send = node.endpoint.send

        def noted(
            boot: int, message: object, priority: Priority = Priority.CONTROL, *, send: Callable[..., None] = send
        ) -> None:
            if isinstance(message, News | Reach | Routes):
                told.add((boot, roles[boot]))
            send(boot, message, priority)

        node.endpoint.send = noted  # type: ignore[method-assign]
    for session_id in range(1, 9):
        cluster.gateways[session_id % 2].enter(session_id, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    cluster.run(3_000)
    assert {role for _, role in told} == {"broker"}
    for router in cluster.routers_by_node.values():
        assert cluster.known_to([router.table]) == cluster.truth


@pytest.mark.sim
@pytest.mark.feature("X68")
@pytest.mark.parametrize("relays", [0, 1])
def test_a_late_leave_at_the_old_gateway_leaves_the_user_in_at_the_new_one(relays: int) -> None:
    cluster = Cluster(random.Random(6), environment=Environment(delay_ms_max=200, reorder=0.5), relays=relays)
    one, other = cluster.add_gateway(), cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    cluster.add_proxy()
    if relays:
        cluster.add_relay()
    one.enter_as(7, 71, "lobby")  # a user, and its session here
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    other.enter_as(7, 72, "lobby")
    cluster.run(20)
    one.rooms.session_gone(71)
    one.listeners.session_gone(71)
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    cluster.run(3_000)
    answer = other.say(72, "lobby", "still here", is_reliable=True)
    assert cluster.run_until(lambda: bool(answer))
    assert isinstance(answer[0], dict)
    assert texts(other, 72) == ["still here"]
    assert texts(one, 71) == []
