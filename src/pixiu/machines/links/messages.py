"""What the roles of a cluster say to each other.

::

    anyone     ──Beat──▶ ◀──BeatBack──  anyone         alive, and handling what it is given (M3)
    publisher  ──Talk──▶ proxy ──Talk──▶ broker ──RoomFrame──▶ gateway      something said in a room
    publisher  ◀─Taken─  proxy                                              it is on its way
    publisher  ◀─Settled─ proxy ◀─Settled─ broker ◀─RoomAck─ gateway        every gateway has it (reliable only)
    publisher  ◀─Declined─ proxy ◀─Declined─ broker                         it is not: why, and when to try again

    source     ──News──▶ sink           who came and went, numbered: gateway to router, router to broker
    source     ──Reach──▶ sink          how far the numbers go, and what the rows come to
    source     ◀──Want── sink           what has come so far, and the holes in it; also a subscription
    source     ◀──AskRoutes── sink      a snapshot, please
    source     ──Routes──▶ sink         a page of it

Everything is a plain tuple of numbers, texts and bytes. In one process the roles pass these very objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.machines.room_link import Ack, Frame
    from pixiu.machines.routes import Digest, RouteRow
    from pixiu.machines.scheduling import Priority
    from pixiu.machines.seqlog import Missing
    from pixiu.machines.view import PeerState

__all__ = [
    "FROM_GATEWAY",
    "SESSIONS",
    "TO_BROKER",
    "AskRoutes",
    "Beat",
    "BeatBack",
    "ClusterMessage",
    "Declined",
    "News",
    "Reach",
    "RoomAck",
    "RoomFrame",
    "Routes",
    "Settled",
    "SliceSettled",
    "StreamKey",
    "Taken",
    "Talk",
    "Want",
]


class Beat(NamedTuple):
    """Are you there, and do you get on with your work?"""

    number: int


class BeatBack(NamedTuple):
    """Yes; said by whoever handles the work, behind all that came before the question."""

    number: int
    state: PeerState
    waiting: int
    """Messages that it has not handled yet."""


class Talk(NamedTuple):
    """Something said in a room."""

    count_version: int
    """The version of the broker's partition count that the proxy has used; the publisher leaves it 0."""
    room: int
    message_id: int
    """Given by who publishes: all copies and repeats have the same."""
    publisher: int
    """The boot id of the one who waits for the answer."""
    copy: int
    """0, 1, 2: copies take different ways."""
    priority: Priority
    is_reliable: bool
    body: bytes
    """The encoded push, ready for every session."""


class Taken(NamedTuple):
    """A proxy has passed these on."""

    message_ids: Sequence[int]


class Settled(NamedTuple):
    """Every gateway with someone in the room has them."""

    publisher: int
    message_ids: Sequence[int]


class SliceSettled(NamedTuple):
    """Every gateway with someone in this slice of a big room has them: the proxy waits for all slices."""

    publisher: int
    room: int
    message_ids: Sequence[int]


class Declined(NamedTuple):
    """A message was not passed on."""

    publisher: int
    message_id: int
    code: str
    retry_after_ms: int
    partitions: int
    """With ``not_owner``: how many there are …"""
    count_version: int
    """… in this version of the count."""


class RoomFrame(NamedTuple):
    """What a broker sends to a gateway at a time."""

    frame: Frame


class RoomAck(NamedTuple):
    """A gateway has everything through there."""

    ack: Ack


class StreamKey(NamedTuple):
    """Which rows a stream of news has: those of a partition, for one kind of receiver."""

    kind: int
    partition: int
    partitions: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{('from gateway', 'to broker', 'sessions')[self.kind]} {self.partition}/{self.partitions}"


FROM_GATEWAY, TO_BROKER, SESSIONS = 0, 1, 2
"""Rooms of a gateway, to routers; rooms of all gateways, to brokers; users of a gateway, to relays."""


class News(NamedTuple):
    """Rows, numbered from ``first`` on."""

    key: StreamKey
    life: int
    first: int
    rows: Sequence[RouteRow]


class Reach(NamedTuple):
    """How far a stream goes."""

    key: StreamKey
    life: int
    position: int
    oldest: int
    """The oldest number that can still be sent again."""
    digest: Digest


class Want(NamedTuple):
    """Everything through ``position`` is here, and these are not."""

    key: StreamKey
    life: int
    position: int
    holes: Sequence[Missing]


class AskRoutes(NamedTuple):
    """All rows of a stream, as they are now."""

    key: StreamKey
    attempt: int


class Routes(NamedTuple):
    """One page of all rows. ``marks``: through which version of each gateway they are complete."""

    key: StreamKey
    life: int
    position: int
    attempt: int
    page: int
    pages: int
    marks: Sequence[tuple[int, int]]
    rows: Sequence[RouteRow]


ClusterMessage = (
    Beat
    | BeatBack
    | Talk
    | Taken
    | Settled
    | SliceSettled
    | Declined
    | RoomFrame
    | RoomAck
    | News
    | Reach
    | Want
    | AskRoutes
    | Routes
)
