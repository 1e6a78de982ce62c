"""What the carrier tells the relay: an inbox has grown."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pixiu.model.inbox import Entry

__all__ = ["Wake"]


class Wake(NamedTuple):
    """An inbox has grown, and the stores have it all. Entries with bodies spare the relay a read."""

    user: int
    platform: str
    latest: int
    """The inbox's newest useq."""
    entries: Sequence[Entry]
    """What is new, in order."""
    bodies: Mapping[int, bytes] | None
    """Bodies by message_id; of some other messages too, where that is easier."""
