"""A record to a group costs its sender as much as the inbox entries that it creates."""

from pathlib import Path

import pytest

from pixiu.config.messaging import MessagingSettings
from pixiu.im.draft import Actor
from pixiu.model.errors import RateLimited
from tests.im.world import World
from tests.sdk.world import world_at

HOUR_MS = 3_600_000


def world_with_group(members: int, **settings: int) -> tuple[World, Actor]:
    """The default rate (50 a second, 200 at once), and a group ``g`` that alice owns; her bucket is full."""
    world = World(MessagingSettings(**settings))  # type: ignore[arg-type]
    alice = world.actor("alice")
    world.ask(alice, "create_group", {"group": "g", "members": [f"m{each}" for each in range(members - 1)]})
    world.pass_time(HOUR_MS)
    return world, alice


def accepted(world: World, actor: Actor, action: str, params: dict[str, object]) -> int:
    """How many requests are accepted at once, before the first refusal."""
    for count in range(1_000):
        try:
            world.ask(actor, action, params)
        except RateLimited:
            return count
    raise AssertionError("no request was refused")


@pytest.mark.parametrize(("members", "count"), [(2, 200), (49, 200), (50, 100), (450, 20), (500, 18)])
def test_gsend_costs_one_more_for_every_50_members(members: int, count: int) -> None:
    world, alice = world_with_group(members)
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == count


def test_member_of_a_group_of_500_sends_several_messages_per_second() -> None:
    world, alice = world_with_group(500)
    accepted(world, alice, "gsend", {"group": "g", "text": "x"})
    count = 0
    for _ in range(100):
        world.pass_time(100)
        try:
            world.ask(alice, "gsend", {"group": "g", "text": "x"})
            count += 1
        except RateLimited:
            pass
    assert 40 <= count <= 46


def test_group_without_inboxes_has_no_fan_out_cost() -> None:
    world, alice = world_with_group(200, group_inbox_limit=100)
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 200


def test_administrators_are_not_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    for _ in range(30):
        world.ask(alice._replace(is_admin=True), "gsend", {"group": "g", "text": "x"})


def test_refused_gsend_appends_nothing_and_succeeds_after_retry_after_ms() -> None:
    world, alice = world_with_group(450)
    accepted(world, alice, "gsend", {"group": "g", "text": "x"})
    before = len(world.records())
    waited_ms: list[int] = []
    while len(waited_ms) < 3:
        try:
            world.ask(alice, "gsend", {"group": "g", "text": "y"})
            break
        except RateLimited as refusal:
            assert len(world.records()) == before
            assert refusal.retry_after_ms is not None
            waited_ms.append(refusal.retry_after_ms)
            world.pass_time(refusal.retry_after_ms)
    assert waited_ms == [20, 180], "for the first token, then for the other nine"


@pytest.mark.parametrize("is_applying", [True, False])
def test_retry_with_same_send_id_is_not_charged_for_fan_out(is_applying: bool) -> None:
    world, alice = world_with_group(450)
    world.is_applying = is_applying
    params = {"group": "g", "text": "x", "send_id": "s1"}
    answers = [world.begin(alice, "gsend", params) for _ in range(11)]
    world.settle()
    world.is_applying = True
    world.settle()
    assert len({str(each[0]) for each in answers}) == 1, "every retry gets the first answer"
    # The first cost 10, each retry 1: 180 of 200 are left.
    assert accepted(world, alice, "gsend", {"group": "g", "text": "y"}) == 18


def test_scheduled_gsend_is_charged_for_fan_out_when_it_is_scheduled() -> None:
    world, alice = world_with_group(450)
    due = world.clock.now_ms() + HOUR_MS
    assert accepted(world, alice, "schedule", {"group": "g", "text": "x", "at": due}) == 20
    world.pass_time(HOUR_MS // 2)
    assert accepted(world, alice, "schedule", {"to": "m1", "text": "x", "at": due}) == 200


def test_notices_to_a_group_are_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    changes: list[tuple[str, dict[str, object]]] = [
        ("manage", {"group": "g", "user": "m1", "op": "mute"}),
        ("manage", {"group": "g", "user": "m1", "op": "admin"}),
        ("manage", {"group": "g", "op": "history", "history": "since_join"}),
        ("manage", {"group": "g", "user": "m2", "op": "remove"}),
        ("manage", {"group": "g", "user": "m2", "op": "invite"}),
    ]
    for action, params in changes:
        world.ask(alice, action, params)
    # 10, 10, 10, 10, and 9 for the group of 449: 151 of 200 are left.
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 15


def test_recall_in_a_group_is_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    said = world.ask(alice, "gsend", {"group": "g", "text": "x"})
    world.ask(alice, "recall", {"message_id": said["message_id"]})
    world.ask(alice, "recall", {"message_id": said["message_id"]})  # changes nothing, and costs 1
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 17


async def test_server_accepts_as_many_group_messages_as_their_fan_out_allows(tmp_path: Path) -> None:
    limits = {"sends_per_second": 1, "send_burst": 60}
    async with world_at(tmp_path, messaging=limits) as world, world.connect("eve") as eve:
        await eve.act("create_group", group="g", members=[f"m{each}" for each in range(149)])  # 3 of 60
        count = 0
        with pytest.raises(RateLimited, match="this one counts as 4"):
            for _ in range(57):
                await eve.act("gsend", group="g", text="x", timeout_seconds=0.5)
                count += 1
        assert 14 <= count <= 20, "57 tokens are left, 4 for each message, and 1 more each second"


def test_join_and_quit_are_charged_for_their_notices() -> None:
    world, _ = world_with_group(450)
    visitor = world.actor("visitor")
    for _ in range(5):
        world.ask(visitor, "join", {"group": "g"})  # 10
        world.ask(visitor, "quit", {"group": "g"})  # 10
    assert accepted(world, visitor, "send", {"to": "alice", "text": "x"}) == 100
