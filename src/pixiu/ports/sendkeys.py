"""Which sends were accepted: how a repeat gets the first answer, whichever door it comes through.

A key begins with the number of who has sent, 8 bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["SendKeys", "Sent", "SentPage"]


class Sent(NamedTuple):
    """What a send was given."""

    message_id: int
    event_id: int
    at: int


class SentPage(NamedTuple):
    """Some of a user's sends."""

    sent: list[tuple[bytes, Sent]]
    after: bytes | None
    """Where the next page begins; None if there is none."""


class SendKeys(Protocol):
    """(user, send_id) to what was accepted, as long as history is kept. ``tests/contracts/sendkeys.py``."""

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        ...

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Sent]:
        """Those of these keys that were used, with their first sends."""
        ...

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        ...

    def page(self, user: int, after: bytes, limit: int) -> SentPage:
        """About ``limit`` of a user's sends that are committed, in any order; ``after`` is empty, or a page's."""
        ...

    def drop(self, key: bytes, through: int) -> None:
        """Retention: forget the send under a key, if it was given a message id up to here."""
        ...
