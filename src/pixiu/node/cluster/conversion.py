"""The folder of a cluster of an earlier version, which had queue and carrier processes, becomes that of a shard.

Every queue replica had a copy of the log, and everything else is made from the log. The newest copy becomes the first
replica of the shard, and begins the shard's log; the other copies become its followers. The stores of carriers, and
copies for which the file has no replica, are moved to ``old/`` and can be removed. Every step can be repeated after a
crash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pixiu.config.cluster import SHARD
from pixiu.model.errors import ConfigError, PixiuError
from pixiu.model.sealed_text import seal
from pixiu.node.joined import forget_joined
from pixiu.node.stopped import engine_without_loop
from pixiu.queue.replication.control import CONTROL_PATHS
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import flush_folders, write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.config.cluster import ClusterFile

__all__ = ["convert_old_cluster"]

OLD = "old"
FIRST = "shard-0-0"


def convert_old_cluster(folder: Path, cluster: ClusterFile) -> str:
    """Convert the folder of a cluster that does not run. Returns what was done, or an empty string.

    Raises ``ConfigError`` where other machines may have newer copies of the log.
    """
    nodes = folder / "nodes"
    copies = sorted(nodes.glob("queue-0-*"))
    if not copies or not any(plan.role == SHARD for plan in cluster.roles):
        return ""
    if not cluster.zookeeper_nodes:
        raise ConfigError(
            f"{nodes} has copies of the log of a cluster of an earlier version, and other machines may have newer "
            "copies. See docs/cluster.md, Upgrading a cluster with queue and carrier processes"
        )
    shard = next(plan for plan in cluster.roles if plan.role == SHARD)
    newest = max(copies, key=_end_of)
    for path in [*copies, *sorted(nodes.glob("carrier-*"))]:
        if path != newest:
            path.rename(_target_of(path, newest, folder, shard.replicas))
    epoch, event_id = _end_of(newest)
    _let_found(newest, epoch)
    newest.rename(nodes / FIRST)  # last: until then, a repetition finds it as the newest
    flush_folders(nodes)
    return (
        f"converted a cluster of an earlier version: the log of {newest.name}, through event {event_id}, is now that "
        f"of {FIRST}. What is not needed any more is in {folder / OLD}; remove it when you like"
    )


def _target_of(path: Path, newest: Path, folder: Path, replicas: int) -> Path:
    """Where a copy that is not the newest, or the stores of a carrier, go. Copies keep their numbers where they can."""
    number = path.name.rpartition("-")[2]
    if number == "0":
        number = newest.name.rpartition("-")[2]
    if path.name.startswith("queue-") and 0 < int(number) < replicas:
        return folder / "nodes" / f"{SHARD}-0-{number}"
    (folder / OLD).mkdir(exist_ok=True)
    return folder / OLD / path.name


def _end_of(copy: Path) -> tuple[int, int]:
    """The epoch and the event in which a copy of the log ends."""
    with DataDirectory.open(copy):
        engine = engine_without_loop(copy)
        try:
            engine.recover(is_follower=True)
            return engine.state.epoch, engine.journal.last_event_id
        except PixiuError as error:
            raise type(error)(
                f"{copy} is a copy of the log of a cluster of an earlier version, and cannot be read: {error}. Move it "
                "elsewhere to convert the cluster without it"
            ) from error
        finally:
            engine.stop()


def _let_found(copy: Path, epoch: int) -> None:
    """Let this copy begin the log of a shard: the registry has none yet."""
    record = {"version": 1, "epoch": epoch, "leader": FIRST, "in_sync": [FIRST]}
    for name in CONTROL_PATHS:
        write_durably(copy / name, seal(json.dumps(record)).decode(), mode=0o600)
    forget_joined(copy)
