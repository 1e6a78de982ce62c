"""Who is connected where: soft state, repaired when it is read."""

from typing import Protocol

from pixiu.model.session import Session

__all__ = ["Sessions"]


class Sessions(Protocol):
    """Sessions by user, and the lives of gateways. Implementations pass ``tests/contracts/sessions.py``.

    A session counts only while its ``epoch`` is its gateway's current one: one new epoch invalidates all of a dead
    gateway's sessions at once.
    """

    def next_number(self, user: int) -> int:
        """A number for a new login: larger than any that this user had before."""
        ...

    def add(self, session: Session) -> None:
        """A login. The same ``session_id`` replaces itself."""
        ...

    def remove(self, user: int, session_id: int) -> bool:
        """A logout of exactly this session. True if it was there."""
        ...

    def of(self, user: int) -> list[Session]:
        """The live sessions of a user, newest first. Dead ones met on the way are removed."""
        ...

    def begin_epoch(self, gateway: str) -> int:
        """A gateway starts, or returns: its older sessions are dead from now on. Returns its new epoch."""
        ...

    def epoch_of(self, gateway: str) -> int:
        """A gateway's current epoch; 0 if it is unknown or has been declared dead."""
        ...

    def end_epoch(self, gateway: str) -> None:
        """A gateway is dead: so are its sessions."""
        ...
