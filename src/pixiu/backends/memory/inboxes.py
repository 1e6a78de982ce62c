"""``Inboxes`` on dicts."""

from itertools import islice

from pixiu.model.errors import LocalProtocolError
from pixiu.model.inbox import FIRST, Entry, InboxState, Page

__all__ = ["MemoryInboxes"]


class _Inbox:
    """One inbox. The floor is what lies below the oldest entry, or the newest useq if none waits."""

    def __init__(self) -> None:
        self.latest = 0
        self.event_id = 0
        self.entries: dict[int, Entry] = {}

    @property
    def floor(self) -> int:
        return min(self.entries) - 1 if self.entries else self.latest

    def take(self, first: int, through: int) -> list[Entry]:
        gone = [entry for useq, entry in self.entries.items() if first <= useq <= through]
        for entry in gone:
            del self.entries[entry.useq]
        return gone


class MemoryInboxes:
    """Per user: inboxes by platform, in the order of their opening."""

    def __init__(self) -> None:
        self._inboxes: dict[int, dict[str, _Inbox]] = {}

    def open(self, user: int, platform: str) -> bool:
        """Make sure that the inbox exists. True if it is new to this name."""
        inboxes = self._inboxes.setdefault(user, {})
        if platform in inboxes or (platform == FIRST and inboxes):
            return False
        inboxes[platform] = inboxes.pop(FIRST) if list(inboxes) == [FIRST] else _Inbox()
        return True

    def platforms(self, user: int) -> tuple[str, ...]:
        """The open inboxes of a user, in the order of their opening."""
        return tuple(self._inboxes.get(user, ()))

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Add an id to an open inbox, and return its useq; 0 if the event was added before."""
        inbox = self._find(user, platform)
        if inbox is None:
            raise LocalProtocolError(f"user {user} has no open inbox {platform!r}")
        if event_id <= inbox.event_id:
            return 0
        inbox.event_id = event_id
        inbox.latest += 1
        inbox.entries[inbox.latest] = Entry(inbox.latest, message_id, event_id, at, options, session)
        return inbox.latest

    def after(self, user: int, platform: str, after: int, limit: int) -> Page:
        """The first ``limit`` entries behind ``after``, in order."""
        inbox = self._find(user, platform)
        if inbox is None:
            return Page([], 0, 0)
        entries = (entry for useq, entry in inbox.entries.items() if useq > after)
        return Page(list(islice(entries, max(limit, 0))), inbox.floor, inbox.latest)

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Everything through here has arrived: returns the entries that leave."""
        return self.remove(user, platform, 0, through)

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Take out the entries of a range, and return them."""
        inbox = self._find(user, platform)
        return inbox.take(first, through) if inbox else []

    def state(self, user: int, platform: str) -> InboxState | None:
        """An inbox without its entries."""
        inbox = self._find(user, platform)
        if inbox is None:
            return None
        oldest = next(iter(inbox.entries.values()), None)
        return InboxState(
            user, platform, inbox.floor, inbox.latest, len(inbox.entries), oldest.at if oldest is not None else 0
        )

    def states(self, *, after: tuple[int, str] | None = None, limit: int = 1000) -> list[InboxState]:
        """Inboxes in the order of (user, platform), behind ``after``."""
        names = sorted((user, platform) for user, inboxes in self._inboxes.items() for platform in inboxes)
        chosen = [name for name in names if after is None or name > after][: max(limit, 0)]
        return [state for name in chosen if (state := self.state(*name))]

    def _find(self, user: int, platform: str) -> _Inbox | None:
        return self._inboxes.get(user, {}).get(platform)
