"""The stores of replicas in shared engines: each under names of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import slot_of
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.stores import RedisStores
from pixiu.config import Settings
from pixiu.config.engines import EngineSettings
from pixiu.model.errors import ConfigError, Conflict
from pixiu.model.user import Profile
from pixiu.node.engines import engines_of_replica
from pixiu.node.host import open_stores
from pixiu.node.stopped import open_store
from pixiu.ports.stores import Lane
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import NoScheduler
from tests.engines import ValkeyCluster, ValkeyProcess
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.node.host import Opened

pytestmark = pytest.mark.feature("X75")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def server(valkey: ValkeyProcess) -> ValkeyProcess:
    valkey.told("FLUSHALL")
    return valkey


def test_a_replica_has_a_prefix_in_redis_and_a_keyspace_in_cassandra_of_its_own() -> None:
    engines = EngineSettings(store="redis://a", timelines="cassandra://b:1234/talk?timeout_ms=500")
    found, prefix = engines_of_replica(engines, "shard-0-1")
    assert prefix == "pixiu-shard-0-1:"
    assert (found.store, found.timelines) == ("redis://a", "cassandra://b:1234/talk_shard_0_1?timeout_ms=500")
    assert engines_of_replica(EngineSettings(), "Any name") == (EngineSettings(), "")


@pytest.mark.parametrize(
    ("engines", "name", "complaint"),
    [
        ({"store": "redis://a"}, "Carrier", "replication.name"),
        ({"store": "redis://a"}, "a_b", "replication.name"),
        ({"store": "redis://a"}, "{a}", "replication.name"),
        ({"store": "redis://a"}, "", "replication.name"),
        ({"store": "mysql://a"}, "a", "store must be redis://"),
        ({"store": "redis://a?colour=red"}, "a", "no option 'colour'"),
        ({"timelines": "mysql://a"}, "a", "timelines must be embedded or cassandra://"),
        ({"timelines": f"cassandra://a/{'k' * 40}"}, "shard-0-1", "up to 48 characters"),
    ],
)
def test_engines_that_no_replica_could_use_are_refused(engines: dict[str, str], name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        engines_of_replica(EngineSettings(**engines), name)


@pytest.mark.feature("T1")
def test_a_prefix_leaves_together_what_a_function_needs_in_one_slot() -> None:
    one, other = Keys("cluster", "pixiu-shard-0-0:"), Keys("cluster", "pixiu-shard-0-1:")
    plain = Keys("cluster")
    of_user = [one.user, one.contacts, one.unread, one.unread_events, one.inboxes, one.stream, one.sessions]
    assert {slot_of(pattern % 7) for pattern in of_user} == {slot_of(plain.user % 7)}
    assert slot_of(one.waiting % (7, "web")) == slot_of(one.entries % (7, 1)) == slot_of(one.user % 7)
    assert slot_of(one.body % 9) == slot_of(one.references % 9)
    shared = [one.owner, one.redo, one.meta, one.notes, one.left, one.all_users, one.present]
    assert {slot_of(key) for key in shared} == {slot_of(one.owner)}
    assert slot_of(one.owner) != slot_of(other.owner), "not everybody's commits are in one slot"
    assert (one.user % 7, Keys("seed", "pixiu-a:").user % 7) == ("pixiu-shard-0-0:u:{7}", "pixiu-a:u:7")


def opened(root: Path, url: str, name: str) -> Opened:
    """As a replica opens them."""
    engine = Engine(Settings(), SystemFiles(root), open_store(root), SystemClock(), NoScheduler())
    engine.recover()
    try:
        return open_stores(EngineSettings(store=url), root, EngineLog(engine), name)
    finally:
        engine.stop()


def put_user(stores: Any, number: int) -> None:
    stores.users.put(Profile(number, str(number), "somebody"))
    stores.commit({Lane.ROSTERS: number, Lane.INBOXES: number, Lane.TIMELINES: number})


def names(server: ValkeyProcess) -> set[str]:
    return {name.decode() for name in server.told("KEYS", "*")}


def test_two_replicas_in_one_database_share_nothing(server: ValkeyProcess, tmp_path: Path) -> None:
    server.told("SET", "u:5", "of others")
    with DataDirectory.open(tmp_path / "a"), DataDirectory.open(tmp_path / "b"):
        one = opened(tmp_path / "a", server.url, "shard-0-0")
        other = opened(tmp_path / "b", server.url, "shard-0-1")
        put_user(one.stores, 7)
        put_user(other.stores, 8)
        assert [list(each.stores.users.all()) for each in (one, other)] == [[7], [8]]
        assert [each.stores.applied(Lane.INBOXES) for each in (one, other)] == [7, 8]
        assert {"u:5", "pixiu-shard-0-0:u:7", "pixiu-shard-0-1:u:8"} < names(server)
        with pytest.raises(Conflict, match="belong to node"):
            opened(tmp_path / "b", server.url, "shard-0-0")
        for each in (one, other):
            each.stores.close()


def test_a_look_at_a_redis_that_has_lost_something_tells_and_goes_on(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path) as server:
        stores = RedisStores(RedisAddress.parse(f"{server.url}?probe_ms=20"), "n1")
        told: list[str] = []
        stores.when_lost = lambda: told.append(stores.problem)
        stores.commit({Lane.ROSTERS: 1})
        server.stop()
        stores.look()
        assert "is down" in stores.problem
        server.start()  # empty

        def has_lost() -> bool:
            stores.look()  # whoever does so now and then must not be stopped by what it finds
            return "it has lost some" in stores.problem

        wait_for(has_lost, what="the loss to be found")
        stores.look()
        assert len(told) == 1
        stores.close()


@pytest.mark.engines
@pytest.mark.feature("T1")
def test_two_replicas_in_one_redis_cluster_share_nothing(tmp_path: Path) -> None:
    with ValkeyCluster(tmp_path / "valkey") as cluster, DataDirectory.open(tmp_path / "a"):
        url = f"{cluster.url}?timeout_ms=5000"
        with DataDirectory.open(tmp_path / "b"):
            one = opened(tmp_path / "a", url, "shard-0-0")
            other = opened(tmp_path / "b", url, "shard-0-1")
            for number in range(1, 50):
                put_user(one.stores, number)
                put_user(other.stores, number + 100)
            assert list(one.stores.users.all()) == list(range(1, 50))
            assert list(other.stores.users.all()) == list(range(101, 150))
            for each in (one, other):
                each.stores.close()
