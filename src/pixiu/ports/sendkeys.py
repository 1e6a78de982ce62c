"""Which sends were accepted: how a repeat gets the first answer, whichever door it comes through."""

from typing import NamedTuple, Protocol

__all__ = ["SendKeys", "Sent"]


class Sent(NamedTuple):
    """What a send was given."""

    message_id: int
    event_id: int
    at: int


class SendKeys(Protocol):
    """(user, send_id) to what was accepted, as long as the log is kept. ``tests/contracts/sendkeys.py``."""

    def get(self, key: bytes) -> Sent | None:
        """The first send with this key."""
        ...

    def put(self, key: bytes, sent: Sent) -> None:
        """Note a send; the first one under a key stays."""
        ...
