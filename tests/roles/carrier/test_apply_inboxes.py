"""What records do to inboxes and bodies: who is to get what."""

import pytest

from pixiu.model.conversation import Direct
from pixiu.model.inbox import NEED_ACK, NEED_ALL, NEED_NOTIFICATION, NEED_OFFLINE
from pixiu.model.pixiu_pb2 import MsgChat, PushTo
from pixiu.model.timeline import PrivateRow
from pixiu.ports.sendkeys import Sent
from pixiu.roles.carrier.arrivals import wakes_of
from pixiu.roles.carrier.reached import Limits
from tests.roles.carrier.world import (
    ANNA,
    AT,
    BERT,
    CARL,
    from_system,
    ledger,
    opened,
    people,
    push,
    rows,
    send,
)

# Private messages.


@pytest.mark.feature("R03", "B01", "P18")
def test_a_private_send_is_one_body_two_rows_and_an_id_in_every_inbox_of_both() -> None:
    world = people(opened(ANNA, "web"), opened(BERT, "ios"), opened(BERT, "web"))
    said = world.apply(send(ANNA, BERT, "hello", session=77))
    assert world.waiting(ANNA, "web") == world.waiting(BERT, "ios") == world.waiting(BERT, "web") == [said]
    assert world.entries(BERT, "ios")[0][1:] == (said, 7, AT, NEED_ALL, 77)
    assert world.body(said).data == b"hello"
    assert world.body(said).msgId == said
    assert world.stores.bodies.references(said) == 5
    assert world.stores.timelines.private_row(ANNA, said) == PrivateRow(said, BERT, is_incoming=False)
    assert world.stores.timelines.private_row(BERT, said) == PrivateRow(said, ANNA, is_incoming=True)
    assert world.stores.unread.of(BERT) == {Direct(ANNA): 1}
    assert world.stores.unread.of(ANNA) == {}


@pytest.mark.feature("R04")
def test_a_note_to_oneself_appears_once_and_is_not_unread() -> None:
    world = people(opened(ANNA, "web"))
    said = world.apply(send(ANNA, ANNA))
    assert world.waiting(ANNA, "web") == [said]
    assert world.stores.timelines.private_forward(ANNA) == [PrivateRow(said, ANNA, is_incoming=True)]
    assert world.stores.bodies.references(said) == 2
    assert world.stores.unread.of(ANNA) == {}


def test_the_system_speaks_to_one_side_only() -> None:
    world = people()
    said = world.apply(from_system(BERT))
    assert world.waiting(BERT) == [said]
    assert world.stores.timelines.private_forward(BERT) == [PrivateRow(said, 0, is_incoming=True)]
    assert world.stores.unread.of(BERT) == {Direct(0): 1}
    assert world.stores.bodies.references(said) == 2


def test_a_send_with_a_key_can_be_found_by_it() -> None:
    world = people()
    said = world.apply(send(ANNA, BERT), key=b"anna/1")
    assert world.stores.keys.get(b"anna/1") == Sent(said, 4, AT)


def test_all_inboxes_of_a_message_share_one_body_in_their_wakes() -> None:
    world = people(opened(BERT, "ios"), opened(BERT, "web"))
    world.appliers.forget_news()
    said = world.apply(send(ANNA, BERT))
    wakes = wakes_of(world.appliers.inboxes.take_arrivals())
    assert [(wake.user, wake.platform, wake.latest) for wake in wakes] == [
        (BERT, "ios", 1), (BERT, "web", 1), (ANNA, "first", 1)
    ]  # fmt: skip
    assert len({id(wake.bodies) for wake in wakes}) == 1
    assert all(wake.bodies is not None and MsgChat.FromString(wake.bodies[said]).msgId == said for wake in wakes)
    assert world.appliers.inboxes.take_arrivals() == []


