"""Contacts and blocks."""

import pytest

from pixiu.model.errors import NotAllowed, RequestError, TooLarge
from tests.im.world import World, messages, unlimited


@pytest.mark.feature("R02")
def test_contacts_hold_users_and_groups_in_the_order_of_their_adding_with_what_is_unread() -> None:
    world = World()
    times = []
    for action, params in (
        ("contact", {"user": "carol"}),
        ("create_group", {"group": "tea", "name": "Tea"}),
        ("contact", {"user": "bob"}),
    ):
        world.do("alice", action, params)
        times.append(world.clock.now_ms())
        world.pass_time(5)
    world.do("bob", "send", to="alice", text="one")
    world.do("bob", "send", to="alice", text="two")
    rows = world.do("alice", "contacts")["contacts"]
    assert isinstance(rows, list)
    assert [row.get("user") or row.get("group") for row in rows] == ["carol", "tea", "bob"]
    assert [row["at"] for row in rows] == times
    assert [row["unread"] for row in rows] == [0, 0, 2]


def test_unread_messages_of_those_on_no_list_are_told_beside_it() -> None:
    world = World()
    world.do("bob", "send", to="alice", text="hello, stranger")
    assert world.do("alice", "contacts") == {
        "contacts": [], "others": [{"user": "bob", "unread": 1}], "has_more": False, "cursor": None
    }  # fmt: skip


@pytest.mark.feature("R02")
def test_the_peer_is_told_of_a_contact_and_adding_again_changes_nothing() -> None:
    world = World()
    world.actor("bob")
    world.do("alice", "contact", user="bob")
    before = len(world.records())
    answer = world.do("alice", "contact", user="bob")
    assert len(world.records()) == before
    assert [row["user"] for row in answer["contacts"]] == ["bob"]  # type: ignore[attr-defined]
    notices = world.inbox("bob")
    assert [each["fields"] for each in notices] == [{"action": "contact", "user": "alice"}]
    assert notices[0]["kind"] == "system"
    assert notices[0]["to"] == "bob"
    assert world.do("bob", "contacts")["contacts"] == []


@pytest.mark.feature("R19")
def test_unlink_removes_the_contact_and_its_unread_and_the_peer_is_told() -> None:
    world = World()
    world.actor("bob")
    world.do("alice", "contact", user="bob")
    world.do("bob", "send", to="alice", text="hi")
    assert world.unread("alice") == {"bob": 1}
    assert world.do("alice", "unlink", user="bob") == {"contacts": []}
    actions = [each["fields"]["action"] for each in world.inbox("bob") if "fields" in each]  # type: ignore[index]
    assert actions == ["contact", "unlink"]
    before = len(world.records())
    world.do("alice", "unlink", user="bob")
    assert len(world.records()) == before


@pytest.mark.feature("C38")
def test_who_is_blocked_can_neither_send_nor_invite_until_unblocked() -> None:
    world = World()
    world.do("bob", "block", user="alice")
    world.do("alice", "create_group", group="tea")
    for action, params in (
        ("send", {"to": "bob", "text": "hi"}),
        ("manage", {"group": "tea", "user": "bob", "op": "invite"}),
        ("create_group", {"members": ["bob"]}),
        ("schedule", {"to": "bob", "text": "later", "at": world.clock.now_ms() + 1000}),
    ):
        with pytest.raises(NotAllowed, match="'bob' does not take messages from you"):
            world.do("alice", action, params)
    world.do("bob", "send", to="alice", text="I may")
    world.do("bob", "unblock", user="alice")
    assert world.do("alice", "send", to="bob", text="hi again")["message_id"]


def test_who_blocks_hears_nothing_of_being_listed() -> None:
    world = World()
    world.do("bob", "block", user="alice")
    world.do("alice", "contact", user="bob")
    assert world.inbox("bob") == []
    assert world.unread("alice") == {"bob": 0}


def test_blocking_again_changes_nothing() -> None:
    world = World()
    world.do("bob", "block", user="alice")
    before = len(world.records())
    world.do("bob", "block", user="alice")
    assert len(world.records()) == before


def test_oneself_is_no_contact() -> None:
    world = World()
    for action in ("contact", "unlink", "block", "unblock"):
        with pytest.raises(RequestError, match="yourself"):
            world.do("alice", action, user="alice")


def test_the_list_has_a_bound() -> None:
    world = World(unlimited(contacts_max=2))
    world.do("alice", "contact", user="bob")
    world.do("alice", "contact", user="carol")
    with pytest.raises(TooLarge, match="2 contacts"):
        world.do("alice", "contact", user="dave")
    world.do("alice", "contact", user="bob")


def test_so_have_blocks() -> None:
    world = World(unlimited(contacts_max=2))
    for name in ("bob", "carol", "bob"):
        world.do("alice", "block", user=name)
    with pytest.raises(TooLarge, match="block 2 others"):
        world.do("alice", "block", user="dave")
    world.do("alice", "unblock", user="bob")
    world.do("alice", "block", user="dave")


@pytest.mark.feature("R20")
def test_a_refused_action_leaves_nothing_behind() -> None:
    world = World(unlimited(contacts_max=1))
    world.do("alice", "contact", user="bob")
    world.actor("carol")
    before = len(world.log.records)
    with pytest.raises(TooLarge):
        world.do("alice", "contact", user="carol")
    assert len(world.log.records) == before
    assert messages(world.ask(world.actor("carol"), "receive", {})) == []
