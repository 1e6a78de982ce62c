"""``room_path = relay``: brokers send to relays, one message per partition of users, and relays to gateways."""

import random

import pytest

from pixiu.links.splitting import Stand
from pixiu.machines.links.messages import RoomFrame
from pixiu.machines.room_link import Ack, Frame, Outgoing
from pixiu.machines.room_relay import LATE_MS, RoomRelay
from pixiu.machines.rooms import Fan
from pixiu.machines.scheduling import Priority
from pixiu.testing.cluster.environment import texts
from pixiu.testing.cluster.mutants import mutated
from pixiu.testing.cluster.world import Cluster, Environment, Node
from tests.roles.cluster.test_big_rooms import is_clean, is_split, propose
from tests.roles.cluster.test_rooms import is_up

pytestmark = pytest.mark.sim


def relayed(seed: int, *, environment: Environment | None = None, relays: int = 2, replicas: int = 1) -> Cluster:
    cluster = Cluster(random.Random(seed), environment=environment, relays=relays)
    cluster.add_gateway()
    cluster.add_gateway()
    cluster.add_router()
    for partition in range(relays):
        for _ in range(replicas):
            cluster.add_relay(partition)
    for _ in range(2):
        cluster.add_broker()
        cluster.add_proxy()
    return cluster


def note_frames(node: Node, sent: list[tuple[int, Fan]]) -> None:
    """Keep what a node says in rooms."""
    send = node.endpoint.send

    def noted(boot: int, message: object, priority: Priority = Priority.CONTROL) -> None:
        if isinstance(message, RoomFrame):
            sent.extend((boot, fan) for fan in message.frame.fans if fan.message_id)
        send(boot, message, priority)

    node.endpoint.send = noted  # type: ignore[method-assign]


