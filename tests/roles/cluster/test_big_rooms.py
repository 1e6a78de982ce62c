"""Big rooms: sixty-four virtual ones, everyone hears everything once, also while a room becomes big."""

import random
from collections import Counter

import pytest

from pixiu.config.rooms import RoomSettings
from pixiu.machines.bigrooms import JOINING, SPLIT, BigMap, Overlap, SliceAcks
from pixiu.machines.links.messages import Talk
from pixiu.machines.rooms import room_number
from pixiu.machines.scheduling import Priority
from pixiu.model.errors import Conflict, PixiuError, TooLarge
from pixiu.model.ids import Snowflakes
from pixiu.model.partitions import SLICES, is_slice, slices
from pixiu.testing.cluster.environment import texts
from pixiu.testing.cluster.mutants import mutated
from pixiu.testing.cluster.world import Cluster, Environment
from tests.roles.cluster.test_rooms import is_up, small_cluster


def propose(cluster: Cluster, room: str) -> None:
    """As a plan does."""
    answers: list[PixiuError | None] = []
    cluster.brokers[0].bigs.propose(room, answers.append)
    cluster.run(10)
    assert answers == [None]


def is_split(cluster: Cluster, room: str) -> bool:
    """Do all proxies send to the slices?"""
    found = [node.bigs.map.rooms.get(room_number(room)) for node in cluster.proxies]
    return all(each is not None and each.phase == SPLIT for each in found)


def is_clean(cluster: Cluster, room: str) -> bool:
    """Does nobody know of the room itself any more?"""
    return not any(broker.table.of(room_number(room)) for broker in cluster.live_brokers)


