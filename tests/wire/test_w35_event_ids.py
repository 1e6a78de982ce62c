"""W35 and W36: one counter for everything, and followers that show it unchanged."""

import threading

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    PROMOTE,
    alive,
    create,
    delay,
    delete,
    list_topics,
    message,
    pub,
    replica,
    sub,
    topic_info,
    u8,
    valid_list,
)
from tests.wire.fixtures import Connect, StartServer, next_event_id, unique_name, wait_for_topic
from tests.wire.raw import Raw


@pytest.mark.feature("W35")
def test_w35_every_kind_of_record_takes_its_ids_from_one_counter(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw, watcher = connect(queue), connect(queue)
    raw.create(b"a")
    watcher.send(replica(0))
    raw.pub(b"a", b"2", b"3", b"4")
    raw.create(b"b")
    raw.send(delay(b"a", 1000, message(b"7") + message(b"8"))).ok()
    for refused in (
        create(b"a"),
        create(b"bad name"),
        create(b"c", 1),
        delete(b"c"),
        pub(b"c", message(b"m")),
        pub(b"a", b"12345678"),
        pub(b"a", b"123456789"),
        delay(b"a", 999, message(b"m")),
        delay(b"c", 1000, message(b"m")),
        sub(b"c"),
        topic_info(b"c"),
        replica(-1),
    ):
        raw.refused(refused)
    items = connect(queue).send(sub(b"a", batch=255)).consume(5)
    assert [(item.event_id, item.body) for item in items] == [(n, b"%d" % n) for n in (2, 3, 4, 7, 8)]
    raw.delete(b"b")
    raw.create(b"c")
    assert raw.info(b"c")["createEventId"] == 10
    blocks = watcher.blocks_until(10)
    assert [(block.command, block.event_id) for block in blocks] == [
        (2, 1),
        (1, 2),
        (2, 5),
        (16, 6),
        (101, 7),
        (3, 9),
        (2, 10),
    ]


def publish_all(raw: Raw, name: bytes, count: int, ids: list[int]) -> None:
    """Publish one at a time and note each event id."""
    requests = (pub(name, message(b"m%d" % number), wants_id=True) for number in range(count))
    ids.extend(raw.send(asked).ok_with_id() for asked in requests)


@pytest.mark.feature("W35", "QB3")
def test_w35_ids_rise_over_kills_and_none_is_used_twice(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    connect(queue).create(b"a")
    answered: list[int] = []
    for _ in range(3):
        publish_all(connect(queue), b"a", 25, answered)
        queue.kill()
        queue.start()
    publish_all(connect(queue), b"a", 5, answered)
    assert answered == sorted(set(answered))
    assert answered[0] == 2
    stored = [item.event_id for item in connect(queue).send(sub(b"a", batch=255)).consume(80)]
    assert stored == answered


@pytest.mark.feature("W35")
def test_w35_concurrent_publishers_never_share_an_id(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    lists: list[list[int]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=publish_all, args=(connect(queue), b"a", 100, ids)) for ids in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in lists)
    assert sorted(each for ids in lists for each in ids) == list(range(2, 802))


@pytest.mark.feature("W35", "W36", "QE5")
def test_w35_ids_rise_over_a_change_of_leader(start_server: StartServer, connect: Connect) -> None:
    leader = start_server()
    follower = start_server(*leader.follow_args)
    raw, other = connect(leader), connect(follower)
    raw.create(b"a")
    answered: list[int] = []
    publish_all(raw, b"a", 10, answered)
    wait_for_topic(other, b"a")
    subscriber = connect(follower).send(sub(b"a", batch=255))
    moved = subscriber.consume(10)
    leader.kill()
    other.show_key(follower).extension(PROMOTE, part=u8(1))
    assert other.ok_with_id() >= 2, "the new epoch"
    publish_all(other, b"a", 10, answered)
    assert answered == sorted(set(answered))
    items = subscriber.consume(10)
    assert [item.event_id for item in moved + items] == answered


@pytest.mark.feature("W36")
def test_w36_a_follower_answers_readers_with_the_leaders_ids(
    raw: Raw, connect: Connect, follower: QueueProcess, topic: bytes
) -> None:
    raw.pub(topic, b"one", b"two")
    raw.pub(topic, b"three")
    expected = connect().send(sub(topic, batch=255)).consume(3)
    other = connect(follower)
    wait_for_topic(other, topic)
    items = connect(follower).send(sub(topic, batch=255)).consume(3)
    assert [(item.time, item.event_id, item.message) for item in items] == [
        (item.time, item.event_id, item.message) for item in expected
    ]
    other.send(alive()).alive()
    for asked in (list_topics(), valid_list(), valid_list(raw.info(topic)["createEventId"])):
        theirs, ours = other.send(asked).json(), raw.send(asked).json()
        assert [{**each, "topicRoot": ""} for each in theirs] == [{**each, "topicRoot": ""} for each in ours]


@pytest.mark.feature("W36", "W07")
def test_w36_a_follower_refuses_writers(connect: Connect, follower: QueueProcess, topic: bytes) -> None:
    other = connect(follower)
    wait_for_topic(other, topic)
    for name in (topic, unique_name()):
        assert other.refused(pub(name, message(b"m"))) == "just master can pub message"
        assert other.refused(delay(name, 1000, message(b"m"))) == "just master can pub message"
        assert other.refused(create(name)) == "just master can manage topic"
        assert other.refused(delete(name)) == "just master can manage topic"


@pytest.mark.feature("W36")
def test_w36_a_subscriber_moves_over_with_its_last_event_id(
    raw: Raw, connect: Connect, follower: QueueProcess, topic: bytes
) -> None:
    raw.pub(topic, *(b"m%d" % number for number in range(10)))
    first = connect().send(sub(topic, batch=4)).push()
    other = connect(follower)
    wait_for_topic(other, topic)
    moved = connect(follower).send(sub(topic, first[-1].event_id, batch=255))
    assert [item.body for item in moved.consume(6)] == [b"m%d" % number for number in range(4, 10)]
    raw.pub(topic, b"live")
    item = moved.push()[0]
    assert item.body == b"live"
    moved.close()
    back = connect().send(sub(topic, item.event_id, b"back"))
    back.quiet(0.05)
    raw.pub(topic, b"and back")
    assert back.push()[0].body == b"and back"


@pytest.mark.feature("W36", "W33", "W31")
def test_w36_a_followers_subscribers_are_told_of_a_delete(
    raw: Raw, connect: Connect, follower: QueueProcess, topic: bytes
) -> None:
    other = connect(follower)
    wait_for_topic(other, topic)
    subscribers = [connect(follower).send(sub(topic, 0, b"w%d" % number)) for number in range(3)]
    raw.pub(topic, b"one")
    for subscriber in subscribers:
        assert subscriber.push()[0].body == b"one"
    assert other.refused(sub(topic, 0, b"w0")) == "w0 regiester exist"
    for subscriber in subscribers:
        subscriber.send(ACK_GO_ON)
    raw.delete(topic)
    for subscriber in subscribers:
        subscriber.sub_end()
    wait_for(lambda: topic.decode() not in other.topics(), what="the follower to forget the topic")


@pytest.mark.feature("W36", "QE1")
def test_w36_a_follower_keeps_up_over_its_own_kill(start_server: StartServer, connect: Connect) -> None:
    leader = start_server()
    follower = start_server(*leader.follow_args)
    raw = connect(leader)
    raw.create(b"a")
    raw.pub(b"a", b"one", b"two", b"three")
    wait_for_topic(connect(follower), b"a")
    connect(follower).send(sub(b"a", batch=255)).consume(3)
    follower.kill()
    raw.pub(b"a", b"four", b"five")
    follower.start()
    subscriber = connect(follower).send(sub(b"a", batch=255))
    items = subscriber.consume(5)
    assert [item.body for item in items] == [b"one", b"two", b"three", b"four", b"five"]
    assert next_event_id(raw) == items[-1].event_id + 1
