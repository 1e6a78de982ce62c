"""What a blocked user can still cause at the user who blocks them."""

from contextlib import suppress
from pathlib import Path

import pytest

from pixiu.model.errors import NotAllowed
from pixiu.sdk import Client
from tests.sdk.world import wanted, world_at


async def events_until(client: Client, text: str) -> list[str]:
    """Wait for the message with this text. Returns the kinds of the events that came before it."""
    await wanted(client, lambda message: message.text == text)
    kinds: list[str] = []
    with suppress(TimeoutError):
        while True:
            kinds.append(type(await client.next_event(0.05)).__name__)
    return kinds


async def test_receipt_of_a_blocked_user_is_stored_and_not_pushed(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("eve") as eve,
        world.connect("carol") as carol,
    ):
        await eve.user()
        said = await alice.send("eve", "old")
        await events_until(eve, "old")
        await alice.block("eve")
        assert await eve.receipt([said.message_id]) == 1
        await carol.send("alice", "end")
        assert "ReceiptEvent" not in await events_until(alice, "end")
        page = await alice.act("history", with_="eve")
        assert page["messages"][0]["read_at"] > 0
        await alice.unblock("eve")
        said = await alice.send("eve", "new")
        await events_until(eve, "new")
        assert await eve.receipt([said.message_id]) == 1
        await carol.send("alice", "end 2")
        assert (await events_until(alice, "end 2")).count("ReceiptEvent") == 1


async def test_recall_of_a_blocked_user_removes_the_text_and_notifies_nobody(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("eve") as eve,
        world.connect("carol") as carol,
    ):
        await alice.user()
        said = await eve.send("alice", "old")
        await events_until(alice, "old")
        await alice.block("eve")
        await eve.recall(said.message_id)
        await carol.send("alice", "end")
        assert "RecallEvent" not in await events_until(alice, "end")
        for client, peer in ((alice, "eve"), (eve, "alice")):
            page = await client.act("history", with_=peer)
            assert [(each["message_id"], each.get("text"), each["recalled"]) for each in page["messages"]] == [
                (str(said.message_id), None, True)
            ]
        await eve.recall(said.message_id)  # again: changes nothing


async def test_group_is_not_transferred_to_a_user_who_blocks_the_owner(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("eve") as eve:
        await alice.user()
        await eve.create_group("g", members=["alice"])
        await alice.block("eve")
        with pytest.raises(NotAllowed, match="'alice' blocks you: the group cannot be transferred to them"):
            await eve.manage("g", "alice", "transfer")
        assert (await eve.act("group", group="g"))["owner"] == "eve"
        await alice.unblock("eve")
        await eve.manage("g", "alice", "transfer")
        assert (await eve.act("group", group="g"))["owner"] == "alice"
