"""W25, and the lifetime's part of W11, W13, W18, W21, W23, W24 and W31: topics that expire."""

import time
from pathlib import Path

import pytest

from tests.servers import wait_for
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    ALIVE_ANSWER,
    CREATE,
    DELAY_APPLY,
    DELETE,
    OK,
    alive,
    block_of,
    create,
    delay,
    delete,
    list_topics,
    message,
    now_ms,
    pub,
    sub,
    topic_info,
    valid_list,
)
from tests.wire.fixtures import Connect
from tests.wire.observed import ObservedQueue
from tests.wire.ripening import TOPICS, Ending

GONE = "topic not exist"


@pytest.mark.feature("W25", "W31", "QA1")
def test_w25_every_waiting_subscriber_is_told_at_the_end_of_a_lifetime(ending: Ending) -> None:
    if now_ms() < ending.expire_at - 200:
        for subscriber in ending.waiting:
            subscriber.quiet(0.01)
    ending.wait()
    for subscriber in ending.waiting:
        subscriber.sub_end(1.0)
        subscriber.send(alive()).alive()


@pytest.mark.feature("W25", "W31", "QC6", "QA2")
def test_w25_a_subscriber_that_owes_an_ack_is_told_after_it(ending: Ending) -> None:
    ending.wait()
    for subscriber in ending.withholding:
        subscriber.quiet(0.05)
        subscriber.send(ACK_GO_ON).sub_end(1.0)
        subscriber.send(alive()).alive()


@pytest.mark.feature("W25", "W18")
def test_w25_a_collected_topic_is_gone(ending: Ending, connect: Connect) -> None:
    ending.wait()
    raw = connect(ending.leader)
    assert raw.topics() == ["ends-and-returns", "stays"]
    assert raw.refused(pub(b"ends", message(b"m"))) == GONE
    assert raw.refused(delay(b"ends", 1000, message(b"m"))) == GONE
    assert raw.refused(sub(b"ends")) == GONE
    assert raw.refused(topic_info(b"ends")) == GONE


@pytest.mark.feature("W25", "W21")
def test_w25_collection_is_a_replicated_delete_record_and_late_messages_are_dropped(
    ending: Ending, connect: Connect
) -> None:
    ending.wait()
    blocks = [ending.replica.block() for _ in TOPICS]
    assert [block.command for block in blocks] == [DELETE] * 3
    assert sorted(block.topic for block in blocks) == sorted(TOPICS)
    first = ending.last_event_id + 1
    assert [block.event_id for block in blocks] == [first, first + 1, first + 2]
    assert all(block.payload_size == 0 and block.write_time >= ending.expire_at for block in blocks)
    # One topic was created again before its delayed message fell due, and got it.
    # The other message was dropped, without a record and without harm.
    created, fired = ending.replica.block(), ending.replica.block()
    assert (created.command, created.topic) == (CREATE, b"ends-and-returns")
    assert (fired.command, fired.topic) == (DELAY_APPLY, b"ends-and-returns")
    assert fired.write_time >= ending.expire_at + 1500
    subscriber = connect(ending.leader).send(sub(b"ends-and-returns"))
    assert subscriber.push()[0].body == b"late for ends-and-returns"
    connect(ending.leader).create(b"afterwards")
    while (head := ending.replica.read_exact(10)) == ALIVE_ANSWER:
        pass
    assert head == OK
    length = int.from_bytes(ending.replica.read_exact(4), "little")
    assert block_of(ending.replica.read_exact(length)).topic == b"afterwards"


@pytest.mark.feature("W25")
def test_w25_a_follower_deletes_by_replication_and_tells_its_subscribers(ending: Ending, connect: Connect) -> None:
    ending.wait()
    for subscriber in ending.on_follower:
        subscriber.sub_end(2.0)
    raw = connect(ending.follower)
    wait_for(lambda: "ends" not in raw.topics(), what="the follower to delete the topic")


@pytest.mark.feature("W25", "W23", "W24", "W36")
def test_w25_expired_and_not_collected_it_is_listed_but_neither_valid_nor_open(
    ending: Ending, connect: Connect
) -> None:
    ending.wait()
    raw = connect(ending.orphan)
    assert raw.topics() == ["orphaned", "orphaned-stays"]
    assert [entry["name"] for entry in raw.send(valid_list()).json()] == ["orphaned-stays"]
    assert [entry["name"] for entry in raw.send(valid_list(1)).json()] == []
    assert raw.refused(sub(b"orphaned")) == GONE


@pytest.mark.feature("W25", "W11", "W13", "W18", "W23", "W24")
def test_w25_on_the_leader_an_expired_topic_is_there_for_some_and_gone_for_others(
    tmp_path: Path, connect: Connect
) -> None:
    """The leader looks at its clock once a second; stepped past an end, that is expired and not collected."""
    with ObservedQueue(tmp_path) as queue:
        raw = connect(queue)
        raw.create(b"stays")
        raw.create(b"ends", now_ms() + 20_000)
        raw.pub(b"ends", b"message")
        waiting = connect(queue).send(sub(b"ends", 0, b"waiting"))
        waiting.push()
        waiting.send(ACK_GO_ON)
        queue.step_clock(60_000)
        raw.send(
            pub(b"ends", message(b"m"))
            + delay(b"ends", 1000, message(b"m"))
            + sub(b"ends", 0, b"late")
            + create(b"ends")
            + create(b"ends", now_ms() + 120_000)
            + list_topics()
            + valid_list()
            + valid_list(2)
            + delete(b"ends")
            + list_topics()
            + create(b"ends")
        )
        assert [raw.error() for _ in range(5)] == [GONE, GONE, GONE, "topic exist", "topic exist"]
        assert [entry["name"] for entry in raw.json()] == ["ends", "stays"]
        assert [[entry["name"] for entry in raw.json()] for _ in range(2)] == [["stays"], ["stays"]]
        raw.ok()
        waiting.sub_end()
        assert [entry["name"] for entry in raw.json()] == ["stays"]
        raw.ok()
        assert raw.info(b"ends")["createEventId"] == 5, "refusals used no id; the delete used one"


@pytest.mark.feature("W20")
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_w20_a_step_of_the_wall_clock_makes_a_delay_neither_early_nor_late(
    tmp_path: Path, connect: Connect, step_ms: int
) -> None:
    with ObservedQueue(tmp_path) as queue:
        raw = connect(queue)
        raw.create(b"a")
        subscriber = connect(queue).send(sub(b"a"))
        started = time.monotonic()
        raw.send(delay(b"a", 1200, message(b"late"))).ok()
        before = raw.append(b"a", b"", message(b"before"))
        assert subscriber.push()[0].body == b"before"
        queue.step_clock(step_ms)
        after = raw.append(b"a", b"", message(b"after"))
        assert after[1] > before[1], "message ids rise over a step of the clock"
        assert subscriber.send(ACK_GO_ON).push()[0].body == b"after"
        assert subscriber.send(ACK_GO_ON).push()[0].body == b"late"
        assert 1.2 <= time.monotonic() - started < 2.0
