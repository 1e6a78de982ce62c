"""Groups: who is in, who decides, and when a group becomes large."""

import pytest

from pixiu.model.errors import Conflict, NotAllowed, NotFound, PixiuError, RequestError, TooLarge, Unavailable
from tests.im.world import World, messages, texts, unlimited


def members(world: World, name: str, group: str = "tea") -> dict[object, object]:
    """Members and their roles, as one of them sees them."""
    rows = world.do(name, "group", group=group)["members"]
    assert isinstance(rows, list)
    return {row["user"]: row["role"] for row in rows}


def actions(world: World, name: str) -> list[object]:
    """The notices in an inbox: what was done to whom."""
    fields = [each.get("fields") for each in world.inbox(name)]
    return [(each["action"], each["user"]) for each in fields if isinstance(each, dict) and "user" in each]


@pytest.mark.feature("R05")
def test_the_creator_owns_the_group_and_notices_of_joins_and_quits_reach_all_members_once() -> None:
    world = World()
    for name in ("bob", "carol"):
        world.actor(name)
    group = world.do("alice", "create_group", group="tea", name="Tea", avatar="cup", members=["bob"], fields={"a": "b"})
    assert {name: group[name] for name in ("group", "name", "avatar", "owner", "member_count", "fields")} == {
        "group": "tea", "name": "Tea", "avatar": "cup", "owner": "alice", "member_count": 2, "fields": {"a": "b"},
    }  # fmt: skip
    joined = world.do("carol", "join", group="tea")
    assert joined["member_count"] == 3
    assert members(world, "bob") == {"alice": "owner", "bob": "member", "carol": "member"}
    world.do("bob", "quit", group="tea")
    assert actions(world, "alice") == [("create", "alice"), ("join", "carol"), ("quit", "bob")]
    assert actions(world, "bob") == [("create", "alice"), ("join", "carol"), ("quit", "bob")]
    assert actions(world, "carol") == [("join", "carol"), ("quit", "bob")]


@pytest.mark.feature("R05")
def test_after_quit_there_are_no_further_messages_and_contact_and_unread_are_gone() -> None:
    world = World()
    world.actor("bob")
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.do("alice", "gsend", group="tea", text="before")
    assert world.unread("bob") == {"tea": 1}
    left = world.do("bob", "quit", group="tea")
    assert left["group"] == "tea"
    assert "members" not in left
    count = len(world.inbox("bob"))
    world.do("alice", "gsend", group="tea", text="after")
    assert len(world.inbox("bob")) == count
    assert world.unread("bob") == {}


def test_a_notice_names_the_group_that_it_creates() -> None:
    world = World()
    world.actor("bob")
    world.do("alice", "create_group", group="tea", members=["bob"])
    notice = world.inbox("bob")[0]
    assert notice["group"] == "tea"
    assert notice["fields"] == {"action": "create", "group": "tea", "user": "alice"}


def test_a_group_without_an_id_gets_one_and_an_id_is_taken_once() -> None:
    world = World()
    made = world.do("alice", "create_group", name="nameless")["group"]
    assert made
    with pytest.raises(Conflict, match="already"):
        world.do("bob", "create_group", group=made)
    alice, bob = world.actor("alice"), world.actor("bob")
    both = [world.begin(each, "create_group", {"group": "tea"}) for each in (alice, bob)]
    world.settle()
    assert [type(each[0]) for each in both] == [dict, Conflict]


@pytest.mark.feature("R08")
def test_with_approval_membership_begins_when_an_admin_approves() -> None:
    world = World()
    world.actor("alice")
    world.do("alice", "create_group", group="tea", needs_approval=True)
    assert world.do("bob", "join", group="tea")["is_requested"] is True
    with pytest.raises(NotAllowed):
        world.do("bob", "gsend", group="tea", text="am I in?")
    before = len(world.records())
    assert world.do("bob", "join", group="tea")["is_requested"] is True
    assert len(world.records()) == before
    assert [row["user"] for row in world.do("alice", "group", group="tea")["requests"]] == ["bob"]  # type: ignore[attr-defined]
    asked = world.inbox("alice")[-1]
    assert asked["fields"] == {"action": "request", "group": "tea", "user": "bob"}
    assert asked["to"] == "alice"
    with pytest.raises(NotAllowed):
        world.do("bob", "manage", group="tea", user="bob", op="approve")
    assert world.do("alice", "manage", group="tea", user="bob", op="approve") == {}
    assert members(world, "bob") == {"alice": "owner", "bob": "member"}
    assert world.do("alice", "group", group="tea")["requests"] == []


@pytest.mark.feature("R08")
def test_a_request_can_be_refused_or_taken_back() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", needs_approval=True)
    world.do("bob", "join", group="tea")
    world.do("alice", "manage", group="tea", user="bob", op="refuse")
    with pytest.raises(NotFound, match="has not asked"):
        world.do("alice", "manage", group="tea", user="bob", op="approve")
    world.do("carol", "join", group="tea")
    world.do("carol", "quit", group="tea")
    assert world.do("alice", "group", group="tea")["requests"] == []
    assert members(world, "alice") == {"alice": "owner"}


