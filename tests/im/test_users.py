"""Users: created once, changed by themselves, seen by all."""

import pytest

from pixiu.im.draft import Actor
from pixiu.model.errors import Conflict, NotFound, PixiuError, RequestError, Unauthenticated
from pixiu.model.names import OPERATOR
from tests.im.world import World, messages, unlimited


@pytest.mark.feature("R01")
def test_create_user_without_an_id_returns_a_new_one_and_extra_fields_round_trip() -> None:
    world = World()
    created = world.do(
        "alice", "create_user", name="Bob", avatar="https://a/b.png", city="Zürich", fields={"mood": "好"}
    )
    assert created["user"] != "alice"
    shown = world.do("alice", "user", user=created["user"])
    assert shown == created
    assert shown["name"] == "Bob"
    assert shown["avatar"] == "https://a/b.png"
    assert shown["fields"] == {"city": "Zürich", "mood": "好"}
    assert shown["at"] == world.clock.now_ms()
    again = world.do("alice", "create_user", name="Bob")
    assert again["user"] != created["user"]


@pytest.mark.feature("R01")
def test_a_decimal_below_2_to_the_48th_is_its_own_number_and_others_get_a_snowflake() -> None:
    world = World()
    assert world.number("42") == 42
    assert world.number(str(2**48 - 1)) == 2**48 - 1
    assert world.number(str(2**48)) > 2**48
    assert world.number("042") > 2**48
    assert world.number("alice") > 2**48


@pytest.mark.feature("C20")
def test_a_user_and_a_group_may_have_the_same_number_and_keep_their_messages_apart() -> None:
    world = World()
    world.do("7", "create_group", group="42", members=["8"])
    world.do("7", "send", to="42", text="to the user")
    world.do("7", "gsend", group="42", text="to the group")
    assert [each["text"] for each in messages(world.do("7", "history", {"with": "42"}))] == ["to the user"]
    assert "to the group" in [each.get("text") for each in messages(world.do("7", "history", group="42"))]
    assert world.unread("42") == {"7": 1}, "the user is no member of the group"


def test_the_own_profile_is_changed_field_by_field() -> None:
    world = World()
    world.do("alice", "create_user", user="alice", name="Alice", avatar="one", city="Bern", job="cook")
    changed = world.do("alice", "create_user", user="alice", avatar="two", job="pilot")
    assert changed["name"] == "Alice"
    assert changed["avatar"] == "two"
    assert changed["fields"] == {"city": "Bern", "job": "pilot"}


def test_nobody_changes_or_takes_over_someone_else() -> None:
    world = World()
    world.number("bob")
    with pytest.raises(Conflict, match="'bob' already"):
        world.do("alice", "create_user", user="bob", name="Mallory")
    changed = world.admin("create_user", user="bob", name="Robert")
    assert changed["name"] == "Robert"


def test_two_who_create_the_same_user_at_once_do_not_both_succeed() -> None:
    world = World()
    alice, carol = world.actor("alice"), world.actor("carol")
    first = world.begin(alice, "create_user", {"user": "new", "name": "by alice"})
    second = world.begin(carol, "create_user", {"user": "new", "name": "by carol"})
    world.settle()
    assert isinstance(first[0], dict)
    assert isinstance(second[0], Conflict)
    assert world.do("alice", "user", user="new")["name"] == "by alice"


def test_user_without_params_is_oneself() -> None:
    world = World()
    assert world.do("alice", "user")["user"] == "alice"


def test_without_dev_mode_unknown_users_are_not_created() -> None:
    world = World(creates_users=False)
    alice = world.actor("alice")
    with pytest.raises(NotFound, match="no user 'bob'"):
        world.ask(alice, "send", {"to": "bob", "text": "hi"})
    with pytest.raises(Unauthenticated, match="number 77"):
        world.ask(Actor(77), "contacts", {})
    assert world.stores.users.number_of("bob") is None


def test_in_dev_mode_whoever_is_named_exists_from_then_on() -> None:
    world = World(unlimited())
    assert world.do("alice", "send", to="bob", text="hi")["message_id"]
    assert world.ask(Actor(77, "web"), "contacts", {})["contacts"] == []
    assert world.do("77", "user")["user"] == "77"
    with pytest.raises(NotFound):
        world.do("alice", "user", user="nobody")
    assert world.stores.users.number_of("nobody") is None


def test_in_dev_mode_many_unknown_users_are_created_for_one_action() -> None:
    world = World()
    group = world.do("alice", "create_group", group="all", members=[f"user {each}" for each in range(30)])
    assert group["member_count"] == 31


def test_banned_user_can_do_nothing_until_the_ban_is_lifted() -> None:
    world = World()
    for name in ("alice", "bob"):
        world.number(name)
    world.do("alice", "create_user", user="alice", name="Alice", city="Bern")
    world.do("alice", "schedule", to="bob", text="later", at=world.clock.now_ms() + 60_000)
    alice = world.actor("alice")
    for _ in range(2):  # idempotent
        assert world.admin("ban_user", user="alice") == {"user": "alice", "is_banned": True}
    for action, params in (("send", {"to": "bob", "text": "hi"}), ("user", {}), ("contacts", {}), ("create_user", {})):
        with pytest.raises(Unauthenticated, match="'alice' is banned"):
            world.ask(alice, action, params)
    found: list[int | PixiuError] = []
    world.proxy.find_user("alice", found.append)
    assert isinstance(found[0], Unauthenticated), "no login either"
    world.do("bob", "send", to="alice", text="others may still write")
    assert world.do("bob", "user", user="alice")["name"] == "Alice"
    world.admin("create_user", user="alice", name="Alice B.")
    with pytest.raises(Unauthenticated):
        world.ask(alice, "contacts", {})
    world.pass_time(120_000)
    assert world.do("bob", "history", {"with": "alice"})["messages"][-1]["text"] == "others may still write"  # type: ignore[index]
    assert world.admin("unban_user", user="alice") == {"user": "alice", "is_banned": False}
    world.do("alice", "send", to="bob", text="back")
    assert world.do("alice", "user")["fields"] == {"city": "Bern"}


def test_admin_cannot_ban_themselves_or_the_operator() -> None:
    world = World()
    admin = Actor(world.number("root"), is_admin=True)
    for user in ("root", OPERATOR):
        with pytest.raises(RequestError):
            world.ask(admin, "ban_user", {"user": user})
