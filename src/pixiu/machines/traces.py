"""How things went, gathered for one record a second: flushes, timings, sessions, rooms.

Whoever measures something adds a row here; it is a few numbers in lists, so that a message does not become dearer by
being watched. Rows are for charts and for ``pixiu explain``: no applier reads them, and a lost record is a gap.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from pixiu.model.pixiu_pb2 import Flushes, Record, RoomRows, SessionRows, Timings, Traces
from pixiu.model.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ACCEPT", "HOPS", "PUSH", "ROOMS_MAX", "ROWS_MAX", "Flush", "TraceRows", "flushes_in"]

ROWS_MAX = 5_000
"""Rows of one kind in a record; whoever adds the last one has them written at once."""
ROOMS_MAX = 2_000
"""Rooms that are summed up at a time; more are written before their minute is over."""

ACCEPT: Final = 1
PUSH: Final = 2
HOPS = {ACCEPT: "accept", PUSH: "push"}
"""What is timed: from the proxy's check to the flushed record; from the stores to the session. Numbers in
``Timings.hop``. From there to the ack the ledger knows."""

_US_MAX = 2**32 - 1


class _RoomSums:
    __slots__ = ("bytes", "deliveries", "members", "messages", "users")

    def __init__(self) -> None:
        self.messages = self.deliveries = self.bytes = self.members = self.users = 0


class TraceRows:
    """The rows of one node since its last record. ``added`` is called when there is something to write."""

    def __init__(
        self, *, node: int = 0, hop_sample: int = 0, added: Callable[[bool], object] = lambda is_full: None
    ) -> None:
        """``hop_sample``: one in so many timings is kept; 0 keeps none, and no flushes either.

        ``added(False)``: the first row is here. ``added(True)``: there is no room for more.
        """
        self.has_hops = hop_sample > 0
        self._node = node
        self._sampler = Sampler(hop_sample)
        self._added = added
        self._is_told = False
        self._begin()
        self._rooms: dict[str, _RoomSums] = {}
        self._rooms_since = 0
        self.sessions = 0
        self._peak = 0
        self._after = 0

    def _begin(self) -> None:
        self._flushes: list[tuple[int, int, int]] = []
        self._timings: list[tuple[int, str, int]] = []
        self._sessions: list[tuple[int, int, str, str, int, bool]] = []

    # Rows.

    def begin_after(self, event_id: int) -> None:
        """What was committed through here is of an earlier life: nobody knows when."""
        self._after = event_id

    def flushed(self, event_id: int, at: int, applied_us: int) -> None:
        """The messages behind the flush before, through here, were committed at ``at``, and applied so much later."""
        if self.has_hops:
            self._flushes.append((event_id, at, applied_us))
            self._tell(len(self._flushes))

    def timed(self, hop: int, link: str, us: int) -> None:
        """A hop took so long."""
        if self._sampler.take():
            self._timings.append((hop, link, us))
            self._tell(len(self._timings))

    def session(self, session_id: int, user: int, platform: str, gateway: str, at: int, *, is_open: bool) -> None:
        """A session came, or went."""
        self.sessions += 1 if is_open else -1
        self._peak = max(self._peak, self.sessions)
        self._sessions.append((session_id, user, platform, gateway, at, is_open))
        self._tell(len(self._sessions))

    def room(self, room: str, at: int, messages: int, deliveries: int, size: int, members: int, users: int) -> bool:
        """What happened in a room. True if its sums should be written before they are a minute old."""
        sums = self._rooms.get(room)
        if sums is None:
            if not self._rooms:
                self._rooms_since = at
            sums = self._rooms[room] = _RoomSums()
        sums.messages += messages
        sums.deliveries += deliveries
        sums.bytes += size
        sums.members = max(sums.members, members)
        sums.users = max(sums.users, users)
        return len(self._rooms) >= ROOMS_MAX

    def _tell(self, count: int) -> None:
        if not self._is_told:
            self._is_told = True
            self._added(False)
        elif count >= ROWS_MAX:
            self._added(True)

    # Records.

    def take(self, at: int) -> list[bytes]:
        """All rows but those of rooms, as one record, and start anew. No rows make no record."""
        self._is_told = False
        if not (self._flushes or self._timings or self._sessions):
            return []
        traces = Traces(node=self._node)
        if self._flushes:
            traces.flushes.CopyFrom(_flushes_of(self._flushes))
            traces.flushes.after, self._after = self._after, self._flushes[-1][0]
        if self._timings:
            traces.timings.CopyFrom(_timings_of(self._timings))
        if self._sessions:
            self._add_sessions(traces)
        self._begin()
        return [Record(at=at, traces=traces).SerializeToString()]

    def take_sessions(self, at: int) -> list[bytes]:
        """How many sessions there are, though none has come or gone: a chart shall not have to guess."""
        if not self.sessions:
            return []
        traces = Traces(node=self._node)
        self._add_sessions(traces)
        self._sessions = []
        return [Record(at=at, traces=traces).SerializeToString()]

    def take_rooms(self, at: int) -> list[bytes]:
        """What rooms had since the last time."""
        if not self._rooms:
            return []
        rooms, self._rooms = self._rooms, {}
        sums = rooms.values()
        rows = RoomRows(
            since=self._rooms_since,
            room=list(rooms),
            messages=[each.messages for each in sums],
            deliveries=[each.deliveries for each in sums],
            bytes=[each.bytes for each in sums],
            members=[each.members for each in sums],
            users=[each.users for each in sums],
        )
        return [Record(at=at, traces=Traces(node=self._node, rooms=rows)).SerializeToString()]

    def _add_sessions(self, traces: Traces) -> None:
        traces.sessions.CopyFrom(_sessions_of(self._sessions))
        traces.sessions.now, traces.sessions.peak = self.sessions, max(self._peak, self.sessions)
        self._peak = self.sessions


class Flush(NamedTuple):
    """The messages behind ``after``, through ``through``, were committed at ``at`` and applied ``us`` later."""

    after: int
    through: int
    at: int
    us: int


def flushes_in(rows: Flushes) -> Iterator[Flush]:
    """The rows of a record; columns that do not fit together make none."""
    if not len(rows.event) == len(rows.at) == len(rows.applied_us):
        return
    after = rows.after
    for through, at, us in zip(accumulate(rows.event), accumulate(rows.at), rows.applied_us, strict=True):
        yield Flush(after, through, at, us)
        after = through


def _flushes_of(rows: list[tuple[int, int, int]]) -> Flushes:
    events, times, took = zip(*rows, strict=True)
    return Flushes(event=_steps(events), at=_steps(times), applied_us=[min(max(us, 0), _US_MAX) for us in took])


def _timings_of(rows: list[tuple[int, str, int]]) -> Timings:
    hops, names, took = zip(*rows, strict=True)
    links: dict[str, int] = {}
    return Timings(
        hop=hops,
        link=[links.setdefault(name, len(links)) for name in names],
        us=[min(max(us, 0), _US_MAX) for us in took],
        links=list(links),
    )


def _sessions_of(rows: list[tuple[int, int, str, str, int, bool]]) -> SessionRows:
    platforms: dict[str, int] = {}
    gateways: dict[str, int] = {}
    return SessionRows(
        session=_steps([row[0] for row in rows]),
        user=[row[1] for row in rows],
        platform=[platforms.setdefault(row[2], len(platforms)) for row in rows],
        gateway=[gateways.setdefault(row[3], len(gateways)) for row in rows],
        at=_steps([row[4] for row in rows]),
        is_open=[row[5] for row in rows],
        platforms=list(platforms),
        gateways=list(gateways),
    )


def _steps(numbers: list[int] | tuple[int, ...]) -> list[int]:
    """Each number less the one before it: most are close to each other, and small numbers are short."""
    return [number - before for before, number in zip((0, *numbers), numbers, strict=False)]
