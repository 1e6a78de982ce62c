"""What records do to timelines, recent caches and unread counts."""

import pytest

from pixiu.model.conversation import Direct, InGroup
from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import DELETED, MemberChanged, MsgChat, Record, UserErased
from pixiu.model.timeline import State
from tests.roles.carrier.world import (
    ANNA,
    AT,
    BERT,
    CARL,
    group_made,
    member,
    people,
    read,
    recall,
    receipt,
    say,
    send,
    trio,
)

# Recalls and receipts.


def test_a_recalled_private_message_is_a_tombstone_everywhere_and_the_recall_is_delivered() -> None:
    world = people()
    said = world.apply(send(ANNA, BERT, "oops"))
    told = world.apply(recall(ANNA, said, to=BERT))
    assert (world.body(said).status, world.body(said).data) == (DELETED, b"")
    for number in (ANNA, BERT):
        row = world.stores.timelines.private_row(number, said)
        assert row is not None
        assert row.state == State.RECALLED
        assert world.stores.timelines.private_row(number, told) is not None
    assert world.waiting(BERT) == [said, told]
    assert world.body(told).refMessageId == said
    assert world.stores.unread.get(BERT, Direct(ANNA)) == 1


def test_a_recalled_group_message_is_a_tombstone_in_the_recent_cache_too() -> None:
    world = trio()
    world.stores.recent.warm(7, [], is_all=False)
    said = world.apply(say(ANNA, 7, "oops"))
    told = world.apply(recall(ANNA, said, group=7))
    row = world.stores.timelines.group_row(7, said)
    assert row is not None
    assert row.state == State.RECALLED
    newest = world.stores.recent.latest(7, 2)
    assert [message_id for message_id, _ in newest] == [told, said]
    assert MsgChat.FromString(newest[1][1]).status == DELETED
    assert world.waiting(CARL) == [said, told]
    assert world.stores.unread.get(CARL, InGroup(7)) == 1


def test_receipts_are_noted_in_the_senders_own_rows_to_that_peer_only() -> None:
    world = people()
    mine, other, foreign = (
        world.apply(send(ANNA, BERT)), world.apply(send(ANNA, CARL)), world.apply(send(BERT, ANNA))
    )  # fmt: skip
    world.apply(receipt(ANNA, BERT, [mine, other, foreign, 999], at=50))
    row = world.stores.timelines.private_row(ANNA, mine)
    assert row is not None
    assert (row.state, row.delivered_at, row.read_at) == (State.DELIVERED, 50, 0)
    for message_id in (other, foreign):
        row = world.stores.timelines.private_row(ANNA, message_id)
        assert row is not None
        assert row.state == State.NORMAL
    (marked,) = world.appliers.timelines.take_marked()
    assert (marked.from_user, marked.peer, marked.message_ids) == (ANNA, BERT, [mine])
    world.apply(receipt(ANNA, BERT, [mine], at=60))
    assert world.appliers.timelines.take_marked() == []


# Reading.


def test_reading_everything_leaves_nothing_unread() -> None:
    world = people()
    said = [world.apply(send(ANNA, BERT)) for _ in range(3)]
    world.apply(read(BERT, said[-1], peer=ANNA))
    assert world.stores.unread.of(BERT) == {Direct(ANNA): 0}


def test_reading_a_part_leaves_what_came_behind_it() -> None:
    world = people()
    said = [world.apply(send(ANNA, BERT)) for _ in range(250)]
    world.apply(send(BERT, ANNA))
    world.apply(send(CARL, BERT))
    world.apply(read(BERT, said[99], peer=ANNA))
    assert world.stores.unread.of(BERT) == {Direct(ANNA): 150, Direct(CARL): 1}
    world.apply(read(BERT, said[50], peer=ANNA))
    assert world.stores.unread.get(BERT, Direct(ANNA)) == 150


def test_recalls_do_not_stay_unread_behind_what_was_read() -> None:
    world = people()
    first, second = world.apply(send(ANNA, BERT)), world.apply(send(ANNA, BERT))
    world.apply(recall(ANNA, second, to=BERT))
    world.apply(read(BERT, first, peer=ANNA))
    assert world.stores.unread.get(BERT, Direct(ANNA)) == 0


def test_notices_of_a_group_do_not_stay_unread_behind_what_was_read() -> None:
    world = trio()
    first = world.apply(say(ANNA, 7))
    world.apply(say(ANNA, 7))
    world.apply(say(BERT, 7))
    world.apply(member(7, CARL, MemberChanged.QUIT))
    world.apply(read(BERT, first, group=7))
    assert world.stores.unread.get(BERT, InGroup(7)) == 1


def test_what_lies_behind_a_reading_is_not_judged_before_its_bodies_are_there() -> None:
    world = trio()
    first = world.apply(say(ANNA, 7))
    world.apply(say(ANNA, 7))
    notice = world.number(member(7, CARL, MemberChanged.QUIT))
    reading = world.number(read(BERT, first, group=7))
    for record in (notice, reading):
        world.appliers.rosters.apply(record, Record.FromString(record.payload))
    world.appliers.timelines.apply(notice, Record.FromString(notice.payload))
    with pytest.raises(Unavailable, match="inboxes are at"):
        world.appliers.timelines.apply(reading, Record.FromString(reading.payload))
    world.appliers.inboxes.apply(notice, Record.FromString(notice.payload))
    world.appliers.timelines.apply(reading, Record.FromString(reading.payload))
    assert world.stores.unread.get(BERT, InGroup(7)) == 1


# The recent cache.


@pytest.mark.feature("B10", "B21")
def test_the_recent_cache_holds_the_newest_thousand_as_messages() -> None:
    world = people(group_made(7, ANNA, [BERT]))
    world.stores.recent.warm(7, [], is_all=False)
    said = [world.apply(say(ANNA, 7, str(index))) for index in range(1500)]
    assert world.stores.recent.count(7) == 1000
    latest = world.stores.recent.latest(7, 25)
    assert [message_id for message_id, _ in latest] == said[:-26:-1]
    assert [message_id for message_id, _ in world.stores.recent.latest(7, 5000)] == said[:-1001:-1]
    chat = MsgChat.FromString(latest[0][1])
    assert (chat.msgId, chat.data) == (said[-1], b"1499")


# Erasure.


def test_message_waiting_for_an_erased_user_is_blanked_when_its_author_is_erased() -> None:
    world = people()
    said = world.apply(send(ANNA, BERT, "secret"))
    for number in (BERT, ANNA):
        world.apply(Record(at=AT, actor=number, erased=UserErased(user=number)))
    assert world.waiting(BERT) == [said]
    assert (world.body(said).status, world.body(said).data) == (DELETED, b"")
