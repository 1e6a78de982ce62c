"""A look through the whole journal after a start, little by little: rot is found before somebody needs the record.

A start reads the journal from the checkpoint on, so that it takes no time; what lies before is read only by whoever
asks for it, perhaps a follower in a year. This reads all that was there at the start, once, at a bounded rate, beside
other work. It stops nothing: a record that rotted is told in the log, by a metric and as a note of ``/readyz``, while
there may still be a replica or a backup that has it. Whoever follows a leader fetches it there
(``queue.replication.mending``); then the look goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import CorruptData
from pixiu.queue.storage.mending import find_wound

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.queue.metrics import QueueCounters
    from pixiu.queue.storage.journal import Journal
    from pixiu.queue.storage.mending import Wound
    from pixiu.queue.storage.segment import Segment

__all__ = ["JournalCheck"]

log = logging.getLogger(__name__)

TURN_BYTES = 64 * 1024
"""Read and summed up in one turn of the loop: well below a millisecond."""
START_MS = 10_000
"""A start has other things to do."""
AGAIN_MS = 5_000
"""A segment that seems damaged is read again from its beginning after this, and told if it still is: a redaction may
be rewriting the place, or a new leader have cut off the end and written another."""


class JournalCheck:
    """Reads through the journal once."""

    def __init__(
        self,
        journal: Journal,
        scheduler: Scheduler,
        counters: QueueCounters,
        *,
        bytes_per_second: int,
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._counters = counters
        self._pause_ms = 1000 * TURN_BYTES / bytes_per_second if bytes_per_second else 0.0
        self._event_id = 0
        """The first event of the segment that is being read."""
        self._position = 0
        self._end: tuple[int, int] = (0, 0)
        """Where the journal ended at the start: the last segment's first event, and its size."""
        self._is_doubted = False
        self._timer: Timer | None = None
        self.problem = ""
        """What is damaged, and what can be done; empty while nothing was found."""
        self.wound: Wound | None = None
        """The first damaged record, where it is known which one it is."""
        self.when_found: Callable[[], object] = lambda: None
        """Called when damage is known."""

    def start(self) -> None:
        """Begin in a while. Without a rate, or without a journal, never."""
        if self._pause_ms and not self._journal.is_empty:
            tail = self._journal.tail
            self._end = (tail.first_event_id, tail.size)
            self._timer = self._scheduler.after(START_MS, self._turn)

    def stop(self) -> None:
        """Read no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        wait_ms = self._pause_ms
        try:
            if not self._read():
                self._timer = None
                log.info("the journal is sound", extra={"bytes": self._counters.journal_checked_bytes})
                return
        except (CorruptData, OSError) as error:
            if self._is_doubted:
                self._found(str(error))
                return
            self._is_doubted, self._position = True, 0
            wait_ms = AGAIN_MS
        self._timer = self._scheduler.after(wait_ms, self._turn)

    def _found(self, reason: str) -> None:
        self._timer = None
        self._counters.journal_damaged = 1
        self.problem = reason
        self.wound = self._wound()
        log.error(
            "the journal is damaged; this server goes on, and whoever reads that record will be refused",
            extra={"reason": reason},
        )
        self.when_found()

    def mended(self, count: int = 1) -> None:
        """So many records are whole again, from the damaged one on: read on, there may be more."""
        self._counters.journal_damaged = 0
        self._counters.journal_mended += count
        self.problem, self.wound, self._is_doubted = "", None, False
        self._timer = self._scheduler.after(self._pause_ms, self._turn)

    def _wound(self) -> Wound | None:
        """Little is read: what is damaged lies in the piece that was to be read next."""
        found = self._segment()
        try:
            return None if found is None else find_wound(found[0], self._position)
        except OSError:
            return None

    def _read(self) -> bool:
        """One piece. False: all that was there at the start is read."""
        found = self._segment()
        if found is None:
            return False
        segment, end = found
        data = segment.read_bytes(self._position, min(TURN_BYTES, end - self._position))
        self._position += len(data)
        self._counters.journal_checked_bytes += len(data)
        return True

    def _segment(self) -> tuple[Segment, int] | None:
        """What to read from, and to where. Retention may have removed it meanwhile, or a new leader cut it off."""
        segments = self._journal.segments
        for number, segment in enumerate(segments):
            if segment.first_event_id < self._event_id:
                continue
            if segment.first_event_id > self._event_id:
                self._event_id, self._position, self._is_doubted = segment.first_event_id, 0, False
            end = min(segment.size, self._end[1]) if self._event_id == self._end[0] else segment.size
            if self._event_id <= self._end[0] and self._position < end:
                return segment, end
            if number < len(segments) - 2:
                segment.close()  # its descriptor is not needed any more; the newest two are written to, or just were
        return None
