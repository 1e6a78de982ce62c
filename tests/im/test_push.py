"""push: gomsg's request, one record per body."""

from base64 import b64encode

import pytest

from pixiu.model.errors import RequestError, TooLarge
from tests.im.world import World, messages


@pytest.mark.feature("P03", "P07")
def test_each_body_is_one_record_with_one_number_for_all_users() -> None:
    world = World()
    for name in ("alice", "bob"):
        world.actor(name)
    before = len(world.records())
    answer = world.admin("push", uids=["alice", "bob", "alice"], msg_bodies=["one", {"text": "two"}], msg_options=7)
    assert len(world.records()) == before + 2
    for name in ("alice", "bob"):
        assert [each["message_id"] for each in world.inbox(name)] == answer["message_ids"]
        assert [each["text"] for each in world.inbox(name)] == ["one", "two"]
    assert answer["at"] == world.clock.now_ms()


def test_no_bodies_or_no_users_is_success_without_work() -> None:
    world = World()
    before = len(world.log.records)
    assert world.admin("push", uids=["alice"], msg_bodies=[]) == {"message_ids": []}
    assert world.admin("push") == {"message_ids": []}
    assert not [each for each in world.records()[before:] if each.WhichOneof("what") == "push"]


@pytest.mark.feature("P03")
def test_platforms_are_chosen_for_all_or_user_by_user() -> None:
    world = World()
    for name in ("alice", "bob", "carol"):
        for platform in ("mobile", "desktop"):
            world.actor(name, platform)
    world.admin(
        "push", uids=["alice", "bob", "carol"], msg_bodies=["x"], platform_config={"platforms": ["mobile"]},
        exclusive_platform_config={"bob": {"without_platforms": ["mobile"]}, "carol": {}},
    )  # fmt: skip
    waiting = {
        (name, platform): len(world.inbox(name, platform))
        for name in ("alice", "bob", "carol")
        for platform in ("mobile", "desktop")
    }
    assert waiting == {
        ("alice", "mobile"): 1, ("alice", "desktop"): 0, ("bob", "mobile"): 0, ("bob", "desktop"): 1,
        ("carol", "mobile"): 1, ("carol", "desktop"): 1,
    }  # fmt: skip


@pytest.mark.feature("P22")
def test_options_are_chosen_for_all_or_user_by_user_and_leave_platforms_alone() -> None:
    world = World()
    users = {name: world.actor(name, "mobile").user for name in ("alice", "bob")}
    for name in users:
        world.actor(name, "desktop")
    world.admin(
        "push", uids=["alice", "bob"], msg_bodies=["x"], msg_options=3, exclusive_msg_options={"bob": 0},
        platform_config={"platforms": ["mobile"]},
    )  # fmt: skip
    options = {
        name: world.stores.inboxes.after(user, "mobile", 0, 9).entries[0].options for name, user in users.items()
    }
    assert options == {"alice": 3, "bob": 0}
    assert world.inbox("bob", "desktop") == []


def test_a_repeated_push_is_pushed_once() -> None:
    world = World()
    world.actor("alice")
    push = {"uids": ["alice"], "msg_bodies": ["one", "two", "three"], "send_id": "p1"}
    first = world.admin("push", **push)
    world.pass_time(10)
    assert world.admin("push", **push) == first
    assert len(world.inbox("alice")) == 3


def test_a_body_may_be_an_any() -> None:
    world = World()
    world.actor("alice")
    value = b64encode(b"\x01\x02").decode()
    world.admin("push", uids=["alice"], msg_bodies=[{"@type": "type.googleapis.com/x.Y", "value": value}])
    shown = messages(world.do("alice", "receive"))[0]
    assert shown["body"] == value
    assert shown["fields"] == {"@type": "type.googleapis.com/x.Y"}
    assert shown["kind"] == "plugin"


def test_overrides_for_users_outside_uids_are_ignored() -> None:
    world = World()
    world.number("bob")
    world.admin(
        "push", uids=["alice"], msg_bodies=["x"], exclusive_msg_options={"bob": 1, "no such user": 1},
        exclusive_platform_config={"bob": {"platforms": ["ios"]}},
    )  # fmt: skip
    assert [each["text"] for each in world.inbox("alice")] == ["x"]
    assert world.inbox("bob") == []


def test_push_parameters_beyond_their_limits_are_refused() -> None:
    world = World()
    with pytest.raises(RequestError, match="msg_options must be 0 to 7"):
        world.admin("push", uids=["alice"], msg_bodies=["x"], msg_options=8)
    with pytest.raises(TooLarge, match="msg_bodies may hold 100"):
        world.admin("push", uids=["alice"], msg_bodies=["x"] * 101)
