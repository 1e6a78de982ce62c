"""The write diffusion by Spark: the stores that the carriers wrote, made again, row by row."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pixiu.backends.embedded import bulk
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.config import Settings
from pixiu.model.errors import NotAllowed
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import rebuild_stores
from pixiu.pipeline.jobs.rebuild import replayed
from pixiu.pipeline.rebuilding import rebuild_store
from pixiu.runtime.datadir import DataDirectory
from tests.pipeline.chaos import chaos

TABLES = {
    "bodies": bulk.stored_bodies,
    "private": bulk.stored_private_rows,
    "group": bulk.stored_group_rows,
    "inboxes": bulk.stored_inboxes,
    "unread": bulk.stored_unread,
}
ROSTERS = (b"\x02", b"\x03", b"\x04", b"\x05", b"\x06", b"\x07", b"\x08", b"\x0a", b"\x10", b"\x15")
"""Users, contacts, groups, members, requests, send keys: a row each, so the bytes are compared."""


def held(folder: Path) -> dict[str, Any]:
    """Everything in the stores; entries of one owner may be in other blocks."""
    store = RocksKeyValue(folder, options=LARGE)
    try:
        found: dict[str, Any] = {name: sorted(read(store)) for name, read in TABLES.items()}
        floors = {(user, place): floor for user, _, place, floor, _, _ in found["inboxes"]}
        found["entries"] = sorted(row for row in bulk.stored_entries(store) if row[2] > floors[row[0], row[1]])
        found["rosters"] = {key: value for key, value in store.dump() if key[:1] in ROSTERS}
    finally:
        store.close()
    return found


async def talk(root: Path, dice: random.Random, rounds: int, settings: Settings | None = None) -> None:
    """People who talk, read, recall, join, leave, and one who is erased."""
    names = ["ann", "ben", "cat", "dan", "eve"]
    async with EmbeddedNode(root, settings=settings, creates_users=True) as node:
        for name in names:
            await node.create_user(name)
        await node.create_group("ann", "tea", members=["ben", "cat"])
        phone = await node.connect("ben", platform="ios")
        web = await node.connect("ben", platform="web")
        said: list[tuple[str, str, str]] = []
        for number in range(rounds):
            one, other = dice.sample(names, 2)
            match dice.randrange(9):
                case 0 | 1 | 2:
                    sent = await node.send(one, to=other, text=f"to {number}", send_id=f"{number}")
                    said.append((one, other, sent["message_id"]))
                case 3 | 4:
                    member = dice.choice(["ann", "ben"])
                    await node.gsend(member, group="tea", text=f"in {number}")
                case 5:
                    await node.act(one, "read", with_=other)
                    await node.act("ben", "read", group="tea")
                case 6:
                    if said:
                        _, reader, message_id = dice.choice(said)
                        kind = dice.choice(["read", "delivered"])
                        await node.act(reader, "receipt", message_ids=[message_id], kind=kind)
                case 7:
                    if said:
                        author, _, message_id = said.pop(dice.randrange(len(said)))
                        await node.act(author, "recall", message_id=message_id)
                case _:
                    await node.act(one, dice.choice(["contact", "unlink"]), user=other)
                    with suppress(NotAllowed):  # who is no member cannot quit
                        await node.act("dan", dice.choice(["join", "quit"]), group="tea")
        for device in (phone, web):
            for _ in range(dice.randrange(1, 6)):
                await device.receive(timeout_seconds=5)
            device.ack()
            await device.leave()
        only = {"platforms": ["tv"]}
        await node.act(None, "push", uids=["cat"], msg_bodies=["pushed"], platform_config=only, msg_options=7)
        await node.act(None, "erase_user", user="ann")
        await node.send("ben", to="cat", text="afterwards")


def test_a_counter_is_replayed_step_by_step() -> None:
    assert replayed([(1, "add", 0), (2, "add", 0), (3, "read", 1), (4, "add", 0)]) == (2, 4)
    assert replayed([(1, "add", 0), (2, "read", 9)]) == (1, 2)
    assert replayed([(1, "add", 0), (2, "drop", 0)]) is None
    assert replayed([(1, "set", 0)]) == (0, 1)
    assert replayed([(1, "add", 0)], 5) is None
    assert replayed([(1, "add", 0), (7, "add", 0)], 5) == (1, 7)


@pytest.mark.long
@pytest.mark.feature("R20")
def test_every_row_is_what_the_carriers_wrote_and_later_runs_apply_what_is_new(
    spark: Any, data: Path, tmp_path: Path
) -> None:
    dice = random.Random(7)
    asyncio.run(talk(data, dice, 150))
    done = rebuild_store(lambda: spark, data, tmp_path / "new")
    assert done.is_bulk and done.files == 1
    ours, theirs = held(tmp_path / "new" / "stores"), held(data / "stores")
    for name, rows in theirs.items():
        assert ours[name] == rows, name

    async def more() -> None:
        async with EmbeddedNode(data) as node:
            await node.send("ben", to="cat", text="and more")

    asyncio.run(more())
    again = rebuild_store(lambda: pytest.fail("no Spark is needed"), data, tmp_path / "new")
    assert not again.is_bulk and again.through > done.through
    assert held(tmp_path / "new" / "stores") == held(data / "stores")


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 4])
def test_so_it_is_of_random_records(spark: Any, data: Path, tmp_path: Path, seed: int) -> None:
    chaos(data, seed, 600, is_trimmed=True)
    with DataDirectory.open(data):
        rebuild_stores(data)
    rebuild_store(lambda: spark, data, tmp_path / "new")
    ours, theirs = held(tmp_path / "new" / "stores"), held(data / "stores")
    for name, rows in theirs.items():
        assert ours[name] == rows, name
