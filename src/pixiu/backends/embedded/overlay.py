"""What was written since the last commit, laid over the store below.

Reads look here first; a commit writes everything as one batch and leaves nothing. If the store refuses the batch, all
stays as it is and the next commit takes it along.

There are two ways in. Rows that change rarely are put here as bytes. Tables on the hot path keep their changes as
objects and turn them into bytes only when a commit asks (``Table.save``): a row that came and went in between, like an
inbox entry that was acked at once, is never encoded and never reaches the store.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from pixiu.model.errors import PixiuError
from pixiu.ports.keyvalue import KeyValue

__all__ = ["Overlay", "Pending", "Rows", "Table"]

Pending = dict[bytes, bytes | None]
"""Rows to write; None deletes."""

Rows = list[tuple[bytes, bytes]]
"""Rows to put."""

_INSORT_MAX = 16
"""More new keys than this are sorted at once."""


class Table(Protocol):
    """A store that keeps its changes as objects until a commit."""

    def save(self, rows: Rows) -> None:
        """Turn every change into rows, best in the order of their keys, and deletes into ``Overlay.drop``.

        From here on the overlay answers for them.
        """
        ...

    def written(self) -> None:
        """The rows are in the store below: memory may be let go."""
        ...


class Overlay:
    """A write-behind layer on one ``KeyValue``."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store
        self._pending: Pending = {}
        self._keys: list[bytes] = []
        """The keys of ``_pending`` in order, but for those in ``_new_keys``."""
        self._new_keys: list[bytes] = []
        self._tables: list[Table] = []
        self.pending_bytes = 0
        """About how much waits here as bytes."""

    def attach(self, table: Table) -> None:
        """Ask this table too when there is a commit."""
        self._tables.append(table)

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        pending = self._pending
        if key in pending:
            return pending[key]
        return self._store.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place."""
        pending = self._pending
        below = [key for key in keys if key not in pending]
        values = iter(self._store.get_many(below)) if below else iter(())
        return [pending[key] if key in pending else next(values) for key in keys]

    def put(self, key: bytes, value: bytes) -> None:
        """Write a row."""
        if key not in self._pending:
            self._new_keys.append(key)
        self._pending[key] = value
        self.pending_bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        """Delete a row."""
        if key not in self._pending:
            self._new_keys.append(key)
        self._pending[key] = None
        self.pending_bytes += len(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order. Nothing may be written while this runs."""
        keys = self._keys_between(start, end)
        if not keys:
            return self._store.scan(start, end)
        return self._merged(keys, self._store.scan(start, end), is_back=False)

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of ``scan``, last one first."""
        keys = self._keys_between(start, end)
        if not keys:
            return self._store.scan_back(start, end)
        keys.reverse()
        return self._merged(keys, self._store.scan_back(start, end), is_back=True)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Delete rows that no ``scan`` will ask for: only ``get`` sees that they are gone."""
        self._pending.update(dict.fromkeys(keys))

    def commit(self, rows: Rows) -> None:
        """Write everything, with these rows, as one batch. Raises ``Unavailable``; then all is as it was.

        RocksDB takes rows that come in order in half the time, so the tables are asked in the order of their keys.
        """
        pending = self._pending
        saved: Rows = []
        for table in self._tables:
            table.save(saved)
        puts = sorted((key, value) for key, value in pending.items() if value is not None)
        deletes = [key for key, value in pending.items() if value is None]
        try:
            self._store.write(chain(puts, saved, rows), deletes)
        except PixiuError:
            pending.update(saved)
            self._keys, self._new_keys = [], list(pending)
            self.pending_bytes += sum(len(key) + len(value) for key, value in saved)
            raise
        pending.clear()
        self._keys, self._new_keys = [], []
        self.pending_bytes = 0
        for table in self._tables:
            table.written()

    def _keys_between(self, start: bytes, end: bytes) -> list[bytes]:
        new_keys = self._new_keys
        if new_keys:
            if len(new_keys) <= _INSORT_MAX:
                for key in new_keys:
                    insort(self._keys, key)
            else:
                self._keys.extend(new_keys)
                self._keys.sort()
            new_keys.clear()
        keys = self._keys
        return keys[bisect_left(keys, start) : bisect_left(keys, end)] if keys else keys

    def _merged(
        self, keys: list[bytes], below: Iterator[tuple[bytes, bytes]], *, is_back: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        pending = self._pending
        index, count = 0, len(keys)
        for pair in below:
            key = pair[0]
            while index < count and (keys[index] > key if is_back else keys[index] < key):
                value = pending[keys[index]]
                if value is not None:
                    yield keys[index], value
                index += 1
            if index < count and keys[index] == key:
                continue  # the pending one comes in its turn
            yield pair
        for key in keys[index:]:
            value = pending[key]
            if value is not None:
                yield key, value
