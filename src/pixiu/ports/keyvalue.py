"""An ordered key-value store for what is derived from the log."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol


class KeyValue(Protocol):
    """Ordered by key bytes; a batch is written whole or not at all.

    A write is visible at once and survives a killed process; it survives a lost machine only after ``flush``. After
    such a loss the store holds the effect of some first n batches: the caller writes the event id it has reached into
    the batch, and replays the log from there. Implementations pass ``tests/contracts/keyvalue.py``.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place; None where there is none."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order. The store may change while this runs."""
        ...

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of ``scan``, last one first."""
        ...

    def dump(self) -> Iterator[tuple[bytes, bytes]]:
        """Every pair as it is at this moment, in order, whatever is written while this is read."""
        ...

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch, deletes first."""
        ...

    def flush(self) -> None:
        """Return when all batches are on the disk."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...