@pytest.mark.sim
@pytest.mark.feature("X23", "X72")
@pytest.mark.parametrize("size", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_people_in_one_room_hear_a_message_once_each(size: int) -> None:
    cluster = Cluster(random.Random(1), brokers=4)
    cluster.settings = RoomSettings(says_per_second=0, resend_ms=100, presence_ms=2_000)
    gateways = [cluster.add_gateway() for _ in range(5)]
    cluster.add_router()
    for partition in range(4):
        cluster.add_broker(partition)
    proxy = cluster.add_proxy()
    assert cluster.run_until(cluster.is_settled)
    propose(cluster, "stadium")
    assert cluster.run_until(lambda: is_split(cluster, "stadium"))
    cluster.run(20_000)  # nobody tells of the room itself any more
    people = range(1, size + 1)
    for person in people:
        gateways[person % 5].enter(person, "stadium")
        if not person % 500:
            cluster.run(20)
    assert cluster.run_until(lambda: cluster.known_to([each.table for each in cluster.live_brokers]) == cluster.truth)
    cluster.run(2_500)
    spread = Counter(row[0] for row in cluster.truth if is_slice(row[0]))
    assert len(spread) == SLICES
    assert all(abs(count - size / 64) <= 0.2 * size / 64 for count in spread.values())
    passed: list[int] = []
    send = proxy.endpoint.send

    def noted(boot: int, message: object, priority: Priority = Priority.CONTROL) -> None:
        if isinstance(message, Talk) or (type(message) is tuple and message[0] == 3):
            passed.append(boot)
        send(boot, message, priority)

    proxy.endpoint.send = noted  # type: ignore[method-assign]
    for is_reliable in (False, True):
        passed.clear()
        answer = gateways[0].say(5, "stadium", "goal", is_reliable=is_reliable)
        assert cluster.run_until(lambda: bool(answer))  # noqa: B023
        cluster.run(200)
        assert isinstance(answer[0], dict)
        assert 0.9 * size < answer[0]["members"] <= 1.1 * size
        assert len(passed) == SLICES
        for person in people:
            assert texts(gateways[person % 5], person) == ["goal"], person
            gateways[person % 5].shown[person].clear()


@pytest.mark.sim
@pytest.mark.feature("X23")
def test_a_room_becomes_big_while_people_talk_and_nobody_misses_or_repeats_anything() -> None:
    becomes_big(0)


@pytest.mark.long
@pytest.mark.sim
@pytest.mark.feature("X23")
@pytest.mark.timeout(3_600)
def test_rooms_become_big_in_many_worlds() -> None:
    for seed in range(100):
        try:
            becomes_big(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.long
@pytest.mark.sim
@pytest.mark.timeout(1_200)
@pytest.mark.feature("X23")
@pytest.mark.parametrize("name", ["shown-again", "split-at-once", "left-at-once", "settled-by-any"])
def test_errors_in_becoming_big_are_caught(name: str) -> None:
    with mutated(name), pytest.raises((AssertionError, PixiuError)):
        for seed in range(10):
            becomes_big(seed)


def becomes_big(seed: int) -> None:
    """A room with people who talk all the time becomes big; everyone hears everything once, in order."""
    rng = random.Random(seed)
    environment = Environment(loss=0.05, repeat=0.05, reorder=0.1, delay_ms_max=10, watch_loss=0.7)
    cluster = small_cluster(seed, environment=environment, partitions=2)
    cluster.add_router()
    one, other = cluster.gateways
    people = range(1, 13)
    for person in people:
        (one if person % 2 else other).enter(person, "match")
        one.enter(1, "small")
    assert cluster.run_until(lambda: is_up(cluster), within_ms=60_000)
    answers: list[list[object]] = []
    live: list[list[object]] = []

    def talk(rounds: int) -> None:
        for _ in range(rounds):
            speaker = rng.choice((1, 3))
            answers.append(one.say(speaker, "match", f"{speaker}: {len(answers)}", is_reliable=True))
            live.append(other.say(2, "match", f"live {len(live)}"))
            cluster.run(rng.random() * 200)

    talk(20)
    propose(cluster, "match")
    talk(20)
    for _ in range(100):
        if is_split(cluster, "match"):
            break
        talk(5)
    assert is_split(cluster, "match")
    other.enter(1_002, "match")  # comes while both are told of
    talk(60)
    assert cluster.run_until(lambda: is_clean(cluster, "match"), within_ms=60_000)
    talk(20)
    other.leave(1_002, "match")
    assert cluster.run_until(lambda: all(answers), within_ms=120_000)
    cluster.run(5_000)
    said = {f"{speaker}: " for speaker in (1, 3)}
    accepted = [text for text in texts(one, 1) if text[:3] in said]
    assert len(accepted) == len(answers) == len(set(accepted))
    assert all(isinstance(answer[0], dict) for answer in answers)
    for person in people:
        heard = texts(one if person % 2 else other, person)
        for speaker in said:
            mine = [text for text in heard if text.startswith(speaker)]
            assert mine == sorted(mine, key=lambda text: int(text.split()[-1])), "in order of each sender"
        assert sorted(text for text in heard if text[:3] in said) == sorted(accepted), f"person {person}"
        lively = [int(text.split()[1]) for text in heard if text.startswith("live")]
        assert lively == sorted(set(lively)), "live talk once, in order"
        assert len(lively) > 0.6 * len(live)
    assert cluster.run_until(cluster.is_settled, within_ms=60_000)
    assert not any(row[1] == 1_002 for row in cluster.truth)


@pytest.mark.sim
@pytest.mark.feature("X23")
def test_a_room_that_a_broker_finds_too_hot_becomes_big_by_itself() -> None:
    cluster = Cluster(random.Random(2))
    cluster.settings = RoomSettings(says_per_second=0, resend_ms=100, big_members=8, big_deliveries=0)
    gateway = cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker()
    cluster.add_proxy()
    for person in range(1, 11):
        gateway.enter(person, "hot")
        gateway.enter(person % 3 + 1, "cool")
    assert cluster.run_until(cluster.is_settled)
    for _ in range(100):
        gateway.say(1, "hot", "x")
        gateway.say(1, "cool", "x")
        cluster.run(200)
    assert is_split(cluster, "hot")
    assert room_number("cool") not in cluster.proxies[0].bigs.map.rooms
    assert cluster.run_until(lambda: is_clean(cluster, "hot"), within_ms=60_000)
    assert cluster.run_until(cluster.is_settled)


def test_a_gateway_that_has_not_joined_holds_the_split_back() -> None:
    cluster = small_cluster(3)
    cluster.gateways[0].enter(1, "match")
    assert cluster.run_until(lambda: is_up(cluster))
    cluster.gateways[1].rooms.joined = lambda _version: None  # it never says that it has
    propose(cluster, "match")
    cluster.run(30_000)
    assert not is_split(cluster, "match")
    cluster.gateways[1].crash()
    assert cluster.run_until(lambda: is_split(cluster, "match"))


def test_the_record_of_big_rooms() -> None:
    empty = BigMap()
    record = empty.joined("stadium")
    one = BigMap(record, 0)
    assert one.rooms[room_number("stadium")].phase == JOINING
    assert one.rooms[room_number("stadium")].rooms == slices(0)
    with pytest.raises(Conflict):
        one.joined("stadium")
    two = BigMap(BigMap(one.joined("match"), 1).split(room_number("stadium"), 77), 2)
    assert [(room.place, room.phase, room.clean_at_ms) for room in two.rooms.values()] == [
        (0, SPLIT, 77), (1, JOINING, 0),
    ]  # fmt: skip
    with pytest.raises(Conflict):
        two.split(room_number("stadium"), 78)
    with pytest.raises(Conflict):
        two.split(1, 78)
    assert not two.rooms[room_number("stadium")].has_whole(77)
    assert two.rooms[room_number("match")].has_whole(10**15)
    assert two.rooms[room_number("match")].slice(65) == slices(1)[1]
    # What makes no sense is left out; an index is never given twice.
    odd = {"next": 9, "rooms": {"a": 1, "b": {"index": -1, "phase": SPLIT, "clean_at": 0}, "c": {"index": "x"}}}
    assert not BigMap(odd).rooms
    assert BigMap(BigMap(odd).joined("d")).rooms[room_number("d")].place == 9
    assert not BigMap({"rooms": []}).rooms
    full = {str(number): {"index": number, "phase": SPLIT, "clean_at": 0} for number in range(4_096)}
    with pytest.raises(TooLarge):
        BigMap({"rooms": full}).joined("one more")


def test_a_message_of_a_big_room_is_settled_when_all_slices_are() -> None:
    acks = SliceAcks(count_max=2)
    acks.sent(7, 1)
    pieces = list(slices(3))
    for piece in pieces[:-1]:
        assert not acks.settled(7, 1, piece)
        assert not acks.settled(7, 1, piece), "again is not another one"
    acks.sent(7, 1)  # again: what was settled stays so
    assert not acks.settled(8, 1, pieces[-1]), "of somebody else"
    assert acks.settled(7, 1, pieces[-1])
    assert not acks.settled(7, 1, pieces[-1]), "once"
    acks.sent(7, 1, has_whole=True)
    for piece in pieces:
        assert not acks.settled(7, 1, piece), "the room itself is not"
    assert acks.settled(7, 1, 0)
    for message_id in (2, 3, 4):
        acks.sent(7, message_id)
    assert len(acks) == 2


def test_what_was_overtaken_is_known_by_its_publisher() -> None:
    ids, others = Snowflakes(1), Snowflakes(2)
    first, second = ids.next(10**12 * 2), ids.next(10**12 * 2)
    overlap = Overlap()
    overlap.shown(5, second)
    assert overlap.is_late(5, first) and overlap.is_late(5, second)
    assert not overlap.is_late(6, first)
    assert not overlap.is_late(5, others.next(10**12 * 2)), "another publisher's numbers say nothing"
    overlap.forget(range(5, 6), 1)
    assert not overlap.is_late(5, first)
