"""pi: the ids that wait, per user and platform.

An inbox has a dense sequence of its own, ``useq``, that rises with each entry and is the only cursor. Entries leave by
ack (everything through a useq), by removal (a range: expired, dead), or when there are more than the cap (the oldest).
"""

from typing import Protocol

from pixiu.model.inbox import Entry, InboxState, Page

__all__ = ["Inboxes"]


class Inboxes(Protocol):
    """Every inbox. Implementations pass ``tests/contracts/inboxes.py``."""

    def open(self, user: int, platform: str) -> bool:
        """Make sure that the inbox exists. True if it is new to this name.

        A user's first inbox is named ``first``; opening any other platform while it is the only one gives it that name,
        with all that waits in it.
        """
        ...

    def platforms(self, user: int) -> tuple[str, ...]:
        """The open inboxes of a user, in the order of their opening."""
        ...

    def add(self, user: int, platform: str, message_id: int, event_id: int, at: int, options: int, session: int) -> int:
        """Add an id to an open inbox, and return its useq. Adding an event twice is adding it once: returns 0."""
        ...

    def after(self, user: int, platform: str, after: int, limit: int) -> Page:
        """The first ``limit`` entries behind ``after``, in order. An inbox that is not open is empty."""
        ...

    def ack(self, user: int, platform: str, through: int) -> list[Entry]:
        """Everything through here has arrived: returns the entries that leave. Going back changes nothing."""
        ...

    def remove(self, user: int, platform: str, first: int, through: int) -> list[Entry]:
        """Take out the entries of a range, and return them. The floor moves over what is gone at the front."""
        ...

    def state(self, user: int, platform: str) -> InboxState | None:
        """An inbox without its entries."""
        ...

    def states(self, *, after: tuple[int, str] | None = None, limit: int = 1000) -> list[InboxState]:
        """Inboxes in the order of (user, platform), behind ``after``: for sweeps and audits."""
        ...