@pytest.mark.feature("R09")
def test_a_late_joiner_reads_back_to_the_first_message() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    for each in range(7):
        world.do("alice", "gsend", group="tea", text=str(each))
    world.do("bob", "join", group="tea")
    seen: list[object] = []
    before: dict[str, object] = {}
    for _ in range(10):
        page = world.do("bob", "history", before, group="tea", limit=3)
        seen += [text for text in texts(page) if text is not None]
        before = {"before": page["min"]}
        if not page["has_more"]:
            break
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]


def test_who_may_invite_depends_on_whether_joining_needs_approval() -> None:
    world = World()
    world.do("alice", "create_group", group="open", members=["bob"])
    world.do("alice", "create_group", group="closed", members=["bob"], needs_approval=True)
    world.do("bob", "manage", group="open", user="carol", op="invite")
    assert "carol" in members(world, "carol", "open")
    with pytest.raises(NotAllowed, match="only admins may invite"):
        world.do("bob", "manage", group="closed", user="carol", op="invite")
    world.do("alice", "manage", group="closed", user="carol", op="invite")
    assert "carol" in members(world, "carol", "closed")
    before = len(world.records())
    assert world.do("alice", "manage", group="closed", user="carol", op="invite") == {}
    assert len(world.records()) == before


def test_power_over_others_ends_at_ones_own_rank() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob", "carol", "dave"])
    world.do("alice", "manage", group="tea", user="bob", op="admin")
    world.do("alice", "manage", group="tea", user="carol", op="admin")
    refused = (
        ("dave", "bob", "remove"), ("dave", "carol", "mute"), ("bob", "carol", "remove"), ("bob", "alice", "mute"),
        ("bob", "dave", "admin"), ("bob", "dave", "transfer"), ("bob", "carol", "member"), ("dave", "eve", "approve"),
    )  # fmt: skip
    for actor, user, op in refused:
        with pytest.raises(NotAllowed):
            world.do(actor, "manage", group="tea", user=user, op=op)
    world.do("bob", "manage", group="tea", user="dave", op="remove")
    world.do("alice", "manage", group="tea", user="carol", op="member")
    world.do("bob", "manage", group="tea", user="carol", op="remove")
    assert members(world, "alice") == {"alice": "owner", "bob": "admin"}


def test_managing_oneself_or_someone_outside_is_refused() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    for op in ("remove", "mute", "unmute", "admin", "member", "transfer"):
        with pytest.raises(RequestError, match="yourself"):
            world.do("alice", "manage", group="tea", user="alice", op=op)
        with pytest.raises(NotFound, match="'bob' is not a member"):
            world.do("alice", "manage", group="tea", user="bob", op=op)


def test_an_owner_transfers_before_leaving_unless_nobody_else_is_there() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    with pytest.raises(NotAllowed, match="transfer it"):
        world.do("alice", "quit", group="tea")
    world.do("alice", "manage", group="tea", user="bob", op="transfer")
    assert members(world, "bob") == {"alice": "admin", "bob": "owner"}
    world.do("alice", "quit", group="tea")
    world.do("bob", "quit", group="tea")
    assert world.do("bob", "group", group="tea")["member_count"] == 0


@pytest.mark.parametrize("way", ["quit and join", "quit and be invited", "be removed and join"])
def test_who_was_muted_is_muted_also_after_coming_back(way: str) -> None:
    world = World()
    for name in ("bob", "carol"):
        world.actor(name)
    world.do("alice", "create_group", group="tea", members=["bob", "carol"])
    world.do("alice", "manage", group="tea", user="bob", op="mute")
    if "removed" in way:
        world.do("alice", "manage", group="tea", user="bob", op="remove")
    else:
        world.do("bob", "quit", group="tea")
    world.stores.groups.forget_left(10**18)
    if "invited" in way:
        world.do("carol", "manage", group="tea", user="bob", op="invite")
    else:
        world.do("bob", "join", group="tea")
    with pytest.raises(NotAllowed, match="muted"):
        world.do("bob", "gsend", group="tea", text="here I am again")
    world.do("alice", "manage", group="tea", user="bob", op="unmute")
    world.do("bob", "gsend", group="tea", text="at last")
    world.do("bob", "quit", group="tea")
    world.do("bob", "join", group="tea")
    world.do("bob", "gsend", group="tea", text="and still")


def test_what_is_so_already_is_not_written_again() -> None:
    world = World()
    world.actor("bob")
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.do("alice", "manage", group="tea", user="bob", op="mute")
    before = len(world.records())
    world.do("alice", "manage", group="tea", user="bob", op="mute")
    world.do("alice", "manage", group="tea", user="bob", op="member")
    world.do("bob", "join", group="tea")
    assert len(world.records()) == before