def test_a_batch_wakes_each_inbox_once_with_all_that_is_new() -> None:
    world = people()
    first, second = world.apply(send(ANNA, BERT)), world.apply(send(CARL, BERT))
    wakes = {wake.user: wake for wake in wakes_of(world.appliers.inboxes.take_arrivals())}
    assert [entry.message_id for entry in wakes[BERT].entries] == [first, second]
    assert (wakes[BERT].latest, wakes[ANNA].latest) == (2, 1)
    assert list(wakes[BERT].entries) == world.entries(BERT)


def test_who_is_not_there_is_woken_only_for_a_notification_or_for_what_is_not_kept() -> None:
    world = people()
    world.appliers.forget_news()
    world.apply(send(ANNA, BERT))
    arrivals = world.appliers.inboxes.take_arrivals()
    assert [(wake.user, wake.entries[0].options) for wake in wakes_of(arrivals, lambda _user: False)] == [(BERT, 7)]
    assert [wake.user for wake in wakes_of(arrivals, {ANNA}.__contains__)] == [BERT, ANNA]
    world.apply(send(ANNA, BERT, options=NEED_OFFLINE))
    assert wakes_of(world.appliers.inboxes.take_arrivals(), lambda _user: False) == []
    world.apply(send(ANNA, BERT, options=0))
    assert len(wakes_of(world.appliers.inboxes.take_arrivals(), lambda _user: False)) == 2


def test_nobody_is_notified_of_what_they_have_said_themselves() -> None:
    world = people()
    world.apply(send(ANNA, BERT))
    assert [entry.options & NEED_NOTIFICATION for entry in world.entries(ANNA)] == [0]
    assert [entry.options & NEED_NOTIFICATION for entry in world.entries(BERT)] == [NEED_NOTIFICATION]


# Pushes.


@pytest.mark.feature("P03", "P18")
def test_a_push_reaches_every_open_platform_of_its_users() -> None:
    world = people(opened(ANNA, "mobile"), opened(ANNA, "desktop"))
    sent = world.apply(push([ANNA, BERT, ANNA]))
    assert world.waiting(ANNA, "mobile") == world.waiting(ANNA, "desktop") == world.waiting(BERT) == [sent]
    assert world.stores.bodies.references(sent) == 3
    assert world.stores.timelines.private_forward(ANNA) == []
    assert world.stores.unread.of(ANNA) == {}


@pytest.mark.feature("P03")
def test_a_push_goes_to_the_platforms_that_are_named_or_left() -> None:
    world = people(opened(ANNA, "mobile"), opened(ANNA, "desktop"), opened(BERT, "mobile"))
    only = world.apply(push([ANNA, BERT], platforms=["desktop"]))
    without = world.apply(push([ANNA, BERT], without_platforms=["desktop"]))
    assert world.waiting(ANNA, "desktop") == world.waiting(BERT, "desktop") == [only]
    assert world.waiting(ANNA, "mobile") == world.waiting(BERT, "mobile") == [without]


@pytest.mark.feature("P03")
def test_a_user_can_have_platforms_of_its_own_in_a_push() -> None:
    world = people(opened(ANNA, "mobile"), opened(ANNA, "desktop"), opened(BERT, "mobile"), opened(BERT, "desktop"))
    own = {BERT: PushTo(platforms=["mobile"])}
    sent = world.apply(push([ANNA, BERT], platforms=["desktop"], exclusive=own))
    assert [world.waiting(ANNA, "desktop"), world.waiting(ANNA, "mobile")] == [[sent], []]
    assert [world.waiting(BERT, "desktop"), world.waiting(BERT, "mobile")] == [[], [sent]]


def test_a_push_that_reaches_nobody_leaves_no_body() -> None:
    world = people(opened(ANNA, "mobile"))
    sent = world.apply(push([ANNA], without_platforms=["mobile"]))
    assert world.stores.bodies.get([sent]) == {}


