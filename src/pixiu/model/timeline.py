"""Rows of timelines, and pages of them."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

__all__ = ["GroupRow", "PrivateRow", "State"]


class State(IntEnum):
    """Column ``st`` of seed 004, with recall."""

    NORMAL = 0
    DELIVERED = 1
    READ = 2
    RECALLED = 5


class PrivateRow(NamedTuple):
    """One message in one user's private timeline. The same message has a second row at the other side."""

    message_id: int
    peer: int
    is_incoming: bool
    state: int = 0
    delivered_at: int = 0
    read_at: int = 0


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One message in a group's timeline. Written once, read by all members."""

    message_id: int
    from_user: int
    previous: int
    """The group's message before this one, 0 for the first."""
    state: int = 0
