"""The proxy's three stages: one in, one out, in order, to the broker that has the room."""

import random
from typing import Any

import pytest

from pixiu.machines.bigrooms import SPLIT
from pixiu.machines.links.codec import TALK, decode, encode
from pixiu.machines.links.messages import Declined, Taken, Talk
from pixiu.machines.links.packing import MESSAGE_BYTES_MAX
from pixiu.machines.rooms import room_number
from pixiu.machines.scheduling import Priority
from pixiu.model.partitions import SLICES, is_slice, partition_of
from pixiu.roles.proxy.rooms import SPREADING_MAX
from pixiu.testing.cluster.world import Cluster, Node


def proxy_of(partitions: int, replicas: int = 1) -> tuple[Cluster, Node]:
    cluster = Cluster(random.Random(4), brokers=partitions)
    cluster.add_gateway()
    cluster.add_router()
    for partition in range(partitions):
        for _ in range(replicas):
            cluster.add_broker(partition)
    proxy = cluster.add_proxy()
    assert cluster.run_until(lambda: bool(proxy.member.path))
    cluster.run(2_000)
    return cluster, proxy


def watched(proxy: Node) -> list[tuple[int, Any]]:
    """What the proxy sends from now on, and to whom; nothing leaves."""
    sent: list[tuple[int, Any]] = []
    endpoint = proxy.endpoint
    endpoint.send = lambda boot, message, priority=Priority.CONTROL: sent.append((boot, message))  # type: ignore[method-assign]
    endpoint.send_all = lambda boot, lanes: sent.extend((boot, each) for lane in lanes for each in lane)  # type: ignore[method-assign]
    return sent


def talks_of(count: int, rooms: int, copy: int = 0) -> list[Talk]:
    return [
        Talk(0, number % rooms, number + 1, 99, copy, Priority.CHAT, is_reliable=False, body=b"body")
        for number in range(count)
    ]


@pytest.mark.feature("X21", "X72")
@pytest.mark.parametrize("partitions", [1, 2, 4, 8])
def test_each_goes_to_its_broker_in_order(partitions: int) -> None:
    cluster, proxy = proxy_of(partitions)
    sent = watched(proxy)
    talks = talks_of(200, 16)
    handle = proxy.endpoint._talks
    assert handle is not None
    handle([(99, (TALK, encode(talk))) for talk in talks])
    passed = [(boot, decode(*message)) for boot, message in sent if type(message) is tuple]
    assert len(passed) == len(talks), "never copied"
    for boot, talk in passed:
        assert isinstance(talk, Talk)
        node = next(node for node in cluster.brokers if node.boot == boot)
        assert node.partition == partition_of(talk.room, partitions)
    for room in range(16):
        numbers = [talk.message_id for _, talk in passed if isinstance(talk, Talk) and talk.room == room]
        assert numbers == sorted(numbers)
    taken = [message.message_ids for _, message in sent if isinstance(message, Taken)]
    assert [message_id for ids in taken for message_id in ids] == [each.message_id for each in talks]
    assert all(len(encode(Taken(ids))) <= MESSAGE_BYTES_MAX for ids in taken), "each fits a datagram"


def test_objects_pass_as_objects() -> None:
    cluster, proxy = proxy_of(1)
    sent = watched(proxy)
    (talk,) = talks_of(1, 1)
    handle = proxy.endpoint._talks
    assert handle is not None
    handle([(99, talk)])
    assert talk._replace(count_version=cluster.brokers_by_node[cluster.brokers[0].boot]._brokers.counts.version) in [
        message for _, message in sent
    ]  # fmt: skip


@pytest.mark.feature("X27", "X09")
def test_copies_take_different_replicas_and_rooms_use_all_of_them() -> None:
    _, proxy = proxy_of(1, replicas=3)
    sent = watched(proxy)
    handle = proxy.endpoint._talks
    assert handle is not None
    for copy in range(3):
        handle([(99, (TALK, encode(talk))) for talk in talks_of(60, 60, copy)])
    by_message: dict[int, set[int]] = {}
    first: set[int] = set()
    for boot, message in sent:
        if type(message) is tuple:
            talk = decode(*message)
            assert isinstance(talk, Talk)
            by_message.setdefault(talk.message_id, set()).add(boot)
            first |= {boot} if not talk.copy else set()
    assert all(len(boots) == 3 for boots in by_message.values())
    assert len(first) == 3


@pytest.mark.feature("X11")
def test_without_a_broker_it_says_so_and_rubbish_is_dropped() -> None:
    cluster, proxy = proxy_of(1)
    cluster.brokers[0].crash()
    cluster.run(10_000)
    sent = watched(proxy)
    handle = proxy.endpoint._talks
    assert handle is not None
    handle([(99, (TALK, b"short")), (99, (TALK, encode(talks_of(1, 1)[0])))])
    assert [message for _, message in sent] == [Declined(99, 1, "unavailable", 100, 0, 0)]


def big_talk(room: str, message_id: int) -> Talk:
    return Talk(0, room_number(room), message_id, 99, 0, Priority.CHAT, is_reliable=False, body=b"body")


@pytest.mark.feature("X24", "X23")
def test_small_rooms_do_not_wait_for_all_slices_of_a_big_one() -> None:
    cluster, proxy = proxy_of(2)
    cluster.brokers[0].bigs.propose("stadium", lambda _error: None)
    assert cluster.run_until(lambda: any(room.phase == SPLIT for room in proxy.bigs.map.rooms.values()))
    sent: list[Talk] = []
    turns: list[int] = []
    proxy.endpoint.send = (  # type: ignore[method-assign]
        lambda boot, message, priority=Priority.CONTROL: sent.append(message) if isinstance(message, Talk) else None
    )
    proxy.endpoint.send_all = lambda boot, lanes: sent.extend(each for lane in lanes for each in lane)  # type: ignore[method-assign]
    soon = proxy.scheduler.soon
    proxy.scheduler.soon = lambda call: (turns.append(len(sent)), soon(call))[1]  # type: ignore[method-assign, func-returns-value]
    handle = proxy.endpoint._talks
    assert handle is not None
    handle([(99, big_talk("stadium", 1)), (99, big_talk("stadium", 2)), (99, big_talk("cellar", 3))])
    assert [talk.message_id for talk in sent if not is_slice(talk.room)] == [1, 2, 3], "the small one is on its way"
    assert not any(is_slice(talk.room) for talk in sent)
    cluster.run(0.0)
    cluster.run(50)
    assert sum(is_slice(talk.room) for talk in sent) == 2 * SLICES
    assert len(turns) >= 8, "sixteen in a turn, others between them"
    for piece in {talk.room for talk in sent if is_slice(talk.room)}:
        assert [talk.message_id for talk in sent if talk.room == piece] == [1, 2], "in order in each slice"


def test_too_many_messages_of_big_rooms_are_declined() -> None:
    cluster, proxy = proxy_of(1)
    cluster.brokers[0].bigs.propose("stadium", lambda _error: None)
    assert cluster.run_until(lambda: any(room.phase == SPLIT for room in proxy.bigs.map.rooms.values()))
    sent = watched(proxy)
    handle = proxy.endpoint._talks
    assert handle is not None
    handle([(99, big_talk("stadium", number)) for number in range(1, SPREADING_MAX + 3)])
    declined = [message for _, message in sent if isinstance(message, Declined)]
    assert [message.code for message in declined] == ["busy", "busy"]
