"""The contracts of the messaging stores on a real Valkey, in every state that a value can be in."""

from collections.abc import Iterator

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.routes import RedisRoutes
from pixiu.backends.redis.sessions import RedisSessions
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.errors import Unavailable
from pixiu.ports.routes import Routes
from pixiu.ports.sessions import Sessions
from pixiu.ports.stores import Stores
from tests.contracts.bodies import BodiesContract
from tests.contracts.contacts import ContactsContract
from tests.contracts.groups import GroupsContract
from tests.contracts.inboxes import InboxesContract
from tests.contracts.notes import NotesContract
from tests.contracts.push_tokens import PushTokensContract
from tests.contracts.recent import RecentContract
from tests.contracts.routes import RoutesContract
from tests.contracts.sendkeys import SendKeysContract
from tests.contracts.sessions import SessionsContract
from tests.contracts.stores import StoresCase, StoresContract
from tests.contracts.unread import UnreadContract
from tests.contracts.users import UsersContract
from tests.engines import ValkeyProcess


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


class OnRedis(StoresCase):
    """Runs a contract in each state and layout.

    ``pending`` commits nothing, so that all is in the overlay; ``refused`` has a commit that fails each time;
    ``committed`` commits and goes on, ``begun`` in two steps; ``reopened`` commits and starts anew, with caches
    that hold next to nothing.
    """

    @pytest.fixture(params=["pending", "refused", "committed", "begun", "reopened", "reopened cluster"], autouse=True)
    def prepare(self, request: pytest.FixtureRequest, valkey: ValkeyProcess) -> Iterator[None]:
        kind: str = request.param
        self._is_reopened = "reopened" in kind
        self._is_committed = self._is_reopened or kind in ("committed", "begun")
        self._is_begun = kind == "begun"
        self._is_refused = kind == "refused"
        self._address = RedisAddress.parse(f"{valkey.url}?layout={'cluster' if 'cluster' in kind else 'seed'}")
        self._memory = MemoryStores()
        client = RedisClient(self._address)
        client.ask([("FLUSHALL",)])
        client.close()
        self._redis = self._opened()
        yield
        self._redis.close()

    def _opened(self) -> RedisStores:
        if self._is_reopened:
            return RedisStores(self._address, "n1", cached_users_max=2, kept_entries_max=3, cached_body_bytes=100)
        return RedisStores(self._address, "n1")

    def stores(self) -> Stores:
        return MixedStores(self._redis, [self._redis], timelines=self._memory.timelines)

    def settle(self) -> None:
        if self._is_refused:
            self._redis.client.gate = "refused on purpose"
            with pytest.raises(Unavailable, match="refused on purpose"):
                self._redis.commit({})
            self._redis.client.gate = ""
        if self._is_begun:
            self._redis.begin_commit({})
        if self._is_committed:
            self._redis.commit({})
        if self._is_reopened:
            self._redis.close()
            self._redis = self._opened()


class TestStores(OnRedis, StoresContract):
    pass


class TestUsers(OnRedis, UsersContract):
    pass


class TestContacts(OnRedis, ContactsContract):
    pass


class TestGroups(OnRedis, GroupsContract):
    pass


class TestUnread(OnRedis, UnreadContract):
    pass


class TestInboxes(OnRedis, InboxesContract):
    pass


class TestBodies(OnRedis, BodiesContract):
    pass


class TestPushTokens(OnRedis, PushTokensContract):
    pass


class TestRecent(OnRedis, RecentContract):
    pass


class TestSendKeys(OnRedis, SendKeysContract):
    pass


class TestNotes(OnRedis, NotesContract):
    pass


class TestSessions(SessionsContract):
    @pytest.fixture(autouse=True)
    def prepare(self, valkey: ValkeyProcess) -> Iterator[None]:
        self.client = RedisClient(RedisAddress.parse(valkey.url))
        self.client.ask([("FLUSHALL",)])
        self.life = 0
        yield
        self.client.close()

    def open_sessions(self) -> Sessions:
        self.life += 1000
        return RedisSessions(self.client, Keys("seed"), numbers_after=self.life)


class TestRoutes(RoutesContract):
    @pytest.fixture(autouse=True)
    def prepare(self, valkey: ValkeyProcess) -> Iterator[None]:
        self.client = RedisClient(RedisAddress.parse(valkey.url))
        self.client.ask([("FLUSHALL",)])
        yield
        self.client.close()

    def make_routes(self) -> Routes:
        return RedisRoutes(self.client, Keys("seed"))
