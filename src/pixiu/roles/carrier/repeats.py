"""How far back the carrier looks for what it has appended before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.ports.log import Log

__all__ = ["since"]

WINDOW = 10_000
"""A carrier that takes over repeats what the stores had not committed: far fewer events than this.

A carrier that is far behind must not make the writer read its whole past for every key.
"""


def since(queue: Log, event_id: int) -> int:
    """The event behind which a repeat of something that this event caused is looked for."""
    return max(event_id, queue.committed - WINDOW)
