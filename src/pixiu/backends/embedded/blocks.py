"""Small entries in rising order, many to a row.

A row of its own costs two microseconds at a commit, whatever is in it. Entries that belong together and come one behind
the other, like a user's messages, are therefore written as blocks: what a commit brings for one prefix is one row::

    key    prefix, number of the first entry (8 bytes)
    value  entries back to back, rising, each of one fixed size that begins with its number

The blocks of a prefix never overlap, so the block that would hold a number is the last one that begins at or below it.
Who is slow and says one thing per commit has blocks of one entry, which is a row per entry again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from struct import Struct
from typing import Any

from pixiu.backends.embedded.layout import NUMBER_MAX, number
from pixiu.backends.embedded.overlay import Overlay, Rows

__all__ = ["BLOCK_MAX", "Blocks"]

BLOCK_MAX = 64
"""Entries in one block: what is read in vain for the sake of a single one."""

Entry = tuple[Any, ...]


class Blocks:
    """Entries of one shape, under any number of prefixes, none of which begins with another."""

    def __init__(self, overlay: Overlay, entry: Struct) -> None:
        """The first field of ``entry`` is its number, 8 bytes."""
        self._overlay = overlay
        self._size = entry.size
        self._pack = entry.pack
        self._unpack = entry.iter_unpack

    def encode(self, prefix: bytes, entries: Sequence[Entry], rows: Rows) -> None:
        """Rows for entries that rise, and lie above all that is there."""
        if len(entries) == 1:
            rows.append((prefix + number.pack(entries[0][0]), self._pack(*entries[0])))
            return
        for at in range(0, len(entries), BLOCK_MAX):
            block = entries[at : at + BLOCK_MAX]
            rows.append((prefix + number.pack(block[0][0]), b"".join(starmap(self._pack, block))))

    def find(self, prefix: bytes, wanted: int) -> Entry | None:
        """One entry."""
        for _, value in self._overlay.scan_back(prefix, prefix + _bound(wanted + 1)):
            for entry in self._unpack(value):
                if entry[0] == wanted:
                    return entry
            break
        return None

    def forward(self, prefix: bytes, after: int, through: int) -> Iterator[Entry]:
        """Rising, with ``after < number <= through``. Nothing may be written while this runs."""
        if after >= through:
            return
        start = prefix
        if after > 0:  # else it is all from the first one on
            for key, _ in self._overlay.scan_back(prefix, prefix + _bound(after + 2)):
                start = key
                break
        for _, value in self._overlay.scan(start, prefix + _bound(through + 1)):
            for entry in self._unpack(value):
                if entry[0] > through:
                    return
                if entry[0] > after:
                    yield entry

    def backward(self, prefix: bytes, after: int, through: int) -> Iterator[Entry]:
        """The same, falling."""
        for _, value in self._overlay.scan_back(prefix, prefix + _bound(through + 1)):
            for entry in reversed(list(self._unpack(value))):
                if entry[0] <= after:
                    return
                if entry[0] <= through:
                    yield entry

    def insert(self, prefix: bytes, entry: Entry) -> None:
        """An entry that is not there, anywhere between others."""
        for key, value in self._overlay.scan_back(prefix, prefix + _bound(entry[0])):
            entries = list(self._unpack(value))
            if entries[-1][0] > entry[0]:
                self._overlay.delete(key)
                self._put(prefix, sorted([*entries, entry]))
                return
            break
        self._put(prefix, [entry])

    def drop(self, prefix: bytes, first: int, through: int) -> list[Entry]:
        """Remove the entries of a range, and return them."""
        gone: list[Entry] = []
        last_from = prefix + _bound(first + 1)
        blocks = list(self._overlay.scan(last_from, prefix + _bound(through + 1)))
        for pair in self._overlay.scan_back(prefix, last_from):
            blocks.insert(0, pair)
            break
        for key, value in blocks:
            entries = list(self._unpack(value))
            some = [entry for entry in entries if first <= entry[0] <= through]
            if some:
                gone += some
                self._overlay.delete(key)
                self._put(prefix, [entry for entry in entries if not first <= entry[0] <= through])
        return gone

    def sweep(self, prefix: bytes, after: int, through: int) -> None:
        """Delete the blocks that begin at or behind ``after``, and end at or below ``through``."""
        for key, value in list(self._overlay.scan(prefix + _bound(after), prefix + _bound(through + 1))):
            if int.from_bytes(value[-self._size : 8 - self._size], "big") <= through:
                self._overlay.delete(key)

    def _put(self, prefix: bytes, entries: Sequence[Entry]) -> None:
        rows: Rows = []
        self.encode(prefix, entries, rows)
        put_all(self._overlay, rows)


def put_all(overlay: Overlay, rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Rows that a scan has to find before the next commit."""
    for key, value in rows:
        overlay.put(key, value)


def _bound(wanted: int) -> bytes:
    return number.pack(min(max(wanted, 0), NUMBER_MAX))
