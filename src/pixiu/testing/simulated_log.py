"""A journal on a disk that forgets: what was not flushed is lost, kept in part, or torn by a crash.

Records carry no payload but a text, which says who wrote what: enough to compare two journals byte for byte.
``oldest_event_id`` marks what retention has removed from the journal; the records before it live on in what was
derived from them, which a snapshot carries, so they stay comparable too.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.machines.replication import EpochStart, LogState

if TYPE_CHECKING:
    import random

__all__ = ["Record", "SimulatedLog", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record: the event_ids it takes up, the epoch of its writer, its content."""

    first_event_id: int
    through: int
    epoch: int
    content: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything committed at one moment, with the history of epochs that belongs to it."""

    records: tuple[Record, ...]
    epochs: tuple[EpochStart, ...]


class SimulatedLog:
    """The records of one node, in order, and how many of them a crash will spare."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.oldest_event_id = 1
        self.shown_event_id = 0  # as last written down
        self._ends: list[int] = []
        self._epochs: tuple[EpochStart, ...] = ()
        self._flushed_count = 0
        self._cut_off: list[Record] = []  # cut, and the cut not yet flushed

    @property
    def tail_event_id(self) -> int:
        """The last event_id, 0 when empty."""
        return self._ends[-1] if self._ends else 0

    @property
    def durable_event_id(self) -> int:
        """The last flushed event_id."""
        return self._ends[self._flushed_count - 1] if self._flushed_count else 0

    @property
    def has_unflushed(self) -> bool:
        """Whether a flush would change anything."""
        return self._flushed_count < len(self.records)

    @property
    def tail_epoch(self) -> int:
        """Epoch of the last record."""
        return self._epochs[-1].epoch if self._epochs else 0

    def state(self) -> LogState:
        """What the machine is told."""
        tail = self.tail_event_id
        return LogState(
            oldest_event_id=self.oldest_event_id, tail_event_id=tail, durable_event_id=self.durable_event_id,
            shown_event_id=min(self.shown_event_id, self.durable_event_id), epochs=self._epochs,
        )  # fmt: skip

    def append(self, record: Record) -> None:
        """Write one record; it is not flushed."""
        self.records.append(record)
        self._ends.append(record.through)
        if record.epoch != self.tail_epoch:
            self._epochs = (*self._epochs, EpochStart(record.epoch, record.first_event_id))

    def after(self, event_id: int, *, limit: int, through: int) -> tuple[Record, ...]:
        """Up to ``limit`` records after ``event_id``, none that ends after ``through``."""
        start = bisect_right(self._ends, event_id)
        end = min(start + limit, bisect_right(self._ends, through))
        return tuple(self.records[start:end])

    def flush(self, through: int) -> None:
        """Everything through this event_id is on disk."""
        self._flushed_count = max(self._flushed_count, bisect_right(self._ends, through))

    def cut(self, through: int) -> None:
        """Drop every record that ends later. Until ``finish_cut`` a crash may bring them back."""
        keep = bisect_right(self._ends, through)
        self._cut_off = self.records[keep : self._flushed_count]
        self._keep(keep)

    def finish_cut(self) -> None:
        """The cut is on disk, with all that precedes it."""
        self._cut_off = []
        self._flushed_count = len(self.records)

    def snapshot(self, through: int) -> Snapshot:
        """Everything through this event_id."""
        keep = bisect_right(self._ends, through)
        end = self._ends[keep - 1] if keep else 0
        return Snapshot(
            tuple(self.records[:keep]), tuple(start for start in self._epochs if start.first_event_id <= end)
        )

    def install(self, snapshot: Snapshot) -> None:
        """Replace everything, in one step."""
        self.records = list(snapshot.records)
        self._ends = [record.through for record in self.records]
        self._epochs = snapshot.epochs
        self._flushed_count = len(self.records)
        self._cut_off = []
        self.oldest_event_id = self.tail_event_id + 1
        self.shown_event_id = self.tail_event_id

    def trim(self, through: int) -> None:
        """Retention: remove whole records through this event_id from the journal."""
        keep = bisect_right(self._ends, through)
        if keep:
            self.oldest_event_id = max(self.oldest_event_id, self._ends[keep - 1] + 1)

    def crash(self, rng: random.Random, *, tear: float) -> None:
        """Lose power: unflushed records survive up to a random one, which may be torn and is then cut at the start."""
        if self._cut_off and rng.random() < 0.5:
            for record in self._cut_off:
                self.append(record)
            self._flushed_count = len(self.records)
        self._cut_off = []
        survivors = rng.randint(self._flushed_count, len(self.records))
        if survivors > self._flushed_count and rng.random() < tear:
            survivors -= 1  # its CRC does not match
        self._keep(survivors)
        self._flushed_count = len(self.records)  # recovery flushes what it decided to believe

    def _keep(self, count: int) -> None:
        del self.records[count:]
        del self._ends[count:]
        tail = self.tail_event_id
        self._epochs = tuple(start for start in self._epochs if start.first_event_id <= tail)
        self._flushed_count = min(self._flushed_count, count)
