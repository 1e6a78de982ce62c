"""The contracts and a life on three leaders, and a failover of one of them under load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import RedisClient, slot_of
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.routes import RedisRoutes
from pixiu.backends.redis.stores import RedisStores
from pixiu.ports.routes import Routes
from pixiu.ports.stores import Lane, Stores
from tests.backends.test_redis_agree import RedisPair
from tests.contracts.bodies import BodiesContract
from tests.contracts.contacts import ContactsContract
from tests.contracts.groups import GroupsContract
from tests.contracts.inboxes import InboxesContract
from tests.contracts.notes import NotesContract
from tests.contracts.recent import RecentContract
from tests.contracts.routes import RoutesContract
from tests.contracts.sendkeys import SendKeysContract
from tests.contracts.stores import StoresCase, StoresContract
from tests.contracts.unread import UnreadContract
from tests.contracts.users import UsersContract
from tests.engines import ValkeyCluster
from tests.faults.test_redis import Load, role, through, until

pytestmark = [pytest.mark.engines, pytest.mark.serial, pytest.mark.feature("T1")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    with ValkeyCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def emptied(cluster: ValkeyCluster) -> RedisAddress:
    for leader in cluster.leaders:
        leader.told("FLUSHALL")
    return RedisAddress.parse(cluster.url)


class OnCluster(StoresCase):
    @pytest.fixture(params=["committed", "reopened"], autouse=True)
    def prepare(self, request: pytest.FixtureRequest, cluster: ValkeyCluster) -> Iterator[None]:
        self._is_reopened = request.param == "reopened"
        self._address = emptied(cluster)
        self._memory = MemoryStores()
        self._redis = RedisStores(self._address, "n1", cached_users_max=2)
        yield
        self._redis.close()

    def stores(self) -> Stores:
        return MixedStores(self._redis, [self._redis], timelines=self._memory.timelines)

    def settle(self) -> None:
        self._redis.commit({})
        if self._is_reopened:
            self._redis.close()
            self._redis = RedisStores(self._address, "n1", cached_users_max=2, kept_entries_max=3)


class TestStores(OnCluster, StoresContract):
    pass


class TestUsers(OnCluster, UsersContract):
    pass


class TestContacts(OnCluster, ContactsContract):
    pass


class TestGroups(OnCluster, GroupsContract):
    pass


class TestUnread(OnCluster, UnreadContract):
    pass


class TestInboxes(OnCluster, InboxesContract):
    pass


class TestBodies(OnCluster, BodiesContract):
    pass


class TestRecent(OnCluster, RecentContract):
    pass


class TestSendKeys(OnCluster, SendKeysContract):
    pass


class TestNotes(OnCluster, NotesContract):
    pass


class TestRoutes(RoutesContract):
    @pytest.fixture(autouse=True)
    def prepare(self, cluster: ValkeyCluster) -> Iterator[None]:
        self.client = RedisClient(emptied(cluster))
        yield
        self.client.close()

    def make_routes(self) -> Routes:
        return RedisRoutes(self.client, Keys("cluster"))


@pytest.mark.parametrize("seed", range(3))
def test_the_cluster_answers_as_the_reference_does(seed: int, cluster: ValkeyCluster) -> None:
    pair = RedisPair(seed, emptied(cluster))
    pair.run(800)
    pair.stores.close()


def test_a_commit_that_was_cut_off_between_slots_is_finished_by_who_comes_next(cluster: ValkeyCluster) -> None:
    address = emptied(cluster)
    stores = RedisStores(address, "n1")
    for user in range(1, 50):
        stores.inboxes.open(user, "ios")
        stores.inboxes.add(user, "ios", message_id=user, event_id=user, at=1, options=7, session=0)
        stores.bodies.put(user, b"body", 1)
    stores.commit({})
    for user in range(1, 50):
        for entry in stores.inboxes.ack(user, "ios", 1):
            stores.bodies.release(entry.message_id)
    call_all = stores.client.call_all

    def some(name: str, calls: list[tuple[str, list[object]]]) -> list[object]:
        if name == "apply":
            call_all(name, calls[::2])
            raise KeyboardInterrupt
        return call_all(name, calls)

    stores.client.call_all = some  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        stores.commit({Lane.INBOXES: 50})
    stores.close()
    again = RedisStores(address, "n1")
    for user in range(1, 50):
        assert again.inboxes.after(user, "ios", 0, 9).entries == []
        assert again.bodies.references(user) == 0
    again.close()


def test_all_keys_of_one_owner_are_in_one_slot() -> None:
    keys = Keys("cluster")
    for number in (7, 2**60):
        user = [keys.user, keys.contacts, keys.unread, keys.unread_events, keys.blocks, keys.was_in, keys.inboxes]
        names = [pattern % number for pattern in [*user, keys.sessions]]
        names += [keys.waiting % (number, "ios"), keys.entries % (number, 0)]
        assert len({slot_of(name) for name in names}) == 1
        group = [keys.group, keys.members, keys.stays, keys.requests, keys.recent, keys.recent_state]
        assert len({slot_of(pattern % number) for pattern in group}) == 1
        assert slot_of(keys.body % number) == slot_of(keys.references % number)
    single = [keys.meta, keys.owner, keys.notes, keys.redo, keys.left, keys.all_users, keys.all_inboxes]
    assert len({slot_of(name) for name in single}) == 1
    assert len({slot_of(name) for name in (keys.actions, keys.answers, keys.malformed)}) == 1


async def test_a_leader_fails_over_and_all_is_made_again(tmp_path: Path) -> None:
    with ValkeyCluster(tmp_path / "cluster", has_replica=True) as cluster:

        async def fault(load: Load) -> None:
            assert cluster.replica is not None
            cluster.leaders[0].stop()
            await until(load.node.messaging.problems, "told that it is down")
            await until(lambda: cluster.replica and role(cluster.replica) == b"master", "failed over")
            await load.grow()

        await through(tmp_path / "data", f"{cluster.url}?probe_ms=50&timeout_ms=500", fault)
