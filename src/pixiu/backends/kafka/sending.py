"""Batches on their way to Kafka: one at a time, the next gathers meanwhile.

A batch that Kafka does not take holds up everything behind it. After ``append_timeout_ms`` whoever waits is told so:
the batch on its way may still be written, the ones behind it are not. Until that is decided all is refused at once.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pixiu.backends.kafka.batch import Batch
from pixiu.backends.kafka.owner import Fenced
from pixiu.model.errors import Overloaded, PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.metrics import KafkaCounters
    from pixiu.backends.kafka.owner import Owner
    from pixiu.backends.kafka.records import Entry
    from pixiu.config.kafka import KafkaSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import LogRecord
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Sending"]

log = logging.getLogger(__name__)

SLOW_US = 3_000_000
"""A batch that takes longer is told as a problem."""


class Sending:
    """What waits for Kafka. ``committed`` is told a batch and its first offset; ``fenced`` that the log is lost."""

    def __init__(
        self,
        address: KafkaAddress,
        owner: Owner,
        clock: Clock,
        scheduler: Scheduler,
        thread: Scheduler,
        settings: KafkaSettings,
        counters: KafkaCounters,
        *,
        committed: Callable[[Batch, int], object],
        fenced: Callable[[Fenced], object],
    ) -> None:
        self._address = address
        self._owner = owner
        self._clock = clock
        self._scheduler = scheduler
        self._thread = thread
        self._settings = settings
        self._counters = counters
        self._committed = committed
        self._fenced = fenced
        self._batches: deque[Batch] = deque()
        """Those that wait; the last one is added to."""
        self._on_its_way: Batch | None = None
        self._deadline: Timer | None = None
        self._is_send_due = self._is_closed = False
        self._flushed: list[tuple[Batch, Callable[[], object]]] = []
        """Who waits for everything through a batch, by batch."""
        self.pending_bytes = self.pending_count = 0

    # What is asked about it.

    @property
    def is_busy(self) -> bool:
        """Does anything wait to be written?"""
        return self._on_its_way is not None or bool(self._batches)

    def slow(self) -> str:
        """What to tell of a batch that takes long; empty if none does."""
        batch = self._on_its_way
        took_us = 0 if batch is None else self._clock.monotonic_us() - batch.begun_us
        if took_us < SLOW_US:
            return ""
        return f"Kafka at {self._address.hosts} has not taken a batch for {took_us / 1e6:.0f} s{self._said()}"

    def refusal(self) -> PixiuError | None:
        """Why nothing is taken now; None if it is."""
        if self._on_its_way is not None and self._on_its_way.is_given_up:
            text = f"Kafka at {self._address.hosts} does not take what is sent{self._said()}"
            return Unavailable(text, retry_after_ms=1_000)
        settings = self._settings
        if self.pending_bytes >= settings.pending_bytes_max or self.pending_count >= settings.pending_max:
            return Overloaded(f"{self.pending_count} entries wait for Kafka already", retry_after_ms=100)
        return None

    def _said(self) -> str:
        return f" ({self._owner.trouble})" if self._owner.trouble else ""

    def when_flushed(self, call: Callable[[], object]) -> None:
        """Call when everything that was asked for until now is committed or refused."""
        last = self._batches[-1] if self._batches else self._on_its_way
        if last is None:
            self._scheduler.soon(call)
        else:
            self._flushed.append((last, call))

    # What is put in.

    def batch(self) -> Batch:
        """The one to add to; it is sent after this turn, or after the one before it."""
        if not self._batches or self._batches[-1].is_full:
            self._batches.append(Batch())
        if not self._is_send_due and self._on_its_way is None:
            self._is_send_due = True
            self._scheduler.soon(self._send)
        return self._batches[-1]

    def batch_of(self, event_id: int) -> Batch | None:
        """The batch that holds an event; None if it is not on its way any more."""
        if self._on_its_way is not None and self._on_its_way.holds(event_id):
            return self._on_its_way
        return next((batch for batch in self._batches if batch.holds(event_id)), None)

    def add(self, batch: Batch, entry: Entry, shown: LogRecord | None) -> None:
        """One more entry; ``shown`` is what readers see of it."""
        batch.entries.append(entry)
        if shown is not None:
            batch.records.append(shown)
        size = len(entry.payload)
        batch.size += size
        self.pending_bytes += size
        self.pending_count += 1

    # On the way.

    def _send(self) -> None:
        """Give the next batch to Kafka."""
        self._is_send_due = False
        if self._on_its_way is not None or self._is_closed:
            return
        if not self._batches:
            return
        batch = self._on_its_way = self._batches.popleft()
        batch.begun_us = self._clock.monotonic_us()
        self._deadline = self._scheduler.after(self._settings.append_timeout_ms, self._overdue)
        offsets: list[int] = []

        def work() -> None:
            offsets.append(self._owner.write(batch.entries, lambda: batch.is_given_up))

        self._thread.offload(work, lambda error: self._sent(batch, offsets, error))

    def _sent(self, batch: Batch, offsets: list[int], error: BaseException | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._on_its_way = None
        self._forget(batch)
        if error is None:
            counters = self._counters
            counters.batches += 1
            counters.entries += len(batch.entries)
            counters.commit_seconds.observe((self._clock.monotonic_us() - batch.begun_us) / 1e6)
            self._committed(batch, offsets[0])
        else:
            self._counters.dropped += len(batch.entries)
            if not isinstance(error, PixiuError):
                log.error("a batch failed by a bug", exc_info=error)
            batch.drop(error if isinstance(error, PixiuError) else Unavailable(f"Kafka: {error}"))
            if isinstance(error, Fenced):
                self._fenced(error)
        self._tell_flushed(batch)
        self._send()

    def _forget(self, batch: Batch) -> None:
        self.pending_bytes -= batch.size
        self.pending_count -= len(batch.entries)

    def _overdue(self) -> None:
        """Nobody waits any longer."""
        self._deadline = None
        log.warning("Kafka does not answer", extra={"log": str(self._address), "reason": self._owner.trouble})
        text = (
            f"Kafka at {self._address.hosts} has not answered within {self._settings.append_timeout_ms} ms; it may "
            "have been written, and a repeat with the same send_id is safe"
        )
        self.give_up(Unavailable(text, retry_after_ms=1_000))

    def give_up(self, error: PixiuError) -> None:
        """Tell everyone who waits. Newest first, since one key may be there twice."""
        while self._batches:
            batch = self._batches.pop()
            self._forget(batch)
            self._counters.dropped += len(batch.entries)
            batch.drop(error)
        if self._on_its_way is not None:
            self._on_its_way.is_given_up = True
            self._on_its_way.refuse(error)
        self._tell_flushed()

    def close(self, error: PixiuError) -> None:
        """Send no more."""
        self._is_closed = True
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.give_up(error)

    def _tell_flushed(self, batch: Batch | None = None) -> None:
        """Of one batch, or of all: those behind it wait on, for more may come without an end."""
        told = [call for last, call in self._flushed if batch is None or last is batch]
        self._flushed = [] if batch is None else [each for each in self._flushed if each[0] is not batch]
        for call in told:
            call()
