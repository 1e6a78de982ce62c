"""What records do to users, contacts and groups; and records that make no sense."""

import pytest

from pixiu.config.messaging import InboxSettings
from pixiu.model.conversation import InGroup
from pixiu.model.errors import ConfigError
from pixiu.model.group import Role
from pixiu.model.pixiu_pb2 import BlockChanged, GroupChanged, MemberChanged, Record
from pixiu.roles.carrier.reached import Limits
from tests.roles.carrier.world import (
    ALL,
    ANNA,
    AT,
    BERT,
    CARL,
    Applied,
    group_made,
    ledger,
    linked,
    member,
    opened,
    people,
    read,
    recall,
    rows,
    say,
    send,
    trio,
    user,
)

# Users and inboxes.


def test_a_new_user_has_a_profile_and_the_first_inbox() -> None:
    world = Applied(user(5, "eve", at=123, name="Eve"))
    profile = world.stores.users.get(5)
    assert profile is not None
    assert (profile.public_id, profile.name, profile.created_at) == ("eve", "Eve", 123)
    assert world.stores.inboxes.platforms(5) == ("first",)


def test_a_user_without_a_number_gets_the_number_of_the_record() -> None:
    world = Applied()
    number = world.apply(user(0, "eve"))
    assert world.stores.users.number_of("eve") == number
    assert world.stores.inboxes.platforms(number) == ("first",)


def test_a_change_of_a_user_keeps_the_public_id_and_the_time_of_creation() -> None:
    world = Applied(user(5, "eve", at=1), opened(5, "web"), user(5, "other", at=2, name="Eva"))
    profile = world.stores.users.get(5)
    assert profile is not None
    assert (profile.public_id, profile.name, profile.created_at) == ("eve", "Eva", 1)
    assert world.stores.inboxes.platforms(5) == ("web",)


def test_what_waited_in_the_first_inbox_goes_to_the_first_platform() -> None:
    world = people()
    said = world.apply(send(ANNA, BERT))
    world.apply(opened(BERT, "ios"))
    world.apply(opened(BERT, "web"))
    assert world.waiting(BERT, "ios") == [said]
    assert world.waiting(BERT, "web") == []


# Contacts.


def test_a_contact_is_told_on_both_sides_without_a_row_or_a_count() -> None:
    world = people()
    told = world.apply(linked(ANNA, BERT))
    assert world.stores.contacts.of(ANNA) == [(BERT, AT)]
    assert world.stores.contacts.of(BERT) == []
    assert world.waiting(ANNA) == world.waiting(BERT) == [told]
    assert world.stores.timelines.private_forward(BERT) == []
    assert world.stores.unread.of(BERT) == {}
    assert world.stores.bodies.references(told) == 2


def test_unlinking_forgets_what_was_unread() -> None:
    world = people(linked(ANNA, BERT), send(BERT, ANNA))
    world.apply(linked(ANNA, BERT, is_linked=False))
    assert world.stores.contacts.of(ANNA) == []
    assert world.stores.unread.of(ANNA) == {}


def test_a_block_is_noted_and_lifted() -> None:
    world = people(Record(at=AT, actor=ANNA, block=BlockChanged(user=ANNA, peer=BERT, is_blocked=True)))
    assert world.stores.contacts.is_blocked(ANNA, BERT)
    world.apply(Record(at=AT, actor=ANNA, block=BlockChanged(user=ANNA, peer=BERT)))
    assert not world.stores.contacts.is_blocked(ANNA, BERT)


# Groups.


@pytest.mark.feature("R05")
def test_a_new_group_has_its_creator_as_owner_and_tells_all_members() -> None:
    world = people(group_made(7, ANNA, [BERT]))
    group = world.stores.groups.get(7)
    assert group is not None
    assert (group.owner, group.message_count, group.created_at) == (ANNA, 1, AT)
    assert {(each.user, each.role) for each in world.stores.groups.members(7)} == {
        (ANNA, Role.OWNER), (BERT, Role.MEMBER)
    }  # fmt: skip
    assert world.waiting(ANNA) == world.waiting(BERT) == [group.last_message_id]
    assert world.waiting(CARL) == []
    assert world.stores.unread.of(BERT) == {InGroup(7): 0}


def test_a_group_without_a_number_gets_the_number_of_the_record() -> None:
    world = people()
    number = world.apply(group_made(0, ANNA, [BERT]))
    assert world.stores.groups.number_of("g0") == number
    assert world.stores.groups.groups_of(BERT) == [number]
    assert world.waiting(BERT) == [number]
    assert [row.message_id for row in world.stores.timelines.group_forward(number)] == [number]


