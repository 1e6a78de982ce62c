"""``Stores`` from several engines: rosters and inboxes here, timelines there.

Each part commits by itself, with the event ids of the lanes, and knows how far it has got; a lane has got as far as the
part that is furthest behind. So after a crash between two commits the lane applies some records again to a part that
has them: every part drops what it has already, by the event id it has reached. ``base`` commits first, so no other part
is ever ahead of it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pixiu.ports.stores import Begins, Lane
from pixiu.ports.timelines import Timelines

if TYPE_CHECKING:
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.contacts import Contacts
    from pixiu.ports.groups import Groups
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.notes import Notes
    from pixiu.ports.push_tokens import PushTokens
    from pixiu.ports.recent import Recent
    from pixiu.ports.sendkeys import SendKeys
    from pixiu.ports.streams import Streams
    from pixiu.ports.unread import Unread
    from pixiu.ports.users import Users

__all__ = ["Base", "MixedStores", "StorePart"]


class StorePart(Protocol):
    """One engine's share of the stores."""

    @property
    def pending_bytes(self) -> int:
        """About how much the next commit writes."""
        ...

    def problems(self) -> list[str]:
        """Why it cannot be asked now; empty if all is well."""
        ...

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached here; a very high one for a lane that has nothing here."""
        ...

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Make what was written durable, with the event ids it brings the lanes to. Raises ``Unavailable``."""
        ...

    def begin_again(self) -> None:
        """It has lost what it had: go on from what it has. Raises ``Unavailable``."""
        ...

    def flush(self) -> None:
        """Return when every commit would survive the loss of a machine."""
        ...

    def close(self) -> None:
        """Let go, without a commit."""
        ...


class Base(StorePart, Protocol):
    """An engine that holds everything, but timelines perhaps."""

    users: "Users"
    contacts: "Contacts"
    groups: "Groups"
    push_tokens: "PushTokens"
    inboxes: "Inboxes"
    bodies: "Bodies"
    unread: "Unread"
    keys: "SendKeys"
    notes: "Notes"
    recent: "Recent"


class MixedStores:
    """``base`` holds everything that no other engine holds."""

    def __init__(self, base: Base, parts: Sequence[StorePart], *, timelines: Timelines) -> None:
        """``parts`` are all engines with something of their own to commit, ``base`` first among them."""
        self.users: Users = base.users
        self.contacts: Contacts = base.contacts
        self.groups: Groups = base.groups
        self.push_tokens: PushTokens = base.push_tokens
        self.inboxes: Inboxes = base.inboxes
        self.bodies: Bodies = base.bodies
        self.unread: Unread = base.unread
        self.keys: SendKeys = base.keys
        self.notes: Notes = base.notes
        self.recent: Recent = base.recent
        self.timelines: Timelines = timelines
        self.streams: Streams | None = getattr(base, "streams", None)
        self.base = base
        self.parts = parts

    @property
    def pending_bytes(self) -> int:
        """About how much the next commit writes."""
        return sum(part.pending_bytes for part in self.parts)

    def problems(self) -> list[str]:
        """Why some part cannot be asked."""
        return [problem for part in self.parts for problem in part.problems()]

    def bodies_applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached where the bodies are: their references are counted to there."""
        return self.base.applied(lane)

    def over(self, part: StorePart, timelines: Timelines) -> "MixedStores":
        """The same, with timelines in one more engine."""
        return MixedStores(self.base, [*self.parts, part], timelines=timelines)

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached in every part."""
        return min(part.applied(lane) for part in self.parts)

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Commit every part; one that is down keeps what it has for the next time. Raises ``Unavailable``."""
        for part in self.parts:
            part.commit(applied)

    def begin_commit(self, applied: Mapping[Lane, int]) -> bool:
        """Have the base begin what ``commit`` will end, if it can; no other part is ahead of it meanwhile."""
        return isinstance(self.base, Begins) and self.base.begin_commit(applied)

    def is_answered(self, waited_ms: int) -> bool:
        """Of a commit that was begun so long ago: does ``commit`` end it without waiting for the base?"""
        return not isinstance(self.base, Begins) or self.base.is_answered(waited_ms)

    def begin_again(self) -> None:
        """Parts that have lost what they had go on from what they have. Raises ``Unavailable``."""
        for part in self.parts:
            part.begin_again()

    def flush(self) -> None:
        """Return when every commit is safe."""
        for part in self.parts:
            part.flush()

    def close(self) -> None:
        """Let go of every part, without a commit."""
        for part in self.parts:
            part.close()
