"""Rates count what a request costs, and no request costs more than its bound."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from pixiu.config.messaging import MessagingSettings
from pixiu.im import VERBS
from pixiu.im.costs import cost_of
from pixiu.machines.session import BadFrame, codec_of
from pixiu.model.errors import RateLimited, TooLarge
from pixiu.model.frames_pb2 import ClientFrame
from tests.im.world import World, unlimited
from tests.sdk.world import World as ServedWorld
from tests.sdk.world import world_at


def raw_client(world: ServedWorld, user: str) -> websockets.connect:
    return websockets.connect(f"{world.url}/ws?token={world.token(user)}", close_timeout=0.5)


@pytest.mark.parametrize(
    ("action", "params", "cost"),
    [
        ("send", {"to": "bob", "text": "hi"}, 1),
        ("send", {"to": "bob", "text": "x" * 65_536}, 3),
        ("create_group", {"group": "g", "members": ["bob"] * 1_000}, 21),
        ("receipt", {"message_ids": ["1"] * 1_000, "kind": "read"}, 21),
        ("read", {"with": "bob"}, 1),
        ("history", {"with": "bob"}, 3),
        ("history", {"with": "bob", "limit": "10"}, 1),
        ("history", {"with": "bob", "limit": 10**9}, 21),
        ("history", {"with": "bob", "limit": "none"}, 3),
        ("sync", {"with": dict.fromkeys(map(str, range(100)), "0"), "limit": 100}, 15),
        ("search", {"q": "tea"}, 7),
        ("contacts", {}, 3),
        ("group", {"group": "g", "offset": 100_000}, 203),
        ("user", {}, 1),
    ],
)
def test_cost_of_a_request_follows_from_its_size(action: str, params: dict[str, object], cost: int) -> None:
    assert action in VERBS
    assert cost_of(action, params) == cost


def test_one_large_request_uses_up_as_much_of_the_rate_as_many_small_ones() -> None:
    world = World(MessagingSettings(sends_per_second=10, send_burst=20))
    names = [f"friend {each}" for each in range(500)]
    alice = world.actor("alice")
    for name in names:
        world.actor(name)
    world.ask(alice, "create_group", {"group": "g", "members": names})  # counts as 11
    with pytest.raises(RateLimited, match="at most 10 actions a second, and this one counts as 11"):
        world.ask(alice, "create_group", {"group": "h", "members": names})
    for each in range(9):
        world.ask(alice, "send", {"to": "friend 1", "text": str(each)})
    with pytest.raises(RateLimited):
        world.ask(alice, "send", {"to": "friend 1", "text": "x"})


def test_request_above_the_burst_needs_a_full_bucket_and_leaves_a_debt() -> None:
    world = World(MessagingSettings(sends_per_second=10, send_burst=5))
    names = [f"friend {each}" for each in range(500)]
    alice = world.actor("alice")
    for name in names:
        world.actor(name)
    world.ask(alice, "create_group", {"group": "g", "members": names})  # 11 tokens of 5
    send = {"to": "friend 1", "text": "x"}
    with pytest.raises(RateLimited) as caught:
        world.ask(alice, "send", send)
    assert caught.value.retry_after_ms == 700  # 6 owed, and 1 for the message
    world.pass_time(700)
    world.ask(alice, "send", send)
    with pytest.raises(RateLimited):
        world.ask(alice, "create_group", {"group": "h", "members": names})


def test_reads_have_a_rate_of_their_own_that_counts_pages() -> None:
    world = World(MessagingSettings(sends_per_second=1, send_burst=3))
    alice = world.actor("alice")
    for _ in range(10):
        world.ask(alice, "contacts", {})  # 3 each, of 30
    with pytest.raises(RateLimited, match="at most 4 actions a second"):
        world.ask(alice, "contacts", {})
    world.ask(alice, "send", {"to": "alice", "text": "x"})
    world.ask(alice._replace(is_admin=True), "contacts", {})


def test_create_group_names_a_bounded_number_of_members() -> None:
    world = World(unlimited(group_create_max=10))
    with pytest.raises(TooLarge, match="create_group may name 10 members, not 11; others join or are invited"):
        world.do("alice", "create_group", group="g", members=[f"f{each}" for each in range(11)])
    assert (
        world.do("alice", "create_group", group="g", members=[f"f{each}" for each in range(10)])["member_count"] == 11
    )


async def test_large_requests_of_one_client_are_refused_before_they_are_performed(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"requests_per_user": 10, "request_burst_per_user": 50}
    async with world_at(tmp_path, **limits) as world, world.connect("alice") as alice:
        users = [f"friend {each}" for each in range(1_000)]
        await alice.act("presence", users=users)  # 21 of 50
        await alice.act("presence", users=users)
        with pytest.raises(RateLimited, match="at most 10 requests a second"):
            await alice.act("presence", users=users, timeout_seconds=0.5)


async def test_group_members_are_paged_by_cursor(tmp_path: Path) -> None:
    async with world_at(tmp_path, messaging={"page_bytes_max": 4096}) as world, world.connect("alice") as alice:
        names = {f"member-{each}-{'x' * 40}" for each in range(120)}
        joined = await alice.act("create_group", group="g", members=sorted(names))
        assert len(joined["members"]) <= 100 and joined["has_more"] and joined["member_count"] == 121
        seen: list[str] = []
        page = await alice.act("group", group="g")
        while True:
            assert len(json.dumps(page["members"])) <= 4096 * 1.2
            seen += [each["user"] for each in page["members"]]
            if not page["has_more"]:
                break
            page = await alice.act("group", group="g", cursor=page["cursor"])
        assert len(seen) == 121 and set(seen) == names | {"alice"}
        assert page["cursor"] is None
        later = await alice.act("group", group="g", offset=100, limit=10)
        assert [each["user"] for each in later["members"]] == seen[100:110]


async def test_client_that_sends_large_frames_is_read_no_faster_than_its_rate(tmp_path: Path) -> None:
    """Decoding comes before every other check, so its cost is charged by the size of the frame."""
    limits: dict[str, Any] = {"requests_per_user": 10, "request_burst_per_user": 10}
    async with world_at(tmp_path, **limits) as world, raw_client(world, "eve") as eve:
        await eve.recv()
        frame = json.dumps({"id": 1, "action": "x" * 100_000, "params": {}})
        for _ in range(6):
            await asyncio.wait_for(eve.send(frame), 5)
        await asyncio.wait_for(eve.recv(), 5)
        taken = world.gateway.counters.requests + sum(world.gateway.counters.refused_requests.values())
        assert taken < 4, "each frame counts as 24 requests: the second waits for more than a second"
        async with world.connect("alice") as alice:  # while eve is held back, others are served
            await alice.send("bob", "hi")


def test_binary_frame_holds_a_bounded_number_of_values() -> None:
    frame = ClientFrame()
    frame.request.id, frame.request.action = 1, "receipt"
    values = frame.request.params["message_ids"].list.values
    for _ in range(20_000):
        values.add().number = 1
    with pytest.raises(BadFrame, match="a frame may hold 16384 values"):
        codec_of("proto").decode(frame.SerializeToString())