def test_the_join_that_outgrows_inboxes_makes_the_group_large_right_behind() -> None:
    world = World(unlimited(group_inbox_limit=2))
    for name in ("bob", "carol", "dave"):
        world.actor(name)
    world.do("alice", "create_group", group="tea", members=["bob"])
    assert world.do("alice", "group", group="tea")["is_large"] is False
    world.do("carol", "join", group="tea")
    joined, grown = world.records()[-2:]
    assert joined.WhichOneof("what") == "member"
    assert grown.group_info.is_large
    assert grown.group_info.name == "tea"
    assert world.do("alice", "group", group="tea")["is_large"] is True
    count = len(world.inbox("bob"))
    world.do("alice", "gsend", group="tea", text="one")
    assert len(world.inbox("bob")) == count
    # Large for good, and counted by the group's own count.
    assert world.do("bob", "read", group="tea") == {"unread": 0}
    world.do("alice", "gsend", group="tea", text="two")
    assert world.unread("bob") == {"tea": 1}
    before = len(world.records())
    world.do("dave", "join", group="tea")
    assert len(world.records()) == before + 1


def test_a_group_may_be_large_from_its_first_day() -> None:
    world = World(unlimited(group_inbox_limit=2))
    group = world.do("alice", "create_group", group="tea", members=["bob", "carol"])
    assert group["is_large"] is True


def test_a_group_has_room_for_so_many_members() -> None:
    world = World(unlimited(group_members_max=3))
    with pytest.raises(TooLarge, match="members may hold 2, not 3"):
        world.do("alice", "create_group", group="tea", members=["b", "c", "d"])
    world.do("alice", "create_group", group="tea", members=["b", "c"])
    with pytest.raises(TooLarge, match="has 3 members; it may have 3"):
        world.do("d", "join", group="tea")
    with pytest.raises(TooLarge):
        world.do("alice", "manage", group="tea", user="d", op="invite")


@pytest.mark.parametrize("way", ["join", "invite"])
def test_joins_at_the_same_moment_see_each_other(way: str) -> None:
    world = World(unlimited(group_members_max=4))
    people = [world.actor(f"u{number}") for number in range(10)]
    owner = world.actor("alice")
    world.ask(owner, "create_group", {"group": "tea"})
    if way == "join":
        answers = [world.begin(person, "join", {"group": "tea"}) for person in people]
    else:
        invitations = [{"group": "tea", "user": f"u{number}", "op": "invite"} for number in range(10)]
        answers = [world.begin(owner, "manage", each) for each in invitations]
    world.settle()
    refused = [each[0] for each in answers if isinstance(each[0], PixiuError)]
    assert len(refused) == 7 and all(isinstance(each, TooLarge) for each in refused)
    assert len(members(world, "alice")) == 4
    told = [str(each) for each in actions(world, "alice")]
    assert sum("join" in each or "invite" in each for each in told) == 3, "nor is it told"
    world.do("u0", "quit", group="tea")
    world.do("u9", "join", group="tea")


def test_joins_at_the_same_moment_make_a_group_large_in_time() -> None:
    world = World(unlimited(group_inbox_limit=3))
    people = [world.actor(f"u{number}") for number in range(6)]
    world.do("alice", "create_group", group="tea")
    for person in people:
        world.begin(person, "join", {"group": "tea"})
    world.settle()
    assert world.do("alice", "group", group="tea")["is_large"] is True
    large_since = [record.group_info.is_large for record in world.records() if record.HasField("group_info")].index(
        True
    )
    joins = [record for record in world.records() if record.HasField("member")]
    assert large_since and len(joins) == 6
    order = [record.WhichOneof("what") for record in world.records()]
    assert order.index("group_info", order.index("group_info") + 1) == order.index("member") + 3, "right behind"


def test_a_join_that_fails_leaves_its_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(unlimited(group_members_max=2))
    bob, carol = world.actor("bob"), world.actor("carol")
    world.do("alice", "create_group", group="tea")
    with monkeypatch.context() as patched:
        patched.setattr(world.proxy.appends, "append", lambda *args: args[-1](Unavailable("the log is away")))
        with pytest.raises(Unavailable):
            world.ask(bob, "join", {"group": "tea"})
    world.ask(carol, "join", {"group": "tea"})
    assert set(members(world, "alice")) == {"alice", "carol"}


def test_who_is_outside_sees_the_profile_and_not_the_members() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", name="Tea", members=["bob"])
    seen = world.do("eve", "group", group="tea")
    assert seen["name"] == "Tea"
    assert seen["member_count"] == 2
    assert "members" not in seen
    assert "requests" not in world.do("bob", "group", group="tea")


def test_notices_are_part_of_what_was_said_and_not_counted_as_unread() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.do("carol", "join", group="tea")
    shown = messages(world.do("bob", "history", group="tea"))
    assert [each["fields"]["action"] for each in shown] == ["join", "create"]  # type: ignore[index]
    assert world.unread("bob") == {"tea": 0}
