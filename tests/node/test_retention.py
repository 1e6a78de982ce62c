"""History with an end, on a real node: what is too old goes, over restarts, and everything made from the log agrees."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pixiu.backends.embedded import bulk
from pixiu.config import InboxSettings, MessagingSettings, Settings
from pixiu.model.pixiu_pb2 import Record
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import audit_stopped, open_stores, rebuild_stores
from pixiu.ports.log import MAIN
from pixiu.runtime.datadir import DataDirectory

KEPT = Settings()
SHORT = Settings(
    messaging=MessagingSettings(history_ms=600, history_sweep_ms=50),
    inbox=InboxSettings(expire_ms=500, sweep_interval_ms=50),
)


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.02)


async def texts(node: EmbeddedNode, user: str, **place: str) -> list[object]:
    page = await node.act(user, "history", **place)
    return [each.get("text") for each in page["messages"] if each["kind"] == "text"]


async def talk(node: EmbeddedNode) -> dict[str, Any]:
    for name in ("alice", "bob"):
        await node.create_user(name)
    await node.create_group("alice", "tea", members=["bob"])
    first = await node.send("alice", to="bob", text="old", send_id="1")
    await node.gsend("alice", group="tea", text="old talk", send_id="2")
    return first


async def all_gone(node: EmbeddedNode) -> bool:
    stores = node.messaging.stores
    users, group = stores.users.all(), stores.groups.number_of("tea")
    assert group is not None
    return (
        not any(stores.timelines.private_forward(user) for user in users)
        and not stores.timelines.group_forward(group)
        and not any(stores.keys.page(user, b"", 10).sent for user in users)
    )


def held(root: Path) -> list[object]:
    """Every row that messages fill, whatever blocks they are in."""
    store, stores = open_stores(root)
    try:
        return [
            sorted(read(store))
            for read in (
                bulk.stored_bodies, bulk.stored_private_rows, bulk.stored_group_rows, bulk.stored_inboxes,
                bulk.stored_counters, bulk.stored_keys,
            )
        ]  # fmt: skip
    finally:
        stores.close()


async def test_by_default_nothing_goes(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        await talk(node)
        assert not node.messaging.trimming._is_running
        assert await texts(node, "bob", with_="alice") == ["old"]


async def test_what_is_too_old_goes_over_a_restart_and_what_is_new_stays(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        first = await talk(node)
    async with EmbeddedNode(tmp_path, settings=SHORT) as node:
        await until(lambda: all_gone(node))
        bodies = node.messaging.stores.bodies
        message_id = int(first["message_id"])

        async def is_gone() -> bool:  # the entries in the inboxes expire, and then nobody refers to it
            return not bodies.references(message_id)

        await until(is_gone)
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        again = await node.send("alice", to="bob", text="new", send_id="1")
        assert again["message_id"] != first["message_id"]  # a send id of that time is known no more
        assert await texts(node, "bob", with_="alice") == ["new"]
        await node.gsend("bob", group="tea", text="new talk")
        assert await texts(node, "alice", group="tea") == ["new talk"]
        page = await node.act("alice", "history", group="tea")
        assert page["trimmed"] is True  # and not: nothing was before
        assert (await node.audit())["balanced"]


async def test_who_comes_back_with_an_id_of_before_is_told_what_is_trimmed(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        first = await talk(node)
        await node.send("alice", to="bob", text="never seen")
    async with EmbeddedNode(tmp_path, settings=SHORT) as node:
        await until(lambda: all_gone(node))
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        new = await node.send("alice", to="bob", text="new")
        answer = await node.act("bob", "sync", with_={"alice": first["message_id"]}, group={"tea": "0"})
        assert answer["trimmed"] is True
        [gap] = [gap for gap in answer["gaps"] if "with" in gap]
        assert gap == {
            "with": "alice", "after": first["message_id"], "before": new["message_id"], "trimmed": True,
        }  # fmt: skip
        fresh = await node.act("bob", "sync", with_={"alice": "0"})
        assert not fresh["gaps"] and "trimmed" not in fresh  # who has nothing has lost nothing


@pytest.mark.feature("R20")
async def test_a_rebuild_gives_the_same_and_the_books_balance(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path, settings=SHORT) as node:
        await talk(node)
        await until(lambda: all_gone(node))
        await node.send("bob", to="alice", text="new", send_id="9")
        await node.act("alice", "read", with_="bob")
        records = [record for record in node.messaging.log.read(0, 100_000) if record.topic == MAIN]
        assert any(Record.FromString(record.payload).HasField("trimmed") for record in records)

    with DataDirectory.open(tmp_path):
        assert audit_stopped(tmp_path).balanced
        before = held(tmp_path)
        rebuild_stores(tmp_path)
        assert held(tmp_path) == before
        assert audit_stopped(tmp_path).balanced
    async with EmbeddedNode(tmp_path, settings=KEPT) as node:
        assert await texts(node, "alice", group="tea") == []