@pytest.mark.feature("R06", "B02")
def test_a_group_message_is_one_body_one_row_and_an_id_per_member() -> None:
    world = trio()
    before = world.stores.timelines.group_backward(7, limit=1)[0].message_id
    said = world.apply(say(BERT, 7))
    assert [world.waiting(number) for number in ALL] == [[said]] * 3
    assert world.stores.bodies.references(said) == 4
    (row,) = world.stores.timelines.group_forward(7, after=before)
    assert (row.message_id, row.from_user, row.previous) == (said, BERT, before)
    assert [world.stores.unread.get(number, InGroup(7)) for number in ALL] == [1, 0, 1]
    group = world.stores.groups.get(7)
    assert group is not None
    assert (group.message_count, group.last_message_id) == (2, said)


@pytest.mark.feature("R06")
def test_a_thousand_sends_to_two_groups_in_one_millisecond_lose_no_pointer() -> None:
    world = people(group_made(7, ANNA, [BERT, CARL]), group_made(8, BERT, [ANNA]))
    said = [world.apply(say(ANNA, 7 + index % 2)) for index in range(1000)]
    assert world.waiting(BERT)[2:] == said
    assert world.waiting(ANNA)[2:] == said
    assert world.waiting(CARL)[1:] == said[::2]
    assert world.stores.unread.of(BERT) == {InGroup(7): 500, InGroup(8): 500}
    rows_of_7 = world.stores.timelines.group_forward(7, limit=2000)
    assert [row.message_id for row in rows_of_7[1:]] == said[::2]
    assert [row.previous for row in rows_of_7] == [0, *(row.message_id for row in rows_of_7[:-1])]


@pytest.mark.feature("R05")
def test_a_join_is_told_to_all_and_starts_with_nothing_unread() -> None:
    world = people(group_made(7, ANNA), say(ANNA, 7))
    told = world.apply(member(7, BERT, MemberChanged.JOIN))
    joined = world.stores.groups.member(7, BERT)
    assert joined is not None
    assert (joined.role, joined.joined, joined.count_at_read) == (Role.MEMBER, 6, 3)
    assert world.waiting(ANNA)[-1:] == world.waiting(BERT) == [told]
    assert world.stores.unread.of(BERT) == {InGroup(7): 0}
    assert world.stores.unread.get(ANNA, InGroup(7)) == 0


@pytest.mark.feature("R05")
def test_who_quits_is_told_so_and_hears_no_more() -> None:
    world = trio(say(ANNA, 7))
    told = world.apply(member(7, BERT, MemberChanged.QUIT))
    after = world.apply(say(ANNA, 7))
    assert world.waiting(BERT)[-1] == told
    assert world.waiting(CARL)[-2:] == [told, after]
    assert world.stores.groups.groups_of(BERT) == []
    assert world.stores.unread.of(BERT) == {}
    assert world.stores.unread.get(CARL, InGroup(7)) == 2


def test_a_message_goes_to_who_was_a_member_then() -> None:
    world = trio()
    ahead = Applied(stores=world.stores)
    message = world.number(say(ANNA, 7))
    left = world.number(member(7, CARL, MemberChanged.QUIT, is_told=False))
    rosters = ahead.appliers.rosters
    rosters.apply(message, Record.FromString(message.payload))
    rosters.apply(left, Record.FromString(left.payload))
    ahead.appliers.inboxes.apply(message, Record.FromString(message.payload))
    assert world.waiting(CARL)[-1:] == [message.message_id]


def test_a_request_waits_until_it_is_granted_or_refused() -> None:
    world = people(group_made(7, ANNA), member(7, BERT, MemberChanged.REQUEST, is_told=False))
    assert world.stores.groups.requests(7) == [(BERT, AT)]
    world.apply(member(7, BERT, MemberChanged.JOIN))
    assert world.stores.groups.requests(7) == []
    world.apply(member(7, CARL, MemberChanged.REQUEST, is_told=False))
    world.apply(member(7, CARL, MemberChanged.REFUSE, is_told=False))
    assert world.stores.groups.requests(7) == []
    assert world.stores.groups.member(7, CARL) is None


def test_members_are_muted_promoted_and_given_the_group() -> None:
    world = trio()
    groups = world.stores.groups

    def change(number: int, op: MemberChanged.Op) -> tuple[bool, Role]:
        world.apply(member(7, number, op, actor=ANNA, is_told=False))
        found = groups.member(7, number)
        assert found is not None
        return found.is_muted, found.role

    assert change(BERT, MemberChanged.MUTE) == (True, Role.MEMBER)
    assert change(BERT, MemberChanged.UNMUTE) == (False, Role.MEMBER)
    assert change(BERT, MemberChanged.ADMIN) == (False, Role.ADMIN)
    assert change(BERT, MemberChanged.MEMBER) == (False, Role.MEMBER)
    assert change(BERT, MemberChanged.TRANSFER) == (False, Role.OWNER)
    assert change(BERT, MemberChanged.MEMBER) == (False, Role.OWNER)
    old, group = groups.member(7, ANNA), groups.get(7)
    assert old is not None
    assert group is not None
    assert (old.role, group.owner) == (Role.ADMIN, BERT)


