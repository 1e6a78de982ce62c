"""``Stores`` on one ``KeyValue``: what one node derives from the log.

Writes go to one overlay and are seen at once. A commit is one batch of the store below, with the event ids that the
lanes have reached: after a crash the store holds the effect of some first n commits, and the lanes go on from there.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pixiu.backends.embedded.bodies import EmbeddedBodies
from pixiu.backends.embedded.contacts import EmbeddedContacts
from pixiu.backends.embedded.groups import EmbeddedGroups
from pixiu.backends.embedded.inboxes import EmbeddedInboxes
from pixiu.backends.embedded.layout import META, number
from pixiu.backends.embedded.notes import EmbeddedNotes
from pixiu.backends.embedded.overlay import Overlay
from pixiu.backends.embedded.push_tokens import EmbeddedPushTokens
from pixiu.backends.embedded.sendkeys import EmbeddedSendKeys
from pixiu.backends.embedded.timelines import EmbeddedTimelines
from pixiu.backends.embedded.unread import EmbeddedUnread
from pixiu.backends.embedded.users import EmbeddedUsers
from pixiu.backends.memory.recent import MemoryRecent
from pixiu.ports.keyvalue import KeyValue
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.contacts import Contacts
    from pixiu.ports.groups import Groups
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.notes import Notes
    from pixiu.ports.push_tokens import PushTokens
    from pixiu.ports.recent import Recent
    from pixiu.ports.sendkeys import SendKeys
    from pixiu.ports.timelines import Timelines
    from pixiu.ports.unread import Unread
    from pixiu.ports.users import Users

__all__ = ["EmbeddedStores"]


class EmbeddedStores:
    """All stores of a node, on one ordered key-value store, which it closes.

    ``cached_users_max`` is how many users have their inboxes and profiles in memory, other caches are in proportion:
    about 100 MiB when all of it is used. ``kept_entries_max`` is how many entries of one inbox stay there once they are
    written, ``cached_body_bytes`` how much of the newest bodies.
    """

    def __init__(
        self,
        store: KeyValue,
        *,
        cached_users_max: int = 40_000,
        kept_entries_max: int = 64,
        cached_body_bytes: int = 32 * 2**20,
    ) -> None:
        self._store = store
        self._overlay = overlay = Overlay(store)
        # In the order of their keys: what they save then comes sorted.
        groups = EmbeddedGroups(overlay, cached_max=cached_users_max, cached_members_max=8 * cached_users_max)
        inboxes = EmbeddedInboxes(overlay, cached_max=cached_users_max, kept_max=kept_entries_max)
        bodies = EmbeddedBodies(overlay, cached_bytes=cached_body_bytes, counts_max=4 * cached_users_max)
        unread = EmbeddedUnread(overlay, cached_max=4 * cached_users_max)
        keys = EmbeddedSendKeys(overlay)
        timelines = EmbeddedTimelines(overlay)
        self.users: Users = EmbeddedUsers(overlay, cached_max=cached_users_max)
        self.contacts: Contacts = EmbeddedContacts(overlay, cached_max=cached_users_max)
        self.groups: Groups = groups
        self.push_tokens: PushTokens = EmbeddedPushTokens(overlay)
        self.inboxes: Inboxes = inboxes
        self.bodies: Bodies = bodies
        self.unread: Unread = unread
        self.keys: SendKeys = keys
        self.notes: Notes = EmbeddedNotes(overlay)
        self.timelines: Timelines = timelines
        self.recent: Recent = MemoryRecent()
        self._parts = groups, inboxes, bodies, unread, keys, timelines
        self._applied = {lane: int.from_bytes(store.get(_key(lane)) or b"", "big") for lane in Lane}

    @property
    def pending_bytes(self) -> int:
        """About how much the next commit writes."""
        return self._overlay.pending_bytes + sum(part.pending_bytes for part in self._parts)

    def problems(self) -> list[str]:
        """They are a part of this process: none."""
        return []

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached."""
        return self._applied[lane]

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Write everything as one batch, with the event ids. Raises ``Unavailable``, and may then be called again.

        A batch survives a killed process at once, and a lost machine after ``flush``.
        """
        rows = [(_key(lane), number.pack(event_id)) for lane, event_id in applied.items()]
        self._overlay.commit(rows)
        self._applied.update(applied)

    def bodies_applied(self, lane: Lane) -> int:
        """The bodies are here, with everything else."""
        return self.applied(lane)

    def begin_again(self) -> None:
        """Nothing is lost here that is not lost with the process."""

    def flush(self) -> None:
        """Return when every commit is on the disk: before the log may forget what they hold."""
        self._store.flush()

    def close(self) -> None:
        """Let go, without a commit."""
        self._store.close()


def _key(lane: Lane) -> bytes:
    return META + b"lane:" + lane.value.encode()
