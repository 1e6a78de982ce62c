"""Follows a log that another node owns, so that the stores of this node are warm when it takes over.

A thread reads, one step at a time, and the loop gets what it has read. A step takes ``WAIT_MS`` when nothing is new.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.reading import PATIENT_MS, searched
from pixiu.backends.kafka.records import LOG
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import LogRecord
    from pixiu.ports.scheduler import Scheduler

__all__ = ["Standby"]

log = logging.getLogger(__name__)

WAIT_MS = 100.0
FETCH_WAIT_MS = 500
LOOK_US = 2_000_000
"""How often the reader asks where the log ends: it notices a Kafka that does not answer."""
LOOK_WAIT_MS = 2_000.0
AGAIN_MS = 500
"""Between two attempts after an error."""
NO_ROOM_MS = 20
STEP_RECORDS = 1_000
END_US = 5_000_000
"""How long a new owner waits for the records before its own; then it reads them as the stores need them."""
END_BYTES_MAX = 16 * 2**20


_Piece = tuple[int, list["LogRecord"]]
"""Records, and the last event that they cover."""


class Standby:
    """One reader behind the owner of a log."""

    def __init__(
        self,
        address: KafkaAddress,
        options: dict[str, str],
        clock: Clock,
        scheduler: Scheduler,
        thread: Scheduler,
        check: Callable[[], object],
        after: int,
        *,
        read: Callable[[int, Sequence[LogRecord]], object],
        has_room: Callable[[], bool],
    ) -> None:
        """``check`` raises if the log is another one, and blocks. ``read`` gets the last event and the records."""
        self._address = address
        self._options = options
        self._clock = clock
        self._scheduler = scheduler
        self._thread = thread
        self._check = check
        self._reached = after
        self._read = read
        self._has_room = has_room
        self._reader: PartitionReader | None = None
        self._offset = self._end = 0
        self._looked = -LOOK_US
        self._left: list[_Piece] = []
        """What was read while this node opened the log."""
        self._left_bytes = 0
        self._is_incomplete = False
        self._is_paused = self._is_stopped = False
        self.problem = "it has not read the log yet"
        """Why nothing is read; empty if all is well."""

    @property
    def unread(self) -> int:
        """Offsets between the last record that was read and the end of the log as it was looked up last."""
        return max(self._end - self._offset, 0)

    def start(self) -> None:
        """Begin to read."""
        self._begin_step()

    def pause(self) -> None:
        """Begin no further step. Work that is given to the thread now runs behind the present step."""
        self._is_paused = True

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._is_paused = self._is_stopped = True

    # Steps.

    def _begin_step(self) -> None:
        if self._is_paused:
            return
        if not self._has_room():
            self._scheduler.after(NO_ROOM_MS, self._begin_step)
            return
        chunks: list[_Piece] = []
        self._thread.offload(lambda: self._step(chunks), lambda error: self._stepped(chunks, error))

    def _stepped(self, chunks: list[_Piece], error: BaseException | None) -> None:
        if self._is_stopped:
            return
        for through, records in chunks:
            self._read(through, records)
        if error is None:
            self.problem = ""
            self._begin_step()
            return
        problem = str(error) if isinstance(error, PixiuError) else f"{type(error).__name__}: {error}"
        if problem != self.problem:
            log.warning("kafka_log_not_read", extra={"log": str(self._address), "reason": problem})
        self.problem = problem
        self._scheduler.after(AGAIN_MS, self._begin_step)

    # In the thread.

    def _step(self, chunks: list[_Piece]) -> None:
        """Read what is new. Raises why the log cannot be read; ``chunks`` has what was read before."""
        try:
            self._read_new(chunks)
            now = self._clock.monotonic_us()
            if now - self._looked >= LOOK_US:
                assert self._reader is not None
                _, self._end = self._reader.ends(LOOK_WAIT_MS)
                self._looked = now
        except BaseException:
            self._drop_reader()
            raise

    def _read_new(self, chunks: list[_Piece]) -> None:
        """Append new records to ``chunks``. After an error, drop the reader: it may have skipped records."""
        if self._reader is None:
            self._open()
        assert self._reader is not None
        chunk = self._reader.read_new(STEP_RECORDS, WAIT_MS)
        if chunk is None:
            return
        self._offset = max(self._offset, chunk.next_offset)
        records, before = [], self._reached
        for _, found in chunk.found:
            if found.record.event_id > self._reached:
                self._reached = found.record.event_id
                if found.is_visible:
                    records.append(found.record)
        if self._reached > before:
            chunks.append((self._reached, records))

    def _open(self) -> None:
        self._check()
        reader = PartitionReader(
            self._address, self._options, LOG, is_stopped=lambda: self._is_stopped, fetch_wait_ms=FETCH_WAIT_MS
        )
        try:
            self._offset = searched(self._address, reader, self._reached, PATIENT_MS, is_log=True)
            reader.seek(self._offset)
        except BaseException:
            reader.close()
            raise
        self._reader = reader

    def read_through(self, event_id: int) -> list[_Piece] | None:
        """What is left up to the claim of this node; None if it is too much, or Kafka does not return it in time.

        A node whose attempt to open the log fails may ask again.
        """
        deadline = self._clock.monotonic_us() + END_US
        while self._reached < event_id and not self._is_incomplete:
            if self._is_stopped or self._clock.monotonic_us() > deadline or self._left_bytes > END_BYTES_MAX:
                self._is_incomplete = True
                break
            count = len(self._left)
            try:
                self._read_new(self._left)
            except PixiuError as error:
                log.warning("kafka_log_not_read", extra={"log": str(self._address), "reason": str(error)})
                self._drop_reader()
                self._is_incomplete = True
            self._left_bytes += sum(len(each.payload) for _, records in self._left[count:] for each in records)
        return None if self._is_incomplete else self._left

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        """Close the reader."""
        self._is_stopped = True
        self._drop_reader()
