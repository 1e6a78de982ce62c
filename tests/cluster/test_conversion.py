"""The folder of a cluster with queue and carrier processes becomes that of a shard."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import pixiu
from pixiu.config.cluster import read_cluster_file
from pixiu.model.errors import ConfigError
from pixiu.node.cluster.conversion import convert_old_cluster
from pixiu.node.joined import Joined, joined_of, note_joined
from pixiu.queue.replication.control import read_control
from pixiu.runtime.files import SystemFiles

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.config.cluster import ClusterFile

FILE = "zookeeper = {{ nodes = 1 }}\n[roles.shard]\nreplicas = {replicas}\n"


def file_of(folder: Path, text: str) -> ClusterFile:
    (folder / "c.toml").write_text(text, encoding="utf-8")
    return read_cluster_file(folder / "c.toml")


async def old_cluster(folder: Path) -> Path:
    """Three copies of a log, of which the second has one message more, and the stores of a carrier."""
    nodes = folder / "cluster" / "nodes"
    whole = nodes / "queue-0-1"
    async with pixiu.Node.embedded(whole) as node:
        for user in ("alice", "bob"):
            await node.create_user(user)
        await node.send("alice", to="bob", text="first")
    for number in (0, 2):
        shutil.copytree(whole, nodes / f"queue-0-{number}")
    async with pixiu.Node.embedded(whole) as node:
        await node.send("alice", to="bob", text="second")
    for path in nodes.iterdir():
        note_joined(path, Joined("zk://127.0.0.1:1/pubsub"))
    (nodes / "carrier-0-0").mkdir()
    return folder / "cluster"


async def test_the_newest_copy_of_the_log_begins_the_shard_and_the_others_follow(tmp_path: Path) -> None:
    folder = await old_cluster(tmp_path)
    done = convert_old_cluster(folder, file_of(tmp_path, FILE.format(replicas=2)))
    assert "the log of queue-0-1" in done and "shard-0-0" in done
    assert sorted(path.name for path in (folder / "nodes").iterdir()) == ["shard-0-0", "shard-0-1"]
    assert sorted(path.name for path in (folder / "old").iterdir()) == ["carrier-0-0", "queue-0-2"]
    first, second = folder / "nodes" / "shard-0-0", folder / "nodes" / "shard-0-1"
    control = read_control(SystemFiles(first))
    assert control is not None and control[1].leader == "shard-0-0"
    assert joined_of(first) is None and joined_of(second) is not None
    async with pixiu.Node.embedded(first) as node:
        history = await node.history("bob", with_="alice")
    assert [each["text"] for each in history["messages"]] == ["second", "first"]
    assert convert_old_cluster(folder, file_of(tmp_path, FILE.format(replicas=2))) == "", "there is nothing left to do"


async def test_a_conversion_goes_on_after_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await old_cluster(tmp_path)
    cluster = file_of(tmp_path, FILE.format(replicas=3))
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    rename = type(folder).rename
    for crash_at in range(1, 5):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        count = 0

        def crashing(path: Path, target: Path, crash_at: int = crash_at) -> Path:
            nonlocal count
            count += 1
            if count == crash_at:
                raise OSError("crash")
            return rename(path, target)

        with monkeypatch.context() as patch, pytest.raises(OSError, match="crash"):
            patch.setattr(type(folder), "rename", crashing)
            convert_old_cluster(folder, cluster)
        convert_old_cluster(folder, cluster)
        assert {path.name for path in (folder / "nodes").iterdir()} == {"shard-0-0", "shard-0-1", "shard-0-2"}
        async with pixiu.Node.embedded(folder / "nodes" / "shard-0-0") as node:
            assert len((await node.history("bob", with_="alice"))["messages"]) == 2


async def test_copies_that_other_machines_may_have_newer_are_not_converted(tmp_path: Path) -> None:
    folder = await old_cluster(tmp_path)
    text = FILE.format(replicas=2).replace("{ nodes = 1 }", '"zk://127.0.0.1:1"')
    with pytest.raises(ConfigError, match="other machines may have newer"):
        convert_old_cluster(folder, file_of(tmp_path, text))
    assert not (folder / "old").exists()