@pytest.mark.feature("P22")
@pytest.mark.parametrize("options", range(8))
def test_every_combination_of_options_reaches_the_inbox_also_as_a_users_own(options: int) -> None:
    assert NEED_ACK | NEED_OFFLINE | NEED_NOTIFICATION == 7
    world = people(opened(ANNA, "mobile"), opened(BERT, "mobile"))
    world.appliers.forget_news()
    own = {BERT: PushTo(has_options=True, options=7 - options)}
    world.apply(push([ANNA, BERT], options=options, exclusive=own))
    assert world.entries(ANNA, "mobile")[0].options == options
    assert world.entries(BERT, "mobile")[0].options == 7 - options
    wakes = wakes_of(world.appliers.inboxes.take_arrivals())
    assert {wake.user: wake.entries[0].options for wake in wakes} == {ANNA: options, BERT: 7 - options}


# Ledgers and limits.


@pytest.mark.feature("P18", "P04")
def test_the_last_ack_takes_the_body_with_it() -> None:
    world = people(opened(ANNA, "mobile"), opened(ANNA, "desktop"))
    sent = world.apply(push([ANNA, BERT]))
    assert world.stores.bodies.references(sent) == 3
    world.apply(ledger(["mobile", "first"], acked=rows((ANNA, 0, 1, 1), (BERT, 1, 1, 1))))
    assert world.stores.bodies.references(sent) == 1
    assert world.waiting(BERT) == []
    world.apply(ledger(["mobile", "desktop"], acked=rows((ANNA, 0, 1, 1), (ANNA, 1, 1, 1))))
    assert world.stores.bodies.get([sent]) == {}


@pytest.mark.feature("P19")
def test_what_has_expired_or_died_leaves_before_what_was_acked() -> None:
    world = people()
    sent = [world.apply(push([ANNA])) for _ in range(5)]
    world.apply(
        ledger(["first"], expired=rows((ANNA, 0, 2, 3)), dead=rows((ANNA, 0, 4, 4)), acked=rows((ANNA, 0, 1, 4)))
    )
    assert world.waiting(ANNA) == sent[4:]
    assert set(world.stores.bodies.get(sent)) == {sent[4]}
    world.apply(ledger(["first"], handed=rows((ANNA, 0, 5, 5)), resent=rows((ANNA, 0, 5, 5))))
    assert world.waiting(ANNA) == sent[4:]


@pytest.mark.feature("P20")
def test_beyond_the_limit_of_a_platform_the_newest_stay() -> None:
    world = people(opened(ANNA, "desktop"), opened(ANNA, "mobile"), limits=Limits(-1, {"desktop": 80}))
    sent = [world.apply(push([ANNA])) for _ in range(100)]
    assert world.waiting(ANNA, "desktop") == sent[20:]
    assert world.waiting(ANNA, "mobile") == sent
    assert [world.stores.bodies.references(message_id) for message_id in sent] == [1] * 20 + [2] * 80
    evictions = world.appliers.inboxes.take_evictions()
    assert [useq for eviction in evictions for useq in eviction.useqs] == list(range(1, 21))


@pytest.mark.feature("P20")
def test_room_that_acks_have_made_is_used() -> None:
    world = people(limits=Limits(10))
    first = [world.apply(push([ANNA])) for _ in range(10)]
    world.apply(ledger(["first"], acked=rows((ANNA, 0, 1, 6))))
    more = [world.apply(push([ANNA])) for _ in range(6)]
    assert world.waiting(ANNA) == first[6:] + more
    last = world.apply(push([ANNA]))
    assert world.waiting(ANNA) == [*first[7:], *more, last]


def test_delivery_work_is_per_user_and_platform_not_per_session() -> None:
    world = people(opened(ANNA, "mobile"))
    for _ in range(3):
        world.apply(opened(ANNA, "mobile"))
    world.appliers.forget_news()
    world.apply(push([ANNA]))
    (arrival,) = world.appliers.inboxes.take_arrivals()
    assert arrival.inboxes == [(ANNA, "mobile", 1)]
