"""What a device holds that comes back with a cursor: what it has sent itself counts, and nobody has told it so.

A send enters the sender's own inbox, for the sender's other devices. To the session that sent it, it counts as acked:
the inbox's floor moves past it, and the cursor that the client knows does not. Taken at its word the client would miss
something, and be told of a gap that holds nothing but its own words.

And whoever leaves and comes back at once may be quicker than the rows that say what was acked: the next delivery of
that inbox begins behind it all the same.

What is known of those who left is bounded and lives as long as the relay. Beyond that there is the gap, in which
clients find nothing new, and a repeat, which they know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pixiu.roles.relay.live import LiveInbox, LiveSession

__all__ = ["LEFT_MAX", "Resuming"]

K = TypeVar("K")
V = TypeVar("V")

LEFT_MAX = 10_000
"""Devices that left right behind something they had sent, and inboxes that were acked; the oldest are forgotten."""


class Resuming:
    """Pairs of the cursor that a device knows, and how far it holds everything."""

    def __init__(self, left_max: int = LEFT_MAX) -> None:
        self._left_max = left_max
        self._left: dict[tuple[int, str, str], tuple[int, int]] = {}
        self._acked: dict[tuple[int, str], int] = {}

    def __len__(self) -> int:
        return len(self._left)

    def came(self, inbox: LiveInbox, device: str, cursor: int) -> tuple[int, int]:
        """The pair of a device that logs in with this cursor, perhaps before its last session was seen to end."""
        user, platform = inbox.key
        pair = self._left.pop((user, platform, device), None)
        delivery = inbox.delivery
        if delivery.session is not None and delivery.session.device == device:
            pair = delivery.told, delivery.held
        return pair if cursor and pair is not None and pair[0] == cursor else (cursor, cursor)

    def leaves(self, live: LiveSession) -> None:
        """A session ends."""
        session, delivery = live.session, live.inbox.delivery
        if delivery.held > delivery.told and _is_newest(live):
            self._left[session.user, session.platform, session.device] = delivery.told, delivery.held
            _bound(self._left, self._left_max)

    def dropped(self, inbox: LiveInbox) -> None:
        """Nobody is there for an inbox any more."""
        if inbox.delivery.acked_through:
            self._acked[inbox.key] = inbox.delivery.acked_through
            _bound(self._acked, self._left_max)

    def opened(self, inbox: LiveInbox) -> None:
        """Somebody is there for an inbox: what was acked before is not delivered again."""
        delivery = inbox.delivery
        acked = self._acked.pop(inbox.key, 0)
        delivery.acked_through = delivery.fetched_through = delivery.latest = acked

    def holds(self, live: LiveSession, cursor: int) -> int:
        """How far a session holds everything that names this cursor."""
        delivery, (told, held) = live.inbox.delivery, live.resumed
        if _is_newest(live):
            told, held = delivery.told, delivery.held
        return held if told == cursor else cursor


def _bound(memory: dict[K, V], most: int) -> None:
    """Forget the oldest beyond the bound."""
    if len(memory) > most:
        del memory[next(iter(memory))]


def _is_newest(live: LiveSession) -> bool:
    """Is the inbox's delivery that of this session? Of the others the relay does not know what they hold."""
    newest = live.inbox.delivery.session
    return newest is not None and newest.session_id == live.session.session_id
