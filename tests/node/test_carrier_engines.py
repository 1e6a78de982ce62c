"""The stores of replicas with engines of others: each under names of its own, and all of one origin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.backends.embedded.layout import LAYOUT
from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import slot_of
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.stores import RedisStores
from pixiu.config.engines import EngineSettings
from pixiu.machines.snapshots import Ask, Frames, Head, No, encode
from pixiu.model.errors import ConfigError, Conflict
from pixiu.model.partitions import Share
from pixiu.model.user import Profile
from pixiu.node.processes.carrier.engines import ALL_EMBEDDED, open_replica, replica_engines
from pixiu.node.processes.carrier.snapshots import Giving
from pixiu.node.processes.carrier.stores import DiskHome, note_loss
from pixiu.ports.stores import Lane
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.scheduler import LoopScheduler
from tests.engines import ValkeyCluster, ValkeyProcess
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.node.processes.carrier.engines import ReplicaStores

pytestmark = pytest.mark.feature("X75")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def server(valkey: ValkeyProcess) -> ValkeyProcess:
    valkey.told("FLUSHALL")
    return valkey


def test_names_are_made_from_the_replica_s() -> None:
    engines = EngineSettings(store="redis://a", timelines="cassandra://b/talk")
    found = replica_engines(engines, "carrier-0-1")
    assert (found.prefix, found.note) == ("pixiu-carrier-0-1:", "redis cassandra")
    assert found.timelines is not None
    assert found.timelines.keyspace == "talk_carrier_0_1"
    assert replica_engines(EngineSettings(), "Anything goes") == ALL_EMBEDDED


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
        ({"timelines": f"cassandra://a/{'k' * 40}"}, "carrier-0-1", "up to 48 characters"),
    ],
)
def test_what_no_engine_could_use_is_refused(engines: dict[str, str], name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replica_engines(EngineSettings(**engines), name)


@pytest.mark.feature("T1")
def test_a_prefix_leaves_together_what_a_function_needs_in_one_slot() -> None:
    one, other = Keys("cluster", "pixiu-carrier-0-0:"), Keys("cluster", "pixiu-carrier-0-1:")
    plain = Keys("cluster")
    of_user = [one.user, one.contacts, one.unread, one.unread_events, one.inboxes, one.stream, one.sessions]
    assert {slot_of(pattern % 7) for pattern in of_user} == {slot_of(plain.user % 7)}
    assert slot_of(one.waiting % (7, "web")) == slot_of(one.entries % (7, 1)) == slot_of(one.user % 7)
    assert slot_of(one.body % 9) == slot_of(one.references % 9)
    shared = [one.owner, one.redo, one.meta, one.notes, one.left, one.all_users, one.present]
    assert {slot_of(key) for key in shared} == {slot_of(one.owner)}
    assert slot_of(one.owner) != slot_of(other.owner), "not everybody's commits are in one slot"
    assert (one.user % 7, Keys("seed", "pixiu-a:").user % 7) == ("pixiu-carrier-0-0:u:{7}", "pixiu-a:u:7")


def opened(root: Path, url: str, name: str, share: Share, **more: str) -> ReplicaStores:
    """As a carrier opens them."""
    engines = replica_engines(EngineSettings(store=url, **more), name)
    return open_replica(DiskHome(root), share, engines, root)


def put_user(stores: Any, number: int) -> None:
    stores.users.put(Profile(number, str(number), "somebody"))
    stores.commit({Lane.ROSTERS: number, Lane.INBOXES: number, Lane.TIMELINES: number})


def names(server: ValkeyProcess) -> set[str]:
    return {name.decode() for name in server.told("KEYS", "*")}


def test_two_replicas_in_one_database_share_nothing(server: ValkeyProcess, tmp_path: Path) -> None:
    server.told("SET", "u:5", "of others")
    with DataDirectory.open(tmp_path / "a"), DataDirectory.open(tmp_path / "b"):
        one = opened(tmp_path / "a", server.url, "carrier-0-0", Share(0, 2))
        other = opened(tmp_path / "b", server.url, "carrier-0-1", Share(0, 2))
        put_user(one.stores, 7)
        put_user(other.stores, 8)
        assert [list(each.stores.users.all()) for each in (one, other)] == [[7], [8]]
        assert [each.stores.applied(Lane.INBOXES) for each in (one, other)] == [7, 8]
        assert {"pixiu-carrier-0-0:u:7", "pixiu-carrier-0-1:u:8"} < names(server)
        with pytest.raises(Conflict, match="belong to node"):
            opened(tmp_path / "b", server.url, "carrier-0-0", Share(0, 2))
        one.stores.close()
        again = opened(tmp_path / "a", server.url, "carrier-0-0", Share(0, 2))
        assert again.stores.applied(Lane.ROSTERS) == 7
        again.stores.close()
        moved = opened(tmp_path / "a", server.url, "carrier-0-0", Share(1, 2))
        assert moved.stores.applied(Lane.ROSTERS) == 0, "of another partition: made again"
        assert not list(moved.stores.users.all())
        assert "pixiu-carrier-0-0:u:7" not in names(server)
        assert {"u:5", "pixiu-carrier-0-1:u:8"} < names(server)
        for each in (moved, other):
            each.stores.close()


def test_stores_that_move_to_another_engine_are_made_again(server: ValkeyProcess, tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path):
        for url, applied_before in (("embedded", 0), (server.url, 0), (server.url, 7), ("embedded", 0)):
            found = opened(tmp_path, url, "carrier-0-0", Share(0, 1))
            assert found.stores.applied(Lane.INBOXES) == applied_before, url
            put_user(found.stores, 7)
            found.stores.close()
        # What Redis has is of a time before: nobody takes it for what the folder has.
        found = opened(tmp_path, server.url, "carrier-0-0", Share(0, 1))
        assert found.stores.applied(Lane.INBOXES) == 0
        assert not list(found.stores.users.all())
        found.stores.close()


def test_a_loss_that_was_noted_is_made_good_by_the_next_life(server: ValkeyProcess, tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path):
        found = opened(tmp_path, server.url, "carrier-0-0", Share(0, 1))
        put_user(found.stores, 7)
        note_loss(found.store, is_lost=True)
        found.stores.close()
        for applied in (0, 8):
            found = opened(tmp_path, server.url, "carrier-0-0", Share(0, 1))
            assert found.stores.applied(Lane.ROSTERS) == applied
            put_user(found.stores, 8)
            assert list(found.stores.users.all()) == [8]
            found.stores.close()


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
            one = opened(tmp_path / "a", url, "carrier-0-0", Share(0, 2))
            other = opened(tmp_path / "b", url, "carrier-1-0", Share(1, 2))
            for number in range(1, 50):
                put_user(one.stores, number)
                put_user(other.stores, number + 100)
            one.stores.close()
            moved = opened(tmp_path / "a", url, "carrier-0-0", Share(1, 2))
            assert not list(moved.stores.users.all())
            moved.stores.close()
            other.stores.close()
            again = opened(tmp_path / "b", url, "carrier-1-0", Share(1, 2))
            assert list(again.stores.users.all()) == list(range(101, 150))
            again.stores.close()
        left = {name.decode() for leader in cluster.leaders for name in leader.told("KEYS", "*")}
        assert {name for name in left if not name.startswith("pixiu-carrier-1-0:")} <= {
            f"pixiu-carrier-0-0:pixiu:{{pixiu-carrier-0-0}}:{name}" for name in ("owner", "meta", "redo")
        }


async def test_no_snapshot_is_given_of_what_is_elsewhere() -> None:
    scheduler = LoopScheduler(asyncio.get_running_loop())
    giving = Giving(MemoryKeyValue(), scheduler, commit=lambda: None, head=lambda: Head(LAYOUT, 0, 1, 5))
    giving.refusal = "the stores of this replica are in redis"
    said = bytearray()

    class Back:
        def write(self, data: bytes) -> None:
            said.extend(data)

        def pending(self) -> int:
            return 0

        def close(self) -> None:
            pass

    giver = giving.accept()
    giver.opened(Back())
    giver.received(encode(Ask(0, 1)))
    assert list(Frames().feed(bytes(said))) == [No("the stores of this replica are in redis")]
