"""What a follower has copied and not shown yet, as it was read when it arrived.

A follower needs each record three times: to see whether it fits, to write its index entries, and to show it once it is
committed, a moment later. So each is checked and taken apart once. Bounded: beyond ``COPIES_BYTES_MAX`` nothing is
kept, and what is shown is read back from the journal.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from pixiu.queue.storage.record import MESSAGE_KINDS, Frame, Record, decode_block, read_frames
from pixiu.queue.storage.segment import messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.queue.engine import Engine

__all__ = ["Copies", "Copy", "Showing", "read_copies"]

COPIES_BYTES_MAX = 16 * 2**20
"""Some batches of a leader; one that is far behind shows what it copies at once."""
SHOW_MS = 10
"""While records come, a follower without subscribers shows what is committed as often as this."""


class Copy(NamedTuple):
    """One record of a leader's journal, with its place in what arrived."""

    at: int
    frame: Frame
    record: Record
    messages: list[bytes]
    """What it brings to its topic; empty for records that bring none."""

    @property
    def last_event_id(self) -> int:
        """The last event id of the record."""
        return self.record.event_id + self.frame.count - 1


def read_copies(frames: bytes) -> list[Copy]:
    """Whole frames, checked and taken apart. Raises ``ValueError`` or ``CorruptData`` for anything else."""
    copies = []
    for at, frame in read_frames(frames):
        record = decode_block(frame.block)
        messages = messages_of(record, frame.count) if record.kind in MESSAGE_KINDS else []
        copies.append(Copy(at, frame, record, messages))
    return copies


class Copies:
    """Those that are in the journal and not shown."""

    def __init__(self) -> None:
        self._copies: deque[Copy] = deque()
        self._bytes = 0

    def add(self, copies: Iterable[Copy]) -> None:
        """These follow those that are here."""
        for copy in copies:
            self._copies.append(copy)
            self._bytes += copy.frame.size
        if self._bytes > COPIES_BYTES_MAX:
            self.clear()

    def take(self, after: int, through: int) -> list[Copy] | None:
        """The records behind ``after`` up to ``through``, which are forgotten here; None if the first is not here."""
        copies = self._copies
        while copies and copies[0].record.event_id <= after:
            self._pop()
        if not copies or copies[0].record.event_id != after + 1:
            return None
        taken = []
        while copies and copies[0].last_event_id <= through:
            taken.append(self._pop())
        return taken

    def _pop(self) -> Copy:
        copy = self._copies.popleft()
        self._bytes -= copy.frame.size
        return copy

    def clear(self) -> None:
        """Forget all: they are cut off, or too many."""
        self._copies.clear()
        self._bytes = 0


class Showing:
    """When a follower shows what is committed: nobody waits for it but who subscribes there.

    The leader waits for what is on disk here. So that is told first, and as long as records come, topic logs get
    several batches in one go.
    """

    def __init__(self, engine: Engine, when_due: Callable[[], object]) -> None:
        """``when_due`` is called when something has waited for long enough; it shall call ``now``."""
        self._engine = engine
        self._when_due = when_due
        self._is_timed = False
        self.through = 0
        """What may be shown; 0 when there is nothing."""

    def now(self) -> None:
        """Show it."""
        through, self.through = self.through, 0
        if through:
            self._engine.apply_through(through)

    def soon(self) -> None:
        """Records have come with it: show it with those that follow, if nobody reads here."""
        if self._engine.counters.subscribers:
            self.now()
        elif self.through and not self._is_timed:
            self._is_timed = True
            self._engine.scheduler.after(SHOW_MS, self._due)

    def _due(self) -> None:
        self._is_timed = False
        self._when_due()
