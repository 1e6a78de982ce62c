"""Erasing a user: what goes, what stays, and who may no longer do what."""

from typing import Any

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.im.draft import Actor
from pixiu.model.errors import Conflict, NotAllowed, NotFound, PixiuError, RequestError, Unauthenticated
from pixiu.model.names import OPERATOR
from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import Appliers, parse
from tests.im.world import World


@pytest.fixture
def world() -> World:
    """Alice, who is to go, in talks with Bob and in two groups, one of which she has left."""
    world = World()
    for name in ("alice", "bob", "carol"):
        world.number(name)
    world.do("alice", "create_user", user="alice", name="Alice A.", avatar="http://a", city="Bern")
    world.do("alice", "contact", user="bob")
    world.do("bob", "contact", user="alice")
    world.do("alice", "block", user="carol")
    for name in ("bob", "alice"):  # a phone that was handed on
        world.do(name, "register_push", provider="fcm", token="secret phone")
    world.do("carol", "register_push", provider="fcm", token="phone of another")
    world.do("alice", "create_group", group="tea", members=["bob", "carol"])
    world.do("bob", "create_group", group="old", members=["alice"])
    world.do("alice", "send", to="bob", text="secret one")
    world.do("bob", "send", to="alice", text="bob says")
    world.do("alice", "gsend", group="tea", text="secret two")
    world.do("carol", "gsend", group="tea", text="carol says")
    world.do("alice", "gsend", group="old", text="secret three")
    world.do("alice", "quit", group="old")
    world.do("alice", "send", to="alice", text="secret note")
    world.do("alice", "schedule", to="bob", text="secret later", at=world.clock.now_ms() + 60_000)
    return world


def texts(world: World, user: str, **where: str) -> list[object]:
    messages = world.do(user, "history", dict(where))["messages"]
    assert isinstance(messages, list)
    return [each.get("text", "recalled" if each.get("recalled") else each["kind"]) for each in reversed(messages)]


@pytest.mark.feature("R20")
def test_what_was_written_is_blank_everywhere_and_what_others_wrote_stays(world: World) -> None:
    answer = world.admin("erase_user", user="alice")
    assert answer["found"] == {
        "profile": 1, "contacts": 1, "blocks": 1, "push_tokens": 1, "groups": 1, "timeline_rows": 3,
        "private_messages": 1, "group_messages": 2, "inbox_entries": 11, "unread_counts": 2, "scheduled": 1,
    }  # fmt: skip
    assert set(answer["remains"].values()) == {0}  # type: ignore[attr-defined]
    assert texts(world, "bob", **{"with": "alice"}) == ["recalled", "bob says"]
    assert texts(world, "bob", group="tea") == ["system", "recalled", "carol says", "system", "system"]
    assert "secret three" not in texts(world, "bob", group="old")
    assert "secret" not in repr(vars(world.stores.bodies))
    world.pass_time(120_000)
    assert texts(world, "bob", **{"with": "alice"}) == ["recalled", "bob says"]


def test_a_group_gets_another_owner_and_goes_on(world: World) -> None:
    world.admin("erase_user", user="alice")
    shown = world.do("bob", "group", group="tea")
    assert [(each["user"], each["role"]) for each in shown["members"]] == [("bob", "owner"), ("carol", "member")]  # type: ignore[attr-defined]


def test_nobody_writes_to_an_erased_user_and_nobody_becomes_one(world: World) -> None:
    alice = world.actor("alice")
    world.admin("erase_user", user="alice")
    for action, params in (
        ("send", {"to": "alice", "text": "x"}),
        ("contact", {"user": "alice"}),
        ("user", {"user": "alice"}),
        ("manage", {"group": "tea", "user": "alice", "op": "invite"}),
    ):
        with pytest.raises(NotFound, match="was erased"):
            world.do("bob", action, dict(params))
    with pytest.raises(Conflict, match="not given again"):
        world.admin("create_user", user="alice")
    with pytest.raises(Unauthenticated, match="was erased"):
        world.ask(alice, "send", {"to": "bob", "text": "x"})
    found: list[int | PixiuError] = []
    world.proxy.find_user("alice", found.append, creates=True)
    world.settle()
    assert isinstance(found[0], NotFound)
    contacts: Any = world.do("bob", "contacts")["contacts"]
    assert [each.get("user", each.get("group")) for each in contacts] == ["tea", "old"]


def test_only_an_admin_erases_and_not_oneself(world: World) -> None:
    with pytest.raises(NotAllowed, match="for admins"):
        world.do("bob", "erase_user", user="alice")
    with pytest.raises(NotFound, match="no user"):
        world.admin("erase_user", user="nobody")
    with pytest.raises(PixiuError, match="not yourself"):
        world.ask(Actor(world.number("bob"), is_admin=True), "erase_user", {"user": "bob"})


def test_the_name_that_commands_act_by_stays(world: World) -> None:
    """Erased, it would shut audit, top and push of that node out for good."""
    world.admin("create_user", user=OPERATOR)
    with pytest.raises(RequestError, match="commands on the node's own machine"):
        world.admin("erase_user", user=OPERATOR)
    assert world.admin("user", user=OPERATOR)["user"] == OPERATOR


def test_while_it_is_on_its_way_nobody_comes_in_between(world: World) -> None:
    world.is_applying = False
    answers: list[object] = []
    world.proxy.act(Actor(0, is_admin=True), "erase_user", {"user": "alice"}, answers.append)
    world.settle()
    assert not answers
    with pytest.raises(NotFound, match="was erased"):
        world.do("bob", "send", to="alice", text="x")
    world.is_applying = True
    world.settle()
    assert answers


def test_doing_it_again_finds_nothing(world: World) -> None:
    world.admin("erase_user", user="alice")
    again = world.admin("erase_user", user="alice")
    assert set(again["found"].values()) == {0}  # type: ignore[attr-defined]


def test_a_replay_gives_the_same_also_from_a_log_that_was_redacted(world: World) -> None:
    from pixiu.model.redaction import redacted

    numbers = {name: world.number(name) for name in ("alice", "bob", "carol")}
    number = numbers["alice"]
    world.admin("erase_user", user="alice")
    world.do("bob", "send", to="carol", text="later")
    for is_redacted in (False, True):
        stores = MemoryStores()
        appliers = Appliers(stores)
        for record in world.log.records:
            if is_redacted:
                blank = redacted(record.topic, record.payload, record.message_id, {number})
                if blank is not None:
                    assert len(blank) == len(record.payload)
                    record = record._replace(payload=blank)
                if parse(record).push_token.user != numbers["bob"]:
                    assert b"secret" not in record.payload
                assert b"Alice A." not in record.payload
            if record.topic == MAIN:
                appliers.apply(record, parse(record))
        assert vars(stores.bodies) == vars(world.stores.bodies)
        assert vars(stores.timelines) == vars(world.stores.timelines)
        assert vars(stores.users) == vars(world.stores.users)
        assert vars(stores.unread) == vars(world.stores.unread)
        assert vars(stores.contacts) == vars(world.stores.contacts)
        for name in ("alice", "bob", "carol"):
            held = stores.push_tokens.of(numbers[name])
            assert held == world.stores.push_tokens.of(numbers[name])
            assert len(held) == (name == "carol")
