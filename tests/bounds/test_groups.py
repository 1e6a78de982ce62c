"""What others can do to a user by groups is bounded: how many they add, and which requests ring."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pixiu.model.errors import TooLarge
from pixiu.sdk import Client
from tests.sdk.world import World, world_at


async def requests_told(world: World, admin: str) -> list[str]:
    """The users of whose requests an admin was notified, by the messages of the system in the admin's history."""
    async with world.connect(admin) as client:
        page: dict[str, Any] = await client.act("history", with_="0")
        fields = [each.get("fields", {}) for each in page["messages"]]
        return [each["user"] for each in fields if each.get("action") == "request"]


async def pending(client: Client, group: str) -> list[str]:
    return [each["user"] for each in (await client.act("group", group=group))["requests"]]


async def test_request_of_a_blocked_user_does_not_reach_the_admin_who_blocked(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        async with world.connect("alice") as alice, world.connect("bob") as bob, world.connect("eve") as eve:
            await alice.create_group("club", members=["bob"], needs_approval=True)
            await alice.manage("club", "bob", "admin")
            await alice.act("block", user="eve")
            answer = await eve.act("join", group="club")
            assert answer["is_requested"]  # as for everyone: a block is not revealed
            assert await pending(alice, "club") == []
            assert await pending(bob, "club") == ["eve"]
            await bob.manage("club", "eve", "approve")
            assert (await eve.act("group", group="club"))["member_count"] == 3
        assert await requests_told(world, "alice") == []
        assert await requests_told(world, "bob") == ["eve"]


async def test_repeated_requests_to_join_are_one_request_with_one_notice(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        async with world.connect("alice") as alice, world.connect("eve") as eve:
            await alice.create_group("club", needs_approval=True)
            await asyncio.gather(*(eve.act("join", group="club") for _ in range(10)))
            for _ in range(3):  # withdrawn and made again
                await eve.act("quit", group="club")
                await eve.act("join", group="club")
            assert await pending(alice, "club") == ["eve"]
            await alice.manage("club", "eve", "refuse")
            await eve.act("join", group="club")
            assert await pending(alice, "club") == ["eve"]
        assert await requests_told(world, "alice") == ["eve"]


async def test_groups_of_a_user_are_bounded_and_strangers_fill_half_of_them_at_most(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path, messaging={"groups_max": 6}) as world,
        world.connect("eve") as eve,
        world.connect("alice") as alice,
    ):
        await alice.user()
        made = await asyncio.gather(
            *(eve.create_group(f"trap-{each}", members=["alice"]) for each in range(6)), return_exceptions=True
        )
        assert sum(isinstance(each, TooLarge) for each in made) == 3
        with pytest.raises(TooLarge, match="'alice' is in 3 groups; others may add a user to 3"):
            await eve.create_group("trap", members=["alice"])
        await eve.create_group("open")
        with pytest.raises(TooLarge, match="'alice' is in 3 groups"):
            await eve.manage("open", "alice", "invite")
        await alice.join("open")
        await alice.create_group("mine-1")
        await alice.create_group("mine-2")
        with pytest.raises(TooLarge, match="you are in 6 groups; a user may be in 6: leave one first"):
            await alice.create_group("mine-3")
        await alice.quit("open")
        await alice.create_group("mine-3")
        with pytest.raises(TooLarge, match="leave one first"):
            await alice.join("open")
