"""The messages between a gateway and the node whose clients it holds.

::

    gateway                                    node
    Hello            ──────────────────────▶   a name, a version
                     ◀──────────────────────   Welcome: this life's epoch, and how long silence is allowed
    LogIn            ──────────────────────▶
                     ◀──────────────────────   LoggedIn, or Refusal
    Request          ──────────────────────▶   an action of a session
                     ◀──────────────────────   Answer, or Refusal
    Acks, Lives      ──────────────────────▶   what clients hold; who lives
    Writing          ──────────────────────▶   who has not got yet what was pushed
                     ◀──────────────────────   Pushes, Event: for sessions
    LogOut           ──────────────────────▶
                     ◀──────────────────────   End: the node ends a session
    RoomAck          ──────────────────────▶
                     ◀──────────────────────   RoomFrame: one per gateway, whoever listens there
    Heartbeat        ──────────────────────▶
                     ◀──────────────────────   Alive
    Find             ──────────────────────▶   whose number has this name?
                     ◀──────────────────────   Found, or Refusal
    Call             ──────────────────────▶   an action without a session, asked over HTTP
                     ◀──────────────────────   Answer, or Refusal
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.inbox import NEED_ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pixiu.machines.room_link import Ack, Frame
    from pixiu.model.errors import PixiuError
    from pixiu.model.session import LogoutCause, Session

__all__ = [
    "ADMIN_PREFIX",
    "VERSION",
    "Acks",
    "Alive",
    "Answer",
    "Call",
    "End",
    "Event",
    "Find",
    "Found",
    "Heartbeat",
    "Hello",
    "Lives",
    "LogIn",
    "LogOut",
    "LoggedIn",
    "PushRow",
    "Pushes",
    "Refusal",
    "Request",
    "RoomAck",
    "RoomFrame",
    "Welcome",
    "WireMessage",
    "Writing",
]

VERSION = 4
"""Rises when a message changes. Both ends of a link are of one installation, so other versions are refused."""
ADMIN_PREFIX = "admin/"
"""What gateways put before the name of a question of an admin; no action is called so."""


NOTHING: Mapping[str, object] = {}


class Hello(NamedTuple):
    """A gateway is here. It holds no session of this link yet, whatever an earlier link had."""

    version: int
    name: str


class Welcome(NamedTuple):
    """It counts from now on, under this epoch, until the link ends or it is silent for the lease."""

    epoch: int
    lease_ms: int


class LogIn(NamedTuple):
    """A client whose token was good logs in. ``cursor``: it holds everything through there."""

    request: int
    user: str
    platform: str
    device: str
    cursor: int


class LoggedIn(NamedTuple):
    """It has a session."""

    request: int
    session: Session


class LogOut(NamedTuple):
    """A connection is gone, and its session with it; and why."""

    session_id: int
    cause: LogoutCause = "quit"


class Request(NamedTuple):
    """An action of the session's user. ``is_admin`` is what the token says."""

    request: int
    session_id: int
    is_admin: bool
    action: str
    params: Mapping[str, object]


class Answer(NamedTuple):
    """A request was done."""

    request: int
    result: Mapping[str, object]


class Refusal(NamedTuple):
    """A request or a login was not."""

    request: int
    error: PixiuError


class Acks(NamedTuple):
    """Sessions, and the cursors through which their clients hold everything."""

    acks: Sequence[tuple[int, int]]


class Lives(NamedTuple):
    """The clients of these sessions live."""

    session_ids: Sequence[int]


class Writing(NamedTuple):
    """The clients of these sessions have not got yet what was pushed to them: they cannot ack it."""

    session_ids: Sequence[int]


class PushRow(NamedTuple):
    """A push of ``machines.delivery`` for one session, its body given by its place in the frame."""

    session_id: int
    useq: int
    previous_useq: int
    body: int
    is_resend: bool
    needs_ack: bool
    origin: int
    options: int = NEED_ALL


class Pushes(NamedTuple):
    """Messages for sessions, in order. A body that many sessions get is there once."""

    bodies: Sequence[tuple[int, bytes]]
    """Message ids with bodies."""
    rows: Sequence[PushRow]
    users: Mapping[int, str]
    """The public ids of all users that the bodies name."""
    groups: Mapping[int, str]


class Event(NamedTuple):
    """Something live, the same for all of these sessions."""

    session_ids: Sequence[int]
    event: Mapping[str, object]


class End(NamedTuple):
    """A session is over; the client is told why."""

    session_id: int
    reason: str


class RoomFrame(NamedTuple):
    """What a broker sends to all who listen at a gateway."""

    source: str
    frame: Frame


class RoomAck(NamedTuple):
    """The answer to the broker called ``source``."""

    source: str
    ack: Ack


class Heartbeat(NamedTuple):
    """A gateway lives, has so many connections, and takes more of them or does not."""

    connections: int = 0
    is_open: bool = False
    counts: Mapping[str, object] = NOTHING
    """What it has counted since its start, for the node's metrics."""


class Alive(NamedTuple):
    """The node has heard the gateway's heartbeat: it does not stand still."""


class Find(NamedTuple):
    """Who has this public id? Where users are created on first use, nobody is unknown."""

    request: int
    user: str


class Found(NamedTuple):
    """The number; 0: there is no such user."""

    request: int
    number: int


class Call(NamedTuple):
    """An action without a session: a request over HTTP, or a question of an admin."""

    request: int
    user: int
    is_admin: bool
    platform: str
    device: str
    action: str
    params: Mapping[str, object]


WireMessage = (
    Hello
    | Welcome
    | LogIn
    | LoggedIn
    | LogOut
    | Request
    | Answer
    | Refusal
    | Acks
    | Lives
    | Writing
    | Pushes
    | Event
    | End
    | RoomFrame
    | RoomAck
    | Heartbeat
    | Alive
    | Find
    | Found
    | Call
)
