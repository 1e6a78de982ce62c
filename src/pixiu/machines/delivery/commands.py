"""What a delivery tells its relay to do. Named tuples: one is made per batch, and they cost the least."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.inbox import NEED_ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "NOTHING",
    "AckInbox",
    "BodyLost",
    "CancelTimer",
    "Command",
    "Expire",
    "FetchBodies",
    "FetchIds",
    "Kick",
    "Push",
    "PushEarly",
    "PushTo",
    "Resend",
    "SetTimer",
    "TimerKind",
]


class Push(NamedTuple):
    """One message on its way to a client."""

    useq: int
    """0: an early copy of an urgent message. It has no cursor, and the message follows in its place."""
    previous_useq: int
    """The push that a client must hold before it takes this one. 0: none, this is the first after a login."""
    message_id: int
    body: bytes
    is_resend: bool
    needs_ack: bool
    """False: it counts as acked as soon as it was handed over, so nothing waits for it."""
    origin: int
    """The session that sent it, 0 if none."""
    options: int = NEED_ALL
    """The options that the publisher gave it."""


class TimerKind(Enum):
    """What a delivery waits for. At most one of them at a time."""

    REQUEST = "request"
    ACK = "ack"


class FetchIds(NamedTuple):
    """Read the inbox, then feed back ``ids_fetched`` with the same turn."""

    turn: int
    after: int
    limit: int


class FetchBodies(NamedTuple):
    """Read bodies, then feed back ``bodies_fetched`` with the same turn."""

    turn: int
    message_ids: list[int]


class PushTo(NamedTuple):
    """Hand these over for the first time, and note that they were handed."""

    session_id: int
    pushes: list[Push]
    others: list[Push]
    """What the other sessions of the platform get: the same, with what this session sent itself."""


class PushEarly(NamedTuple):
    """Urgent messages that wait behind others: hand each session a copy of them now, without a cursor.

    A copy is not a delivery: no row is written, and the messages follow in their places. Their ``useq`` says where.
    """

    pushes: list[Push]


class Resend(NamedTuple):
    """Hand these over again, and note that they were sent again."""

    session_id: int
    pushes: list[Push]


class AckInbox(NamedTuple):
    """Everything through here has arrived: note it. ``first`` is where the part begins that is new."""

    first: int
    through: int


class Expire(NamedTuple):
    """These waited too long and were not pushed: note it."""

    first: int
    through: int


class Kick(NamedTuple):
    """Close the session, with a reason for the client."""

    session_id: int
    reason: str


class BodyLost(NamedTuple):
    """An entry without a body: a tombstone is pushed in its place. Count it, someone must look."""

    useq: int
    message_id: int


class SetTimer(NamedTuple):
    """Feed back ``request_timed_out`` or ``ack_timed_out`` later; replaces the timer that runs."""

    kind: TimerKind
    attempt: int
    """From 0. A request waits twice as long each time."""


class CancelTimer(NamedTuple):
    """Nothing is waited for."""


Command = (
    FetchIds | FetchBodies | PushTo | PushEarly | Resend | AckInbox | Expire | Kick | BodyLost | SetTimer | CancelTimer
)

NOTHING: Sequence[Command] = ()
