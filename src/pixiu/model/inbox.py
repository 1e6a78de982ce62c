"""Inboxes: what waits for a user's platform."""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["FIRST", "NEED_ACK", "NEED_ALL", "NEED_NOTIFICATION", "NEED_OFFLINE", "Entry", "InboxState", "Page"]

FIRST = "first"
"""The inbox of a user who has never logged in. The first platform takes it over."""

NEED_ACK = 1
NEED_OFFLINE = 2
NEED_NOTIFICATION = 4
NEED_ALL = NEED_ACK | NEED_OFFLINE | NEED_NOTIFICATION


class Entry(NamedTuple):
    """One id that waits. A reference: the body is in xiu."""

    useq: int
    message_id: int
    event_id: int
    at: int
    """When the message was accepted; expiry counts from here."""
    options: int
    session: int
    """The session that sent it, 0 if none: it is not pushed back there."""


class Page(NamedTuple):
    """The answer to a read of an inbox."""

    entries: list[Entry]
    floor: int
    """Everything through here has been acked, or has expired."""
    latest: int
    """The newest useq that was ever given."""


@dataclass(frozen=True, slots=True)
class InboxState:
    """One inbox without its entries."""

    user: int
    platform: str
    floor: int
    latest: int
    waiting: int
    """How many entries are there now."""
    oldest_at: int
    """When the oldest entry that waits was accepted, 0 if none waits."""
