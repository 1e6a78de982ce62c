"""``messaging.group_invites``: who becomes a member at once, and who is asked first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pixiu.model.errors import NotAllowed, TooLarge
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.sdk import Client
from tests.im.world import World as MemoryWorld
from tests.im.world import unlimited
from tests.sdk.world import world_at


@asynccontextmanager
async def people(path: Path, rule: str) -> AsyncIterator[tuple[Client, Client, Client]]:
    async with (
        world_at(path, messaging={"group_invites": rule}) as world,
        world.connect("alice") as alice,
        world.connect("bob") as bob,
        world.connect("carol") as carol,
    ):
        for each in (alice, bob, carol):
            await each.user()
        yield alice, bob, carol


async def members(client: Client, group: str) -> list[str]:
    return sorted(each["user"] for each in (await client.act("group", group=group))["members"])


async def invitations(client: Client) -> list[str]:
    return [each.place.name for each in (await client.contacts()).invitations]


async def test_by_default_anyone_adds_others_to_groups(tmp_path: Path) -> None:
    async with people(tmp_path, "anyone") as (alice, bob, _):
        await alice.create_group("club", members=["bob"])
        assert await members(bob, "club") == ["alice", "bob"] and await invitations(bob) == []


async def test_with_consent_an_add_becomes_an_invitation_that_join_accepts(tmp_path: Path) -> None:
    async with people(tmp_path, "consent") as (alice, bob, carol):
        await alice.create_group("club", members=["bob", "carol"], needs_approval=True)
        assert await members(alice, "club") == ["alice"]
        with pytest.raises(NotAllowed):
            await bob.gsend("club", "hi")
        assert await invitations(bob) == await invitations(carol) == ["club"]
        page: dict[str, Any] = await bob.act("history", with_="0")
        notice = {"action": "invitation", "group": "club", "user": "alice"}
        assert [each["fields"] for each in page["messages"]] == [notice]
        await alice.manage("club", "bob", "invite")  # again: no second notice
        assert len((await bob.act("history", with_="0"))["messages"]) == 1
        await bob.join("club")
        await carol.quit("club")
        assert await members(bob, "club") == ["alice", "bob"]
        assert await invitations(bob) == await invitations(carol) == []
        assert (await carol.act("join", group="club"))["is_requested"], "a declined invitation gives no right to join"
        await alice.manage("club", "carol", "approve")
        assert await members(carol, "club") == ["alice", "bob", "carol"]


async def test_with_contacts_only_a_contact_of_the_user_adds_at_once(tmp_path: Path) -> None:
    async with people(tmp_path, "contacts") as (alice, bob, carol):
        await alice.contact("carol")  # that carol is on alice's list does not count
        await bob.contact("alice")
        await alice.create_group("7", members=["bob", "carol"])
        assert await members(alice, "7") == ["alice", "bob"]
        assert await invitations(carol) == ["7"]
        await carol.join("7")
        assert await members(alice, "7") == ["alice", "bob", "carol"]


async def test_invitations_after_refusals_notify_the_user_once(tmp_path: Path) -> None:
    async with people(tmp_path, "consent") as (alice, bob, carol):
        await alice.create_group("club", members=["bob"])
        for _ in range(4):
            await bob.quit("club")
            assert await invitations(bob) == []
            await alice.manage("club", "bob", "invite")
            assert await invitations(bob) == ["club"], "the invitation itself is there"
        await alice.create_group("other")
        await alice.manage("other", "bob", "invite")
        await alice.manage("other", "carol", "invite")
        assert await notices(bob) == ["club", "other"] and await notices(carol) == ["other"]


async def notices(client: Client) -> list[str]:
    page: dict[str, Any] = await client.act("history", with_="0")
    fields = [each["fields"] for each in reversed(page["messages"])]
    return [each["group"] for each in fields if each["action"] == "invitation"]


def test_an_invitation_on_the_next_day_notifies_the_user_again() -> None:
    world = MemoryWorld(unlimited(group_invites="consent"))
    world.actor("bob")
    world.do("alice", "create_group", group="club")

    def notices_after_refusal() -> int:
        world.do("alice", "manage", group="club", user="bob", op="invite")
        world.do("bob", "quit", group="club")
        chats = [MsgChat.FromString(each.chat) for each in world.records() if each.to == world.number("bob")]
        return sum(each.params["action"] == "invitation" for each in chats)

    assert [notices_after_refusal() for _ in range(3)] == [1, 1, 1]
    world.pass_time(86_400_000)
    assert [notices_after_refusal() for _ in range(2)] == [2, 2]


def test_invitations_of_a_user_are_bounded_and_end_with_an_erasure() -> None:
    world = MemoryWorld(unlimited(group_invites="consent"))
    world.actor("bob")
    for each in range(100):
        world.do("alice", "create_group", group=f"g{each}", members=["bob"])
    with pytest.raises(TooLarge, match="100 invitations of 'bob' wait already"):
        world.do("alice", "create_group", group="more", members=["bob"])
    world.do("bob", "quit", group="g7")
    world.do("alice", "create_group", group="more", members=["bob"])
    number = world.number("bob")
    assert len(world.stores.groups.invitations(number)) == 100
    world.ask(world.actor("alice")._replace(is_admin=True), "erase_user", {"user": "bob"})
    assert world.stores.groups.invitations(number) == []


def test_administrators_add_without_asking() -> None:
    world = MemoryWorld(unlimited(group_invites="consent"))
    world.actor("bob")
    admin = world.actor("alice")._replace(is_admin=True)
    world.ask(admin, "create_group", {"group": "all", "members": ["bob"]})
    assert world.do("bob", "group", group="all")["member_count"] == 2
