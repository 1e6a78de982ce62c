"""What a device holds that comes back with a cursor: what it has sent itself counts, and nobody has told it so.

A send enters the sender's own inbox, for the sender's other devices. To the session that sent it, it counts as acked:
the inbox's floor moves past it, and the cursor that the client knows does not. Taken at its word the client would miss
something, and be told of a gap that holds nothing but its own words.

What is known of devices that left is bounded and lives as long as the relay. Beyond that there is the gap, in which
clients find nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.roles.relay.live import LiveInbox, LiveSession

__all__ = ["LEFT_MAX", "Resuming"]

LEFT_MAX = 10_000
"""Devices that left right behind something they had sent; the oldest are forgotten."""


class Resuming:
    """Pairs of the cursor that a device knows, and how far it holds everything."""

    def __init__(self, left_max: int = LEFT_MAX) -> None:
        self._left_max = left_max
        self._left: dict[tuple[int, str, str], tuple[int, int]] = {}

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
            if len(self._left) > self._left_max:
                del self._left[next(iter(self._left))]

    def holds(self, live: LiveSession, cursor: int) -> int:
        """How far a session holds everything that names this cursor."""
        delivery, (told, held) = live.inbox.delivery, live.resumed
        if _is_newest(live):
            told, held = delivery.told, delivery.held
        return held if told == cursor else cursor


def _is_newest(live: LiveSession) -> bool:
    """Is the inbox's delivery that of this session? Of the others the relay does not know what they hold."""
    newest = live.inbox.delivery.session
    return newest is not None and newest.session_id == live.session.session_id
