"""Users: created once, changed by themselves, seen by all."""

import pytest

from pixiu.im.draft import Actor
from pixiu.model.errors import Conflict, NotFound, Unauthenticated
from tests.im.world import World, unlimited


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
    assert world.ask(Actor(77, "web"), "contacts", {}) == {"contacts": [], "others": []}
    assert world.do("77", "user")["user"] == "77"
    with pytest.raises(NotFound):
        world.do("alice", "user", user="nobody")
    assert world.stores.users.number_of("nobody") is None


def test_in_dev_mode_many_unknown_users_are_created_for_one_action() -> None:
    world = World()
    group = world.do("alice", "create_group", group="all", members=[f"user {each}" for each in range(30)])
    assert group["member_count"] == 31
