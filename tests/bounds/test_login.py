"""The list of contacts comes in pages: others cannot make it so long that a user cannot log in."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import websockets

from pixiu.model.errors import RequestError
from tests.sdk.world import World, eventually, world_at

GROUPS = 40
AVATAR = "https://pictures.example/" + "x" * 1_900
BOUND = 16 * 1024


async def fill(world: World, victim: str, *, groups: int = GROUPS) -> set[str]:
    """A stranger puts the victim into many groups with long avatars."""
    async with world.connect("stranger") as stranger:
        await stranger.create_user(victim)
        for number in range(groups):
            await stranger.create_group(f"trap-{number}", avatar=AVATAR, members=[victim])
    return {f"trap-{number}" for number in range(groups)}


async def test_contacts_push_at_login_is_one_page_and_the_sdk_fetches_the_rest(tmp_path: Path) -> None:
    async with world_at(tmp_path, messaging={"page_bytes_max": BOUND}) as world:
        groups = await fill(world, "victim")
        url = f"{world.url}/ws?token={world.token('victim')}"
        async with websockets.connect(url, max_size=BOUND + 1024, max_queue=None) as socket:
            push = json.loads(await socket.recv())
        assert push["push"] == "contacts" and push["has_more"] and push["cursor"]
        assert 0 < len(push["contacts"]) < GROUPS
        async with world.connect("victim") as victim:
            await eventually(lambda: {each.place.name for each in victim.known.contacts} == groups)
            assert {each.place.name for each in (await victim.contacts()).contacts} == groups


async def test_contacts_pages_hold_every_row_once_in_the_order_of_adding(tmp_path: Path) -> None:
    async with world_at(tmp_path, messaging={"page_bytes_max": BOUND}) as world:
        groups = await fill(world, "victim")
        async with world.connect("friend") as friend:
            await friend.send("victim", "hi")
        async with world.connect("victim") as victim:
            await victim.act("contact", user="stranger")
            rows: list[dict[str, object]] = []
            others: list[object] = []
            page = await victim.act("contacts", limit=7)
            while True:
                assert len(page["contacts"]) + len(page["others"]) <= 7
                rows += page["contacts"]
                others += page["others"]
                if not page["has_more"]:
                    break
                page = await victim.act("contacts", limit=7, cursor=page["cursor"])
            assert page["cursor"] is None
            assert [row.get("group", row.get("user")) for row in rows] == [
                *sorted(groups, key=lambda name: int(name.partition("-")[2])), "stranger"
            ]  # fmt: skip
            assert others == [{"user": "friend", "unread": 1}]
            for cursor in ("x", "1.2", "1.2.3.x", 7):
                with pytest.raises(RequestError, match="cursor"):
                    await victim.act("contacts", cursor=cursor)


async def test_changing_one_contact_returns_that_contact_alone(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        for number in range(5):
            await alice.contact(f"friend-{number}")
        answer = await alice.act("contact", user="bob")
        assert [row["user"] for row in answer["contacts"]] == ["bob"] and answer.keys() == {"contacts"}
        assert [row["user"] for row in (await alice.act("block", user="bob"))["contacts"]] == ["bob"]
        assert [row["user"] for row in (await alice.act("unblock", user="bob"))["contacts"]] == ["bob"]
        assert await alice.act("unlink", user="bob") == {"contacts": []}
        assert await alice.act("block", user="bob") == {"contacts": []}
        assert len((await alice.contacts()).contacts) == 5


async def test_scheduled_comes_in_pages_of_bounded_size(tmp_path: Path) -> None:
    async with world_at(tmp_path, messaging={"page_bytes_max": BOUND}) as world, world.connect("alice") as alice:
        later = int(time.time() * 1000) + 86_400_000
        text = "\u0001" * 1_000  # six bytes each in JSON
        for number in range(12):
            await alice.act("schedule", to="bob", text=text, at=later + number % 3)
        page = await alice.act("scheduled")
        seen = [each["schedule_id"] for each in page["scheduled"]]
        assert len(json.dumps(page, ensure_ascii=False)) <= BOUND + 1024 and page["has_more"]
        while page["has_more"]:
            page = await alice.act("scheduled", cursor=page["cursor"])
            seen += [each["schedule_id"] for each in page["scheduled"]]
        assert len(seen) == len(set(seen)) == 12
        assert [str(each.schedule_id) for each in await alice.scheduled()] == seen
        with pytest.raises(RequestError, match="cursor"):
            await alice.act("scheduled", cursor="1.2.3")


async def test_the_sdk_reads_all_pages_of_invitations_and_of_requests(tmp_path: Path) -> None:
    async with world_at(tmp_path, messaging={"page_bytes_max": 4_096, "group_invites": "consent"}) as world:
        async with world.connect("bob") as bob:
            await bob.create_user("victim")
            await bob.create_group("closed", needs_approval=True)
            for number in range(12):
                await bob.create_group(f"trap-{number}", avatar=AVATAR, members=["victim"])
            for number in range(60):
                async with world.connect(f"asking-{number}-{'x' * 40}") as asking:
                    await asking.join("closed")
            assert len((await bob.group("closed")).requests) == 60
        async with world.connect("victim") as victim:
            await eventually(lambda: len(victim.known.invitations) == 12)
            assert len((await victim.contacts()).invitations) == 12


@pytest.mark.long
async def test_login_after_strangers_added_the_user_to_3000_groups_is_one_page(tmp_path: Path) -> None:
    """The whole list has 6 MB; the client refuses frames above half a megabyte."""
    async with world_at(tmp_path, messaging={"groups_max": 10_000}, requests_per_user=0) as world:
        await fill(world, "victim", groups=3_000)
        url = f"{world.url}/ws?token={world.token('victim')}"
        async with websockets.connect(url, max_size=2**19, max_queue=None) as socket:
            push = json.loads(await asyncio.wait_for(socket.recv(), 10))
            assert push["push"] == "contacts" and push["has_more"]
            await socket.send(json.dumps({"id": 1, "action": "user", "params": {}}))
            frame = push
            while "id" not in frame:  # messages that wait come in between
                frame = json.loads(await asyncio.wait_for(socket.recv(), 10))
            assert frame["result"]["user"] == "victim"
        async with world.connect("victim") as victim:
            assert len((await victim.contacts()).contacts) == 3_000
