"""gomsg's push over HTTP (P23): its field names, its numbers, its rules."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import World, open_world

pytestmark = pytest.mark.feature("P23")


async def received(world: World, user: str, platform: str) -> list[dict[str, Any]]:
    """What waits for a user on a platform; the session that asks is gone again afterwards."""
    device = await world.node.connect(user, platform=platform)
    found: list[dict[str, Any]] = []
    try:
        while True:
            found.append(await device.receive(timeout_seconds=0.3))
    except TimeoutError:
        pass
    await device.leave()
    return found


async def test_a_push_reaches_every_platform_of_every_user(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for platform in ("ios", "web"):
            await (await world.node.connect("bob", platform=platform)).leave()
        body = {"uids": ["alice", "bob"], "msg_bodies": [{"text": "one"}, {"text": "two"}], "msg_options": 3}
        answer = await world.push(body)
        assert answer.status_code == 200
        ids = answer.json()["message_ids"]
        assert len(ids) == 2
        for user, platform in (("bob", "ios"), ("bob", "web"), ("alice", "ios")):
            waiting = await received(world, user, platform)
            # Each body has one number, which all users share.
            assert [(each["message_id"], each["text"]) for each in waiting] == [(ids[0], "one"), (ids[1], "two")]
        # It is no conversation: no history, nothing unread.
        assert (await world.get("/v1/history", "bob")).json()["messages"] == []


async def test_http_and_the_action_push_are_the_same_call(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        body = {"uids": ["bob"], "msg_bodies": [{"text": "x"}], "msg_options": 7, "send_id": "p1"}
        first = await world.push(body)
        again = await world.act("backend", "push", body, admin=True)
        assert again.json() == first.json()
        assert len(await received(world, "bob", "ios")) == 1


async def test_platforms_are_chosen_as_gomsg_chooses_them(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for user in ("alice", "bob"):
            for platform in ("ios", "web"):
                await (await world.node.connect(user, platform=platform)).leave()
        body: dict[str, object] = {
            "uids": ["alice", "bob"],
            "platform_config": {"platforms": ["ios"], "without_platforms": ["ios"]},
            "exclusive_platform_config": {"bob": {"without_platforms": ["ios"]}},
            "msg_bodies": [{"text": "x"}],
            "msg_options": 3,
        }
        assert (await world.push(body)).status_code == 200
        counts = {
            (user, platform): len(await received(world, user, platform))
            for user in ("alice", "bob")
            for platform in ("ios", "web")
        }
        assert counts == {("alice", "ios"): 1, ("alice", "web"): 0, ("bob", "ios"): 0, ("bob", "web"): 1}


async def test_options_are_numbers_and_a_user_may_have_their_own(tmp_path: Path) -> None:
    """Without NEED_OFFLINE (2) nothing waits for who is away."""
    async with open_world(tmp_path) as world:
        body = {
            "uids": ["alice", "bob"],
            "msg_bodies": ["x"],
            "msg_options": 1,
            "exclusive_msg_options": {"bob": 3},
        }
        assert (await world.push(body)).status_code == 200
        await asyncio.sleep(0.1)
        assert len(await received(world, "alice", "ios")) == 0
        assert len(await received(world, "bob", "ios")) == 1


async def test_an_any_is_passed_through(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        any_body = {"@type": "type.example/Hello", "value": "aGVsbG8="}
        body = {"uids": ["bob"], "msg_bodies": [any_body], "msg_options": 3, "reserve": {"@type": "x", "value": ""}}
        assert (await world.push(body)).status_code == 200
        (found,) = await received(world, "bob", "ios")
        assert (found["body"], found["fields"]["@type"]) == ("aGVsbG8=", "type.example/Hello")


async def test_names_as_protobuf_also_writes_them(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await (await world.node.connect("bob", platform="ios")).leave()
        body = {
            "uids": ["bob"],
            "msgBodies": ["x"],
            "msgOptions": "NEED_OFFLINE",
            "platformConfig": {"withoutPlatforms": ["web"]},
            "exclusiveMsgOptions": {"bob": "NEED_OFFLINE"},
        }
        assert (await world.push(body)).status_code == 200
        assert len(await received(world, "bob", "ios")) == 1


async def test_no_bodies_is_success_without_work(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        before = world.node.messaging.log.committed
        for body in (
            {},
            {"uids": ["bob"]},
            {"msg_bodies": ["x"]},
            {"uids": ["bob"], "msg_bodies": [], "msg_options": 0},
        ):
            answer = await world.push(body)
            assert (answer.status_code, answer.json()) == (200, {"message_ids": []})
        assert world.node.messaging.log.committed == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"uids": "bob"}, 400),
        ({"uids": ["bob"], "msg_bodies": [7]}, 400),
        ({"uids": ["bob"], "msg_bodies": ["x"], "msg_options": 8}, 400),
        ({"uids": ["bob"], "msg_bodies": ["x"], "msg_options": "ALL"}, 400),
        ({"uids": ["bob"], "msg_bodies": ["x"], "platform_config": {"platform": "ios"}}, 400),
        ({"uids": ["bob"], "msg_bodies": ["x"], "exclusive_msg_options": {"bob": 8}}, 400),
        ({"uids": ["zoe"], "msg_bodies": ["x"]}, 404),
        ({"uids": ["bob"], "msg_bodies": ["x" * 70_000]}, 413),
        ({"users": ["bob"]}, 400),
    ],
)
async def test_what_cannot_be_pushed_is_refused_whole(tmp_path: Path, body: dict[str, object], status: int) -> None:
    async with open_world(tmp_path) as world:
        before = world.node.messaging.log.committed
        assert (await world.push(body)).status_code == status
        assert world.node.messaging.log.committed == before


async def test_a_push_is_for_admins(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        answer = await world.push({"uids": ["bob"], "msg_bodies": ["x"]}, user="alice", admin=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
