"""The file in which a gateway keeps the last known leaders."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pixiu.config.registry import RegistryAddress
from pixiu.links.leaders import KnownLeaders, Leader
from pixiu.node.processes.gateway.known_leaders import LeaderFile

if TYPE_CHECKING:
    from pathlib import Path

REGISTRY = RegistryAddress.parse("zk://10.0.0.1:2181/pubsub")
KNOWN = KnownLeaders(2, {0: Leader(7, "shard-0-1", "10.0.0.7:9311", 2**63 + 1), 1: Leader(3, "shard-1-0", "[::1]:9")})


async def kept(folder: Path, known: KnownLeaders = KNOWN, port: int = 8401) -> LeaderFile:
    file = LeaderFile(folder, port, REGISTRY)
    file.keep(known)
    await file.close()
    return file


async def test_next_process_reads_what_was_kept(tmp_path: Path) -> None:
    await kept(tmp_path)
    assert LeaderFile(tmp_path, 8401, REGISTRY).recall() == KNOWN
    assert [path.name for path in tmp_path.iterdir()] == ["leaders-8401"]
    assert (tmp_path / "leaders-8401").stat().st_mode & 0o777 == 0o600


async def test_gateways_that_share_a_directory_have_files_of_their_own(tmp_path: Path) -> None:
    other = KnownLeaders(1, {})
    await kept(tmp_path)
    await kept(tmp_path, other, port=8402)
    assert LeaderFile(tmp_path, 8401, REGISTRY).recall() == KNOWN
    assert LeaderFile(tmp_path, 8402, REGISTRY).recall() == other
    assert LeaderFile(tmp_path, 8403, REGISTRY).recall() is None


async def test_leaders_of_another_registry_are_not_used(tmp_path: Path) -> None:
    await kept(tmp_path)
    other = RegistryAddress.parse("zk://10.0.0.2:2181/pubsub")
    assert LeaderFile(tmp_path, 8401, other).recall() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "7", "\0", '{"registry": "R", "count": 3, "leaders": {}}',
             '{"registry": "R", "count": 1, "leaders": {"0": {"epoch": 1}}}',
             '{"registry": "R", "count": 1, "leaders": {"x": {}}}', '{"registry": "R", "count": 1, "leaders": []}'],
)  # fmt: skip
def test_damaged_file_is_not_used(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "leaders-8401").write_text(text.replace('"R"', f'"{REGISTRY}"'), encoding="utf-8")
    assert LeaderFile(tmp_path, 8401, REGISTRY).recall() is None
    assert [record.message for record in caplog.records] == ["leader_file_unreadable"]


def test_file_that_is_not_text_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "leaders-8401").write_bytes(b"\xff\xfe")
    assert LeaderFile(tmp_path, 8401, REGISTRY).recall() is None


async def test_last_of_several_changes_is_kept_and_a_failed_write_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = LeaderFile(tmp_path / "gone", 8401, REGISTRY)
    file.keep(KNOWN)
    await file.close()
    assert [record.message for record in caplog.records] == ["leader_file_not_written"]
    (tmp_path / "gone").mkdir()
    for epoch in range(1, 6):
        file.keep(KnownLeaders(1, {0: Leader(epoch, "a", "h:1")}))
        await asyncio.sleep(0)
    await file.close()
    assert file.recall() == KnownLeaders(1, {0: Leader(5, "a", "h:1")})
