"""The audit of a real node looks at histories: while it runs, under load, and when it has stopped."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pixiu.config import InboxSettings, MessagingSettings, Settings
from pixiu.model.pixiu_pb2 import Record
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import audit_stopped, open_stores
from pixiu.ports.log import MAIN, LogRecord
from pixiu.ports.stores import Lane
from pixiu.roles.carrier import histories
from pixiu.runtime.datadir import DataDirectory

SHORT = Settings(
    messaging=MessagingSettings(history_ms=300, history_sweep_ms=20, sends_per_second=0),
    inbox=InboxSettings(expire_ms=200, sweep_interval_ms=20),
)


async def talk(node: EmbeddedNode) -> tuple[int, int]:
    """Returns a private message, and one of a group."""
    for name in ("alice", "bob"):
        await node.create_user(name)
    await node.create_group("alice", "tea", members=["bob"])
    said = await node.send("alice", to="bob", text="hi")
    in_group = await node.gsend("alice", group="tea", text="hello")
    return int(said["message_id"]), int(in_group["message_id"])


def records_of(node: EmbeddedNode) -> list[LogRecord]:
    log = node.host.log
    return [record for batch in log.scan(log.committed, 1000) for record in batch if record.topic == MAIN]


def spoil(stores: Any, private: int) -> tuple[int, int]:
    """Bob's side goes, and so does all that was said in the group. Returns the numbers of both."""
    bob, group = stores.users.number_of("bob"), stores.groups.number_of("tea")
    assert stores.timelines.drop_private(bob, through=private) == [private]
    assert len(stores.timelines.drop_group(group, through=2**62)) == 2
    return bob, group


async def test_a_node_that_runs_names_what_its_histories_lack(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path) as node:
        private, in_group = await talk(node)
        report = await node.audit()
        assert (report["balanced"], report["histories"]) == (True, 4)
        bob, group = spoil(node.messaging.stores, private)
        report = await node.audit()
    assert (report["balanced"], report["lost_count"]) == (False, 3)
    assert report["lost"][0] == {"user": bob, "message_id": str(private), "reason": "not in the history"}
    assert report["lost"][2] == {"group": group, "message_id": str(in_group), "reason": "not in the history"}


async def test_so_does_the_audit_of_one_that_has_stopped(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path) as node:
        private, _ = await talk(node)
    with DataDirectory.open(tmp_path):
        assert audit_stopped(tmp_path).histories == 4
        _, stores = open_stores(tmp_path)
        bob, _ = spoil(stores, private)
        stores.commit({lane: stores.applied(lane) for lane in Lane})
        stores.close()
        report = audit_stopped(tmp_path)
    assert (report.balanced, report.lost_count) == (False, 3)
    assert report.lost[0] == {"user": bob, "message_id": str(private), "reason": "not in the history"}


async def test_nothing_is_named_while_history_ends_and_users_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audits one behind the other, while messages come, are recalled, trimmed and erased."""
    monkeypatch.setattr(histories, "HISTORY_TURN", 1)
    monkeypatch.setattr(histories, "HISTORY_PAGE", 5)
    replaying = histories.Histories.replaying
    doubts: list[int] = []

    def counted(self: histories.Histories, some: list[LogRecord]) -> Iterator[None]:
        doubts.append(len(some))
        return replaying(self, some)

    monkeypatch.setattr(histories.Histories, "replaying", counted)
    async with EmbeddedNode(tmp_path, settings=SHORT) as node:
        await talk(node)
        is_over = False

        async def go_on() -> None:
            number = 0
            while not is_over:
                number += 1
                name = f"user{number // 20}"
                if number % 20 == 0:
                    await node.create_user(name)
                elif number > 20:
                    said = await node.send(name, to="bob", text="x" * 100)
                    await node.gsend("bob", group="tea", text="y")
                    if number % 7 == 0:
                        await node.act(name, "recall", message_id=said["message_id"])
                    if number % 20 == 19:
                        await node.act(None, "erase_user", user=name)
                await asyncio.sleep(0)

        writer = asyncio.create_task(go_on())
        try:
            for _ in range(12):
                await asyncio.sleep(0.1)
                report = await node.audit()
                assert report["balanced"], {
                    **report,
                    "lost": report["lost"][:5],
                    "duplicates": report["duplicates"][:5],
                }
        finally:
            is_over = True
            await writer
        kinds = [Record.FromString(record.payload).WhichOneof("what") for record in records_of(node)]
    assert min(kinds.count(kind) for kind in ("trimmed", "erased", "recalled")) > 1
    assert doubts, "some audits met what had gone behind their cut"
