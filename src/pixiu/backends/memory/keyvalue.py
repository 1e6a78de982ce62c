"""``KeyValue`` on a dict and a sorted list: the reference, and the simulator's store."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence


class MemoryKeyValue:
    """Keeps everything in memory. ``scan`` walks a copy of the keys, so writes during it are safe."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self._values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place."""
        return [self._values.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order."""
        return self._pairs(self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)])

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of ``scan``, last one first."""
        return self._pairs(self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)][::-1])

    def _pairs(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                yield key, value

    def dump(self) -> Iterator[tuple[bytes, bytes]]:
        """Every pair as it is at this moment."""
        return iter([(key, self._values[key]) for key in self._keys])

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch, deletes first."""
        for key in deletes:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
        for key, value in puts:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value

    def flush(self) -> None:
        """Nothing to do: memory has no disk."""

    def close(self) -> None:
        """Nothing to do."""