def test_what_was_read_before_a_group_became_large_is_not_unread_after() -> None:
    world = trio()
    said = [world.apply(say(ANNA, 7)) for _ in range(5)]
    world.apply(read(BERT, said[-1], group=7))
    world.apply(read(CARL, said[1], group=7))
    change = GroupChanged(group=7, public_id="g7", name="A group", owner=ANNA, is_large=True)
    world.apply(Record(at=AT, actor=ANNA, group_info=change))
    world.apply(say(ANNA, 7))
    group = world.stores.groups.get(7)
    bert, carl = (world.stores.groups.member(7, number) for number in (BERT, CARL))
    assert group is not None
    assert bert is not None
    assert carl is not None
    assert group.message_count - bert.count_at_read == 1
    assert group.message_count - carl.count_at_read == 6


def test_a_large_group_fills_no_inboxes_and_counts_reading_by_place() -> None:
    world = people(group_made(7, ANNA, [BERT], is_large=True))
    said = [world.apply(say(ANNA, 7)) for _ in range(3)]
    assert world.waiting(ANNA) == world.waiting(BERT) == []
    assert world.stores.unread.of(BERT) == {}
    assert world.stores.bodies.references(said[0]) == 1
    assert [told.message_id for told in world.appliers.timelines.take_said()][1:] == said

    def count_at_read() -> int:
        found = world.stores.groups.member(7, BERT)
        assert found is not None
        return found.count_at_read

    assert count_at_read() == 1
    world.apply(read(BERT, said[0], group=7))
    assert count_at_read() == 2
    world.apply(read(BERT, said[2], group=7))
    assert count_at_read() == 4
    world.apply(read(BERT, said[1], group=7))
    assert count_at_read() == 4


def test_a_group_is_large_for_good_from_the_record_that_says_so() -> None:
    world = trio()
    small = world.number(say(ANNA, 7))
    grown = world.number(
        Record(at=AT, actor=ANNA, group_info=GroupChanged(group=7, public_id="g7", name="n", owner=ANNA, is_large=True))
    )
    for record in (small, grown):
        world.appliers.rosters.apply(record, Record.FromString(record.payload))
    # The other lanes come later, and still see the group as it was.
    for record in (small, grown):
        world.appliers.apply(record, Record.FromString(record.payload))
    world.apply(Record(at=AT, actor=ANNA, group_info=GroupChanged(group=7, public_id="g7", name="n", owner=ANNA)))
    world.apply(say(ANNA, 7))
    assert world.waiting(BERT) == [small.message_id]
    assert world.stores.unread.get(BERT, InGroup(7)) == 1


# Nonsense.


@pytest.mark.parametrize(
    "record",
    [
        Record(at=AT, actor=1, chat=b"\x08\x01"),
        say(ANNA, 404),
        member(404, ANNA, MemberChanged.JOIN),
        Record(at=AT, user=user(5).user.__class__(user=5)),
        group_made(9, 0),
        ledger(["web"], acked=rows((ANNA, 1, 1, 1))),
        Record(at=AT, inbox=opened(5, "").inbox),
    ],
)
def test_a_record_that_makes_no_sense_is_an_error_and_the_next_one_is_applied(record: Record) -> None:
    world = people()
    with pytest.raises(ValueError, match=r"\w+"):
        world.apply(record)
    said = world.apply(send(ANNA, BERT))
    assert world.waiting(BERT)[-1] == said


def test_what_has_become_pointless_does_nothing() -> None:
    world = trio(member(7, BERT, MemberChanged.QUIT))
    world.apply(member(7, BERT, MemberChanged.MUTE, actor=ANNA, is_told=False))
    world.apply(member(7, BERT, MemberChanged.QUIT, is_told=False))
    world.apply(recall(ANNA, 12345, to=BERT))
    assert world.stores.groups.member(7, BERT) is None


def test_limits_are_read_from_the_settings() -> None:
    limits = Limits.from_settings(InboxSettings(offline_max=5, offline_max_by_platform="desktop: 80, mobile:-1,"))
    assert limits == Limits(5, {"desktop": 80, "mobile": -1})
    with pytest.raises(ConfigError, match="offline_max_by_platform"):
        Limits.from_settings(InboxSettings(offline_max_by_platform="desktop"))
