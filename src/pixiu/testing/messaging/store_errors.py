"""The errors of ``mutants`` that are errors of stores: each wraps one store of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.model.inbox import NEED_NOTIFICATION, Entry, Page
from pixiu.roles.relay.deliveries import Deliveries

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.messaging.errors import Patch
    from pixiu.testing.messaging.node import Node

__all__ = ["adds_again", "counts_again", "late", "late_for_pulls", "swapped", "type_first"]

ALL = 1_000_000
FAR = 2**60
LATE_US = 400_000


class Wrapped:
    """A store in which one thing is wrong."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TrimmedById(Wrapped):
    """An inbox whose acks remove everything up to an id, in an order that is not that of arrival."""

    def __init__(self, store: Any, number: Callable[[Entry], object]) -> None:
        super().__init__(store)
        self._number: Callable[[Entry], Any] = number

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Remove through the id of the newest entry that was acked."""
        entries = self._store.after(user, platform, 0, ALL).entries
        acked = [entry for entry in entries if entry.useq <= through]
        if not acked:
            return []
        bound = max(self._number(entry) for entry in acked)
        gone: list[Entry] = []
        for entry in entries:
            if self._number(entry) <= bound:
                gone += self._store.remove(user, platform, entry.useq, entry.useq)
        return gone


def type_first(node: Node) -> None:
    """E21: the type byte stands above the counter."""
    node.stores.inboxes = TrimmedById(
        node.stores.inboxes, lambda entry: (2 if entry.options & NEED_NOTIFICATION else 1, entry.message_id)
    )


def swapped(node: Node) -> None:
    """Two give numbers, and neighbours may come in the other order."""

    def number(entry: Entry) -> int:
        first = entry.useq & ~1
        return first if entry.useq != first and entry.message_id % 3 else entry.useq + (entry.useq == first)

    node.stores.inboxes = TrimmedById(node.stores.inboxes, number)


class LateStore(Wrapped):
    """What is stored for someone who is away can be read only a while later, and nobody is told when."""

    def __init__(self, store: Any, node: Node) -> None:
        super().__init__(store)
        self._node = node
        self._readable_us: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.is_pull = False
        """Is it the relay that reads?"""

    def add(self, user: int, platform: str, *arguments: Any, **named: Any) -> int:
        """Store it; keep it out of sight if its owner is away."""
        useq = int(self._store.add(user, platform, *arguments, **named))
        relay = self._node.messaging.relay
        if useq and relay._find(user, platform) is None:
            readable_us = self._node.clock.monotonic_us() + LATE_US
            self._readable_us.setdefault((user, platform), []).append((useq, readable_us))
        return useq

    def after(self, user: int, platform: str, after: int, limit: int) -> Page:
        """What can be read by now."""
        page: Page = self._store.after(user, platform, after, limit)
        if not self.is_pull:
            return page
        now_us = self._node.clock.monotonic_us()
        late = [useq for useq, at in self._readable_us.get((user, platform), ()) if at > now_us]
        if not late:
            return page
        first = min(late)
        return Page([entry for entry in page.entries if entry.useq < first], page.floor, max(first - 1, page.floor))


def late(node: Node) -> None:
    """T6."""
    node.stores.inboxes = LateStore(node.stores.inboxes, node)


def late_for_pulls(patch: Patch) -> None:
    """T6: only deliveries find it late; whoever writes the store knows what is in it."""
    original = Deliveries._fetch

    def fetch(self: Deliveries, *arguments: Any) -> Any:
        store: Any = self._inboxes
        store = getattr(store, "late_store", store)
        store.is_pull = True
        try:
            return original(self, *arguments)
        finally:
            store.is_pull = False

    patch.set(Deliveries, "_fetch", fetch)


class AddsAgain(Wrapped):
    """An inbox that does not know an event that it has."""

    _count = 0

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Add, whatever was added."""
        useq = int(self._store.add(user, platform, message_id, event_id, at, options, session))
        if useq == 0:
            AddsAgain._count += 1
            again = FAR + AddsAgain._count
            useq = int(self._store.add(user, platform, message_id, again, at, options, session))
        return useq


def adds_again(node: Node) -> None:
    """An applier that is not idempotent."""
    node.stores.inboxes = AddsAgain(node.stores.inboxes)


class CountsAgain(Wrapped):
    """Counters that do not know an event that they have."""

    _count = 0

    def add(self, user: int, conversation: Any, event_id: int) -> int:
        """Count, whatever was counted."""
        before = self._store.get(user, conversation)
        count = int(self._store.add(user, conversation, event_id))
        if count == before:
            CountsAgain._count += 1
            count = int(self._store.add(user, conversation, FAR + CountsAgain._count))
        return count


def counts_again(node: Node) -> None:
    """Unread counts that a replay raises."""
    node.stores.unread = CountsAgain(node.stores.unread)
