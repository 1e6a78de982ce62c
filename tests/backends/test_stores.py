"""The contracts of the messaging stores, on every backend, in every state that a row can be in."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.embedded.desk import Desk
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.sessions import EmbeddedSessions
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.backends.memory.recent import MemoryRecent
from pixiu.backends.memory.routes import LEFT_MAX, MemoryRoutes
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.conversation import Direct
from pixiu.model.errors import Unavailable
from pixiu.model.group import Group, Member, Role
from pixiu.model.inbox import InboxState
from pixiu.model.timeline import PrivateRow
from pixiu.ports.routes import Route, Routes
from pixiu.ports.sessions import Sessions
from pixiu.ports.stores import Lane, Stores
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
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
from tests.contracts.timelines import TimelinesContract
from tests.contracts.unread import UnreadContract
from tests.contracts.users import UsersContract

if TYPE_CHECKING:
    from pixiu.ports.keyvalue import KeyValue


class EveryBackend(StoresCase):
    """Runs a contract on each backend.

    ``memory`` is the reference. ``pending`` commits nothing, so that all is in the overlay; ``refused`` has a store
    that refuses each commit; ``committed`` and ``rocksdb`` commit and go on; ``small`` does so with caches that hold
    next to nothing; ``reopened`` commits and starts anew, on RocksDB too in ``rocksdb reopened``.
    """

    @pytest.fixture(
        params=["memory", "pending", "refused", "committed", "small", "reopened", "rocksdb", "rocksdb reopened"],
        autouse=True,
    )
    def prepare(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        kind: str = request.param
        self._is_reopened = "reopened" in kind
        self._is_committed = kind not in ("memory", "pending", "refused")
        self._is_small = kind == "small" or self._is_reopened
        self._refused = SimulatedKeyValue(StoreContent()) if kind == "refused" else None
        self._folder = tmp_path / "stores" if "rocksdb" in kind else None
        self._memory = self._refused or MemoryKeyValue()
        self._stores: Stores = MemoryStores() if kind == "memory" else self._opened()
        yield
        self._stores.close()

    def _opened(self) -> Stores:
        store: KeyValue = RocksKeyValue(self._folder, options=LARGE) if self._folder else self._memory
        if self._is_small:
            return EmbeddedStores(store, cached_users_max=2, kept_entries_max=3, cached_body_bytes=100)
        return EmbeddedStores(store)

    def stores(self) -> Stores:
        return self._stores

    def settle(self) -> None:
        if self._refused is not None:
            self._refused.fail_write = lambda: True
            with pytest.raises(Unavailable):
                self._stores.commit({})
            self._refused.fail_write = lambda: False
        if self._is_committed:
            self._stores.commit({})
        if self._is_reopened:
            self._stores.close()
            self._stores = self._opened()


class TestStores(EveryBackend, StoresContract):
    pass


class TestUsers(EveryBackend, UsersContract):
    pass


class TestContacts(EveryBackend, ContactsContract):
    pass


class TestPushTokens(EveryBackend, PushTokensContract):
    pass


class TestGroups(EveryBackend, GroupsContract):
    pass


class TestLargeGroups(EveryBackend, GroupsContract):
    """Members that are not held in memory: they are read and counted where they lie."""

    @pytest.fixture(autouse=True)
    def large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pixiu.backends.embedded.groups.CACHED_MEMBERS_MAX", 1)


class TestUnread(EveryBackend, UnreadContract):
    pass


class TestInboxes(EveryBackend, InboxesContract):
    @pytest.mark.feature("X56")
    def test_adding_an_event_twice_is_adding_it_once(self) -> None:
        super().test_adding_an_event_twice_is_adding_it_once()

    @pytest.mark.feature("X57", "X64")
    def test_entries_are_read_in_order_and_in_pages(self) -> None:
        super().test_entries_are_read_in_order_and_in_pages()

    @pytest.mark.feature("X58")
    def test_an_ack_takes_all_through_it_and_gives_them_back(self) -> None:
        super().test_an_ack_takes_all_through_it_and_gives_them_back()


class TestBodies(EveryBackend, BodiesContract):
    pass


class TestTimelines(EveryBackend, TimelinesContract):
    pass


class TestRecent(EveryBackend, RecentContract):
    pass


class TestSendKeys(EveryBackend, SendKeysContract):
    pass


class TestNotes(EveryBackend, NotesContract):
    pass


class TestMemorySessions(SessionsContract):
    """After a restart its numbers go on from what the node has kept."""

    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.life = 0

    def open_sessions(self) -> Sessions:
        self.life += 1000
        return MemorySessions(numbers_after=self.life)


class TestEmbeddedSessions(SessionsContract):
    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.content = StoreContent()

    def open_sessions(self) -> Sessions:
        return EmbeddedSessions(SimulatedKeyValue(self.content))


class TestMemoryRoutes(RoutesContract):
    def make_routes(self) -> Routes:
        return MemoryRoutes()

    def test_leaves_are_remembered_up_to_a_bound(self) -> None:
        routes = MemoryRoutes()
        for session_id in range(LEFT_MAX + 1):
            routes.leave(1, session_id, 5)
        assert not routes.enter(1, Route(5, 1, "g1", 4))
        assert routes.enter(1, Route(5, 0, "g1", 4))


@pytest.mark.feature("X45")
def test_recent_forgets_the_group_that_was_touched_longest_ago() -> None:
    recent = MemoryRecent(groups_max=2)
    for group in (1, 2):
        recent.warm(group, [(1, b"x")], is_all=True)
    recent.latest(1, 1)
    recent.warm(3, [], is_all=True)
    assert [recent.is_warm(group) for group in (1, 2, 3)] == [True, False, True]


def test_recent_forgets_whole_groups_when_bodies_are_large() -> None:
    recent = MemoryRecent(bytes_max=10_000)
    recent.warm(1, [(1, b"x" * 4000)], is_all=True)
    recent.warm(2, [(1, b"x" * 4000)], is_all=True)
    recent.push(2, 2, b"x" * 4000)
    assert [recent.count(group) for group in (1, 2)] == [0, 2]
    recent.replace(2, 2, b"x" * 9000)
    assert not recent.is_warm(2)
    recent.warm(3, [(1, b"x" * 9000)], is_all=True)
    recent.replace(3, 1, b"")
    recent.warm(4, [(1, b"x" * 9000)], is_all=True)
    assert recent.is_warm(3)


class CountingStore(MemoryKeyValue):
    """Counts what is read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.rows_written: list[bytes] = []
        self.rows_read = 0

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        written, deleted = list(puts), list(deletes)
        self.rows_written += [*(key for key, _ in written), *deleted]
        super().write(written, deleted)

    def _pairs(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for pair in super()._pairs(keys):
            self.rows_read += 1
            yield pair


@pytest.mark.feature("R13")
@pytest.mark.parametrize("peer", [None, 3])
def test_a_page_of_history_reads_only_the_rows_it_returns(peer: int | None) -> None:
    store = CountingStore()
    stores = EmbeddedStores(store)
    for number in range(1, 5001):
        stores.timelines.put_private(1, PrivateRow(number, number % 100, is_incoming=True))
        stores.timelines.put_private(2, PrivateRow(number, 3, is_incoming=True))
        if number % 500 == 0:
            stores.commit({})
    store.rows_read = 0
    assert len(stores.timelines.private_backward(1, before=4000, peer=peer, limit=20)) == 20
    assert store.rows_read <= 5
    store.rows_read = 0
    assert len(stores.timelines.private_forward(1, after=1000, peer=peer, limit=20)) == 20
    assert store.rows_read <= 6


def test_what_a_conversation_says_between_two_commits_is_one_row_per_side_and_order() -> None:
    store = CountingStore()
    stores = EmbeddedStores(store)
    for number in range(1, 41):
        stores.timelines.put_private(1, PrivateRow(number, 2, is_incoming=False))
        stores.timelines.put_private(2, PrivateRow(number, 1, is_incoming=True))
    stores.commit({})
    assert len(store.rows_written) == 5, "two per side, and the highest id"
    assert stores.timelines.mark(1, 7, read_at=99)
    stores.commit({})
    assert len(store.rows_written) == 6


def test_what_is_acked_before_the_commit_never_reaches_the_store() -> None:
    store = CountingStore()
    stores = EmbeddedStores(store)
    stores.inboxes.open(1, "ios")
    stores.commit({})
    store.rows_written.clear()
    for number in range(1, 101):
        stores.bodies.put(number, b"body", 1)
        stores.inboxes.add(1, "ios", message_id=number, event_id=number, at=1, options=7, session=0)
        for entry in stores.inboxes.ack(1, "ios", number):
            stores.bodies.release(entry.message_id)
    stores.commit({})
    assert len(store.rows_written) == 1, "the user's inboxes, with their counts"


def test_nothing_is_left_of_what_has_gone() -> None:
    store = CountingStore()
    stores = EmbeddedStores(store, kept_entries_max=5)
    stores.inboxes.open(1, "ios")
    stores.inboxes.open(2, "ios")
    stores.commit({})
    before = {key for key, _ in store.dump()}
    for number in range(1, 101):
        stores.inboxes.add(1, "ios", message_id=number, event_id=number, at=1, options=7, session=0)
        stores.bodies.put(number, b"body", 3)
        stores.bodies.release(number)
        stores.timelines.put_private(1, PrivateRow(number, number % 3, is_incoming=True))
        stores.unread.add(1, Direct(number % 3), number)
        if number % 30 == 0:
            stores.inboxes.add(2, "ios", message_id=number, event_id=number, at=1, options=7, session=0)
            stores.commit({})
            stores.bodies.release(number)
    stores.inboxes.remove(1, "ios", 50, 60)
    stores.inboxes.ack(1, "ios", 10)
    stores.inboxes.ack(1, "ios", 100)
    assert [entry.message_id for entry in stores.inboxes.ack(2, "ios", 2)] == [30, 60]
    stores.inboxes.ack(2, "ios", 3)
    for number in stores.timelines.drop_private(1, through=100):
        stores.bodies.release(number, 2)
    for peer in range(3):
        stores.unread.drop(1, Direct(peer))
    stores.commit({})
    left = {key for key, _ in store.dump()} - before
    assert left == {b"\x01high:bodies", b"\x01high:timelines"}


@pytest.mark.feature("X45")
def test_what_has_changed_is_not_lost_when_caches_are_too_small() -> None:
    stores = EmbeddedStores(MemoryKeyValue(), cached_users_max=2, kept_entries_max=1, cached_body_bytes=2)
    users = range(1, 101)
    for event_id in (1, 2, 3):
        for user in users:
            stores.inboxes.open(user, "ios")
            added = stores.inboxes.add(user, "ios", message_id=1, event_id=event_id, at=1, options=7, session=0)
            assert added == event_id
            assert stores.unread.add(user, Direct(5), event_id) == event_id
            assert stores.contacts.link(user, 5, 1) == (event_id == 1)
            assert stores.bodies.put(user, b"%d" % user, 5) == (event_id == 1)
            assert stores.bodies.release(user) == 5 - event_id
            stores.groups.put_member(user, Member(event_id, Role.MEMBER, 1, 1))
            assert len(stores.groups.members(user)) == event_id
            stores.groups.put(Group(user, f"g{user}", f"name {event_id}", "", 1))
        if event_id == 1:
            stores.commit({})
        for user in users:
            assert stores.inboxes.state(user, "ios") == InboxState(user, "ios", 0, event_id, event_id, 1)
            assert stores.bodies.get([user]) == {user: b"%d" % user}
            assert stores.groups.get(user) == Group(user, f"g{user}", f"name {event_id}", "", 1)
            assert stores.groups.number_of(f"g{user}") == user


def test_a_commit_that_fails_can_be_called_again() -> None:
    content = StoreContent()
    store = SimulatedKeyValue(content)
    stores = EmbeddedStores(store)
    stores.inboxes.open(1, "ios")
    stores.inboxes.add(1, "ios", message_id=9, event_id=1, at=1, options=7, session=0)
    stores.bodies.put(9, b"x" * 1000, 1)
    store.fail_write = lambda: True
    for _ in range(2):
        with pytest.raises(Unavailable):
            stores.commit({Lane.INBOXES: 1})
        assert stores.applied(Lane.INBOXES) == 0
        assert stores.pending_bytes > 1000
    assert EmbeddedStores(SimulatedKeyValue(content)).inboxes.platforms(1) == ()
    store.fail_write = lambda: False
    stores.commit({Lane.INBOXES: 1})
    assert stores.pending_bytes == 0
    again = EmbeddedStores(SimulatedKeyValue(content))
    assert again.applied(Lane.INBOXES) == 1
    assert [entry.message_id for entry in again.inboxes.after(1, "ios", 0, 9).entries] == [9]
    assert again.bodies.get([9]) == {9: b"x" * 1000}


def test_pending_bytes_follow_what_is_written() -> None:
    stores = EmbeddedStores(MemoryKeyValue())
    assert stores.pending_bytes == 0
    stores.bodies.put(1, b"x" * 5000, 1)
    assert 5000 < stores.pending_bytes < 6000
    stores.bodies.release(1)
    assert stores.pending_bytes < 100
    stores.inboxes.open(1, "ios")
    for number in range(1, 101):
        stores.inboxes.add(1, "ios", message_id=number, event_id=number, at=1, options=7, session=0)
    assert 4000 < stores.pending_bytes < 8000
    stores.commit({})
    assert stores.pending_bytes == 0


def test_a_page_of_inboxes_makes_no_rows_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a million are read page by page, beside what changes: a page costs what it has, not what has changed."""
    stores = EmbeddedStores(MemoryKeyValue())
    for user in range(1, 101):
        stores.inboxes.open(user, "ios")
    made: list[int] = []
    encoded = Desk.encoded

    def counted(desk: Desk) -> bytes:
        made.append(desk.user)
        return encoded(desk)

    monkeypatch.setattr(Desk, "encoded", counted)
    pending = stores.pending_bytes
    page = stores.inboxes.states(after=(50, "ios"), limit=10)
    assert [state.user for state in page] == list(range(51, 61))
    assert set(made) <= set(range(50, 62)) and stores.pending_bytes == pending
