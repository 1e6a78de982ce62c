"""What the writer says to people: some of what it writes, and that it cannot write.

A disk that is full refuses a thousand batches a second. A line for each would fill what is left of it, so a failure is
said at once, and then every ten seconds with how often it has happened, until something is written again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.ports.clock import Clock
    from pixiu.queue.batch import Batch
    from pixiu.queue.metrics import QueueCounters

__all__ = ["WriterLog"]

log = logging.getLogger(__name__)

AGAIN_US = 10_000_000


class WriterLog:
    """The lines of one writer."""

    def __init__(self, clock: Clock, counters: QueueCounters, *, sample_every: int) -> None:
        self._clock = clock
        self._counters = counters
        self._sample_every = sample_every
        self._failures = 0
        self._said_us = 0

    def failed(self, error: OSError, size: int) -> None:
        """A batch could not be written, and was refused."""
        self._failures += 1
        now = self._clock.monotonic_us()
        if self._failures > 1 and now - self._said_us < AGAIN_US:
            return
        self._said_us = now
        log.error("journal write failed", extra={"reason": str(error), "bytes": size, "failures": self._failures})

    def written(self, batch: Batch) -> None:
        """A batch is in the journal."""
        if self._failures:
            log.warning("the journal is written again", extra={"failures": self._failures})
            self._failures = 0
        before, every = self._counters.requests, self._sample_every
        self._counters.requests = after = before + batch.request_count
        if every and after // every != before // every:
            count, last = batch.request_count, batch.last_event_id
            log.info("written", extra={"requests": after, "last_event_id": last, "batch": count})
