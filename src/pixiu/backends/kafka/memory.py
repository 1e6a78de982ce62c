"""The newest of the log in memory: what whoever keeps up reads, and where the rest begins in Kafka."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.ports.log import LogRecord

__all__ = ["Anchors", "Recent", "RecentTopic"]

RECENT_BYTES_MAX = 32 * 2**20
TOPIC_COUNT_MAX = 10_000
ANCHORS_MAX = 4_096
_ROW_BYTES = 200


class Recent:
    """Committed records, in order; complete from event ``first`` on."""

    def __init__(self, *, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._stretches: deque[tuple[int, Sequence[LogRecord], int]] = deque()
        """(last event id that it covers, its records, its size), oldest first."""
        self._size = 0
        self.first = 1

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self._size

    def begin(self, after: int) -> None:
        """Know nothing through here."""
        self._stretches.clear()
        self._size, self.first = 0, after + 1

    def add(self, last: int, records: Sequence[LogRecord]) -> None:
        """A batch was committed."""
        size = sum(len(record.payload) for record in records) + _ROW_BYTES * len(records)
        self._stretches.append((last, records, size))
        self._size += size
        while self._size > self._bytes_max and self._stretches:
            self._forget()

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Records behind ``after``, about ``limit`` of them; forgets what is not behind it."""
        while self._stretches and self._stretches[0][0] <= after:
            self._forget()
        found: list[LogRecord] = []
        for _, records, _ in self._stretches:
            found += records if not records or records[0].event_id > after else _behind(records, after)
            if len(found) >= limit:
                break
        return found

    def _forget(self) -> None:
        last, _, size = self._stretches.popleft()
        self._size -= size
        self.first = last + 1


class RecentTopic:
    """Committed records of one topic; complete behind event ``after``."""

    def __init__(self, after: int, records: Sequence[LogRecord] = (), *, count_max: int = TOPIC_COUNT_MAX) -> None:
        self.after = after
        self.forgotten = 0
        """The newest event that is no longer here, of those that were."""
        self._count_max = count_max
        self._records = list(records)

    def add(self, record: LogRecord) -> None:
        """One was committed."""
        self._records.append(record)
        if len(self._records) > 2 * self._count_max:
            self.after = self.forgotten = self._records[self._count_max].event_id
            del self._records[: self._count_max + 1]

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Those behind an event."""
        begin = bisect_right(self._records, after, key=_event_id)
        return self._records[begin : begin + limit]


class Anchors:
    """Where some events lie: (event id, offset), rising. Beyond the bound every second one goes."""

    def __init__(self) -> None:
        self._events: list[int] = []
        self._offsets: list[int] = []

    def add(self, event_id: int, offset: int) -> None:
        """The record of this event, or the first one behind it, lies at or behind this offset."""
        if self._events and event_id <= self._events[-1]:
            return
        self._events.append(event_id)
        self._offsets.append(offset)
        if len(self._events) > ANCHORS_MAX:
            del self._events[1::2], self._offsets[1::2]

    def offset_before(self, event_id: int) -> int | None:
        """An offset at or before this event's record; None if it is older than all that is known."""
        index = bisect_right(self._events, event_id) - 1
        return None if index < 0 else self._offsets[index]


def _behind(records: Sequence[LogRecord], after: int) -> Sequence[LogRecord]:
    return records[bisect_right(records, after, key=_event_id) :]


def _event_id(record: LogRecord) -> int:
    return record.event_id
