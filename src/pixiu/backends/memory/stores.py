"""``Stores`` in memory: the reference that every other one is compared with. Nothing survives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pixiu.backends.memory.bodies import MemoryBodies
from pixiu.backends.memory.contacts import MemoryContacts
from pixiu.backends.memory.groups import MemoryGroups
from pixiu.backends.memory.inboxes import MemoryInboxes
from pixiu.backends.memory.notes import MemoryNotes
from pixiu.backends.memory.push_tokens import MemoryPushTokens
from pixiu.backends.memory.recent import MemoryRecent
from pixiu.backends.memory.sendkeys import MemorySendKeys
from pixiu.backends.memory.timelines import MemoryTimelines
from pixiu.backends.memory.unread import MemoryUnread
from pixiu.backends.memory.users import MemoryUsers
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

__all__ = ["MemoryStores"]


class MemoryStores:
    """All stores of a node, on dicts."""

    def __init__(self) -> None:
        self.users: Users = MemoryUsers()
        self.contacts: Contacts = MemoryContacts()
        self.groups: Groups = MemoryGroups()
        self.push_tokens: PushTokens = MemoryPushTokens()
        self.inboxes: Inboxes = MemoryInboxes()
        self.bodies: Bodies = MemoryBodies()
        self.unread: Unread = MemoryUnread()
        self.keys: SendKeys = MemorySendKeys()
        self.notes: Notes = MemoryNotes()
        self.timelines: Timelines = MemoryTimelines()
        self.recent: Recent = MemoryRecent()
        self._applied: dict[Lane, int] = {}

    @property
    def pending_bytes(self) -> int:
        """Nothing is written."""
        return 0

    def problems(self) -> list[str]:
        """They are a part of this process: none."""
        return []

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has reached with a commit."""
        return self._applied.get(lane, 0)

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Note the event ids. There is nothing to make durable."""
        self._applied.update(applied)

    def bodies_applied(self, lane: Lane) -> int:
        """The bodies are here, with everything else."""
        return self.applied(lane)

    def begin_again(self) -> None:
        """Nothing is lost here that is not lost with the process."""

    def flush(self) -> None:
        """Nothing is on a disk."""

    def close(self) -> None:
        """Nothing to let go of."""
