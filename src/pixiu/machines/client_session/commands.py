"""What the session of a client tells the program around it to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.model.errors import PixiuError, Unavailable

if TYPE_CHECKING:
    from pixiu.machines.client_session.values import Event

__all__ = [
    "Answered",
    "Arrived",
    "Command",
    "Connect",
    "Drop",
    "Ended",
    "FateUnknown",
    "Hurry",
    "Incoming",
    "Kicked",
    "Tell",
    "Write",
]


class FateUnknown(Unavailable):
    """The connection broke after the request went out: it may have been done, or not.

    What can be repeated safely is repeated by the session itself; this is not, or its time is over.
    """


class Kicked(PixiuError):
    """The server has ended this session and wants no other one now: ``new_session``, or an administrator's reason."""

    code = "forbidden"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the server has ended this session: {reason}")
        self.reason = reason


class Incoming(NamedTuple):
    """Something in the order of the inbox."""

    message: dict[str, Any] | None
    """As the server says it. None: only the cursor counts."""
    cursor: int
    """What to ack once it is held; 0 for what needs no ack."""
    generation: int
    """Of the numbering of cursors; to be given back with the cursor."""
    is_shown: bool
    """False: to be kept, and not shown: a recall, or what this very client has sent."""


class Connect(NamedTuple):
    """Open a connection, then tell ``opened`` or ``failed``. ``needs_token``: the last token was refused."""

    cursor: int
    needs_token: bool


class Write(NamedTuple):
    """Send a text frame."""

    payload: bytes


class Drop(NamedTuple):
    """Give the connection up. Nothing more of it is to be told to the session."""


class Arrived(NamedTuple):
    """Hold this, show it, then tell ``held`` with its cursor."""

    items: list[Incoming]


class Hurry(NamedTuple):
    """Show this urgent message before everything that waits. It arrives again, in its place and with its cursor."""

    message: dict[str, Any]


class Tell(NamedTuple):
    """Something live."""

    event: Event


class Answered(NamedTuple):
    """A request is over."""

    number: int
    answer: dict[str, Any] | PixiuError


class Ended(NamedTuple):
    """There is no session any more, and no other will be tried."""

    error: PixiuError | None


Command = Connect | Write | Drop | Arrived | Hurry | Tell | Answered | Ended
