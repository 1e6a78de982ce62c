"""Zeros ahead of the journal's end, so that a flush finds the blocks that it writes to.

Where a file grows, each flush waits for two writes: its bytes, and the file system's own note that the file is longer.
Where it overwrites zeros that are on disk already, it waits for one. So the last segment is filled ahead of its end, a
step at a time: the zeros go to the page cache, as records do, and a flush beside the loop brings them to the disk. Only
the loop writes to the file, so zeros never lie over a record.

Nothing depends on it. A writer that comes to the end of the zeros goes on behind them, as on a disk that is almost
full, where none are laid, and where those that lie there are given back (``Journal.give_back``). Whoever opens a
journal takes zeros at the end of its last segment for what they are (``segment.written_end``), and a segment that is
rolled or closed is cut to its records.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.files import Files
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.storage.journal import Journal

__all__ = ["Filler"]

log = logging.getLogger(__name__)

STEPS_AHEAD = 4
RETRY_MS = 1000
"""How soon to look again when there was no room, or the disk took no zeros."""


class Filler:
    """Keeps at most ``ahead`` zeros before the end of one journal, one step at a time."""

    def __init__(
        self,
        journal: Journal,
        files: Files,
        scheduler: Scheduler,
        *,
        ahead: int,
        segment_bytes: int,
        free_bytes_min: int,
        failed: Callable[[BaseException], object],
    ) -> None:
        """``failed`` is told of a flush that failed: nobody knows then what became of the records beside the zeros."""
        self._journal = journal
        self._files = files
        self._scheduler = scheduler
        self._ahead = ahead
        self._zeros = bytes(max(ahead // STEPS_AHEAD, 1))
        self._segment_bytes = segment_bytes
        self._room = free_bytes_min + 2 * ahead
        self._failed = failed
        self._is_busy = False

    def look(self) -> None:
        """The end has moved: is a step due?"""
        tail = self._journal.tail
        if self._is_busy or tail.filled_bytes > self._ahead - len(self._zeros):
            return
        if tail.size + tail.filled_bytes >= self._segment_bytes:
            return  # the rest of this segment is filled
        self._is_busy = True
        try:
            if self._files.free_bytes() >= self._room and tail.fill(self._zeros, self._segment_bytes):
                self._scheduler.offload(tail.flush, self._flushed)
                return
        except OSError as error:
            log.warning("cannot fill the journal ahead", extra={"reason": str(error)})
        self._scheduler.after(RETRY_MS, self._look_again)

    def _flushed(self, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)
            return
        self._is_busy = False

    def _look_again(self) -> None:
        self._is_busy = False