@pytest.mark.feature("X71", "X01")
def test_a_message_goes_once_to_each_partition_of_relays_and_once_to_each_gateway() -> None:
    cluster = relayed(1, replicas=2)
    one, other = cluster.gateways
    people = range(1, 41)
    for person in people:
        (one if person % 3 else other).enter(person, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    cluster.run(3_000)
    sent: dict[str, list[tuple[int, Fan]]] = {"broker": [], "relay": []}
    for node in (*cluster.brokers, *cluster.relays):
        note_frames(node, sent[node.role])
    one.say(1, "lobby", "live")
    cluster.run(100)
    relays = {node.boot: node.partition for node in cluster.relays}
    assert sorted(relays[boot] for boot, _ in sent["broker"]) == [0, 1], "one replica of each partition, once"
    for boot, fan in sent["broker"]:
        assert sorted(fan.sessions or ()) == [person for person in people if person % 2 == relays[boot]]
    assert len(sent["relay"]) == 4, "from each partition once to each gateway"
    named = [session_id for _, fan in sent["relay"] for session_id in fan.sessions or ()]
    assert sorted(named) == list(people), "each once"
    for person in people:
        assert texts(one if person % 3 else other, person) == ["live"]


@pytest.mark.feature("X71", "X28", "X25")
@pytest.mark.parametrize("seed", range(2))
def test_reliable_talk_reaches_everyone_once_though_relays_die(seed: int) -> None:
    environment = Environment(loss=0.2, repeat=0.1, reorder=0.2, delay_ms_max=10)
    cluster = relayed(seed, environment=environment, replicas=2)
    one, other = cluster.gateways
    for person in range(1, 9):
        (one if person % 3 else other).enter(person, "lobby")
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    answers = [one.say(1, "lobby", f"text {number}", is_reliable=True) for number in range(20)]
    cluster.run(500)
    cluster.relays[0].crash()
    cluster.run(500)
    cluster.relays[2].crash()
    cluster.add_relay(0)
    assert cluster.run_until(lambda: all(answers), within_ms=120_000)
    assert all(isinstance(answer[0], dict) for answer in answers)
    for person in range(1, 9):
        assert texts(one if person % 3 else other, person) == [f"text {number}" for number in range(20)], person


@pytest.mark.feature("X71", "X14", "X15")
def test_relays_double_and_rooms_become_big_on_the_relayed_path() -> None:
    environment = Environment(loss=0.05, reorder=0.1, delay_ms_max=5, watch_loss=0.5)
    cluster = relayed(7, environment=environment, relays=1)
    one, other = cluster.gateways
    for person in range(1, 9):
        (one if person % 3 else other).enter(person, "lobby")
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    answers: list[list[object]] = []

    def talk(rounds: int) -> None:
        for _ in range(rounds):
            answers.append(one.say(1, "lobby", f"text {len(answers)}", is_reliable=True))
            cluster.run(150)

    talk(5)
    cluster.add_relay(1)
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    cluster.run(2_000)
    assert isinstance(cluster.double("relay"), Stand)
    talk(40)
    propose(cluster, "lobby")
    talk(40)
    assert cluster.run_until(lambda: is_split(cluster, "lobby"), within_ms=60_000)
    talk(30)
    assert cluster.run_until(lambda: is_clean(cluster, "lobby"), within_ms=60_000)
    talk(5)
    assert cluster.run_until(lambda: all(answers), within_ms=120_000)
    assert all(isinstance(answer[0], dict) for answer in answers)
    for person in range(1, 9):
        heard = texts(one if person % 3 else other, person)
        assert heard == [f"text {number}" for number in range(len(answers))], person


@pytest.mark.feature("X71", "X17")
def test_a_relay_that_starts_after_the_doubling_knows_the_sessions_of_brokers_that_have_not_heard_of_it() -> None:
    cluster = relayed(5, environment=Environment(watch_loss=1.0), relays=1)
    one = cluster.gateways[0]
    people = range(1, 9)
    for person in people:
        one.enter(person, "lobby")
    cluster.add_relay(1)
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    cluster.run(2_000)
    cluster.relays[0].crash()
    answer = one.say(1, "lobby", "text", is_reliable=True)
    cluster.run(50)
    assert isinstance(cluster.double("relay"), Stand)
    cluster.add_relay(0)
    assert cluster.run_until(lambda: bool(answer), within_ms=60_000)
    assert isinstance(answer[0], dict)
    for person in people:
        assert texts(one, person) == ["text"], person


def reliable(message_id: int, *sessions: int) -> Fan:
    return Fan(9, message_id, b"body", is_reliable=True, sessions=sessions)


@pytest.mark.feature("X71", "X70")
def test_a_relay_confirms_what_the_gateways_have_and_counts_whom_it_does_not_know() -> None:
    where = {1: "a", 2: "b"}
    relay = RoomRelay(where.get)
    broker = Outgoing(5, resend_ms=100, reliable_ms=10_000)
    frame = broker.seal([reliable(1, 1, 2)], 0)
    assert relay.receive("x", frame, 0) == Ack(5, 0)
    out = relay.take()
    assert {gateway: [fan.sessions for fan in fans] for gateway, fans in out.items()} == {"a": [(1,)], "b": [(2,)]}
    assert relay.arrived("a", out["a"]) == []
    assert relay.receive("x", frame._replace(serial=0), 0) == Ack(5, 0), "again: not all of it is there"
    assert not relay.take(), "and nothing goes twice"
    assert relay.arrived("b", out["b"]) == [("x", Ack(5, 1))]
    assert relay.waiting == 0
    # Live talk for somebody who is away is dropped and counted.
    assert relay.receive("x", Frame(5, 9, 0, 2, [Fan(9, 2, b"body", sessions=(3, 1))]), 0) is None
    assert [fan.sessions for fan in relay.take()["a"]] == [(1,)]
    assert relay.unknown == 1
    # Reliable talk waits for news of them, for a while.
    late = broker.seal([reliable(3, 4)], 0)
    assert relay.receive("x", late, 0) == Ack(5, 1)
    assert relay.look(LATE_MS - 1) == []
    where[4] = "b"
    assert relay.look(LATE_MS - 1) == []
    assert relay.arrived("b", relay.take()["b"]) == [("x", Ack(5, 2))]
    gone = broker.seal([reliable(4, 5)], 0)
    assert relay.receive("x", gone, 0) == Ack(5, 2)
    assert relay.look(LATE_MS) == [("x", Ack(5, 3))]
    assert relay.unknown == 2


def loses_nothing_with_a_relay(seed: int) -> bool:
    """A relay that dies right after something has come to it takes nothing with it."""
    cluster = relayed(seed, relays=1, replicas=2)
    one = cluster.gateways[0]
    one.enter(1, "lobby")
    assert cluster.run_until(lambda: is_up(cluster))
    cluster.run(3_000)
    used: list[tuple[int, Fan]] = []
    for node in cluster.brokers:
        note_frames(node, used)
    for relay in cluster.relays:  # what they send is lost, as when they die in between
        cluster.environment.cuts |= {(relay.address, gateway.address) for gateway in cluster.gateways}
    answer = one.say(1, "lobby", "kept", is_reliable=True)
    cluster.run(50)
    chosen = used[0][0]
    next(node for node in cluster.relays if node.boot == chosen).crash()
    cluster.environment.cuts.clear()
    return cluster.run_until(lambda: bool(answer), within_ms=60_000) and texts(one, 1) == ["kept"]


@pytest.mark.feature("X71")
@pytest.mark.parametrize("mutant", ["", "acked-on-receipt"])
def test_a_relay_that_dies_takes_nothing_with_it(mutant: str) -> None:
    with mutated(mutant):
        assert all(loses_nothing_with_a_relay(seed) for seed in range(2)) == (not mutant)
