"""Timelines of a cluster's carriers: a keyspace for each replica, and all of one origin with the rest of its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config.engines import EngineSettings
from pixiu.model.errors import CorruptData
from pixiu.model.partitions import Share
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.model.timeline import PrivateRow
from pixiu.node.processes.carrier.engines import open_replica, replica_engines
from pixiu.node.processes.carrier.stores import DiskHome
from pixiu.ports.stores import Lane
from pixiu.runtime.datadir import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.node.processes.carrier.engines import ReplicaStores
    from tools.cassandra_server import CassandraServer

    Cql = Callable[..., list[Any]]

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300), pytest.mark.feature("X75")]


def opened(root: Path, server: CassandraServer, keyspace: str, name: str, share: Share) -> ReplicaStores:
    timelines = f"cassandra://{server.address}/{keyspace}?timeout_ms=10000"
    engines = replica_engines(EngineSettings(timelines=timelines), name)
    return open_replica(DiskHome(root), share, engines, root)


def put_row(found: ReplicaStores, message_id: int) -> None:
    """A message that one user has, and all lanes at its event."""
    stores: Any = found.stores
    stores.bodies.put(message_id, MsgChat(fromId=8, toId=7, tm=1, data=b"hello").SerializeToString(), 1)
    stores.timelines.put_private(7, PrivateRow(message_id, 8, is_incoming=True))
    stores.commit(dict.fromkeys((Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES), message_id))
    stores.flush()


def test_each_replica_has_a_keyspace_and_one_that_was_emptied_begins_anew(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    share = Share(0, 1)
    with DataDirectory.open(tmp_path / "a"), DataDirectory.open(tmp_path / "b"):
        one = opened(tmp_path / "a", cassandra, keyspace, "c-0", share)
        other = opened(tmp_path / "b", cassandra, keyspace, "c-1", share)
        put_row(one, 5)
        put_row(other, 6)
        for each, rows in (("c_0", [5]), ("c_1", [6])):
            assert [row[0] for row in cql(f"SELECT id FROM {keyspace}_{each}.pchat")] == rows
        one.stores.close()
        other.stores.close()
        again = opened(tmp_path / "a", cassandra, keyspace, "c-0", share)
        assert again.stores.applied(Lane.TIMELINES) == again.stores.applied(Lane.INBOXES) == 5
        again.stores.close()
        (tmp_path / "c").mkdir()
        with pytest.raises(CorruptData, match=rf"{keyspace}_c_1 has timelines already"):
            opened(tmp_path / "c", cassandra, keyspace, "c-1", share)
        cql(f"DROP KEYSPACE {keyspace}_c_0")
        anew = opened(tmp_path / "a", cassandra, keyspace, "c-0", share)
        assert anew.stores.applied(Lane.INBOXES) == 0, "rows, counts and references are of one origin"
        put_row(anew, 9)
        anew.stores.close()
        moved = opened(tmp_path / "a", cassandra, keyspace, "c-0", Share(1, 2))
        assert moved.stores.applied(Lane.TIMELINES) == 0
        assert cql(f"SELECT id FROM {keyspace}_c_0.pchat") == []
        moved.stores.close()
    for each in ("c_0", "c_1"):
        cql(f"DROP KEYSPACE {keyspace}_{each}")
