"""A key-value store that forgets like a real one.

Every batch is visible at once and survives a killed process. When the machine goes down, the store holds the effect of
some first n batches: at least those flushed, at most those written; the seed decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.model.errors import Unavailable
from pixiu.testing.scheduler import Power, PowerCut

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["SimulatedKeyValue", "StoreContent"]

Batch = tuple[list[tuple[bytes, bytes]], list[bytes]]


class StoreContent:
    """What outlives the process: the flushed pairs, and the batches behind them."""

    def __init__(self) -> None:
        self._flushed: dict[bytes, bytes] = {}
        self.batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """One more batch, in the system's memory."""
        self.batches.append(batch)

    def flush(self, count: int) -> None:
        """The first ``count`` batches are on the disk."""
        for puts, deletes in self.batches[:count]:
            for key in deletes:
                self._flushed.pop(key, None)
            self._flushed.update(puts)
        del self.batches[:count]

    def crash(self, rng: random.Random) -> int:
        """The machine goes down. Returns how many batches are lost."""
        written = len(self.batches)
        kept = rng.choice([0, written, rng.randint(0, written)])
        self.flush(kept)
        self.batches.clear()
        return written - kept

    def load(self) -> MemoryKeyValue:
        """Everything that a process started now would see."""
        values = dict(self._flushed)
        for puts, deletes in self.batches:
            for key in deletes:
                values.pop(key, None)
            values.update(puts)
        store = MemoryKeyValue()
        store.write(values.items())
        return store


class SimulatedKeyValue:
    """``KeyValue`` of one process on content that outlives it."""

    def __init__(
        self, content: StoreContent, power: Power | None = None, disk_time: Callable[[], None] | None = None
    ) -> None:
        self._content = content
        self._power = power or Power()
        self._disk_time = disk_time or (lambda: None)
        self._memory = content.load()
        self.fail_write: Callable[[], bool] = lambda: False
        """True makes a write fail, whole."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        return self._memory.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place."""
        return self._memory.get_many(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order."""
        return self._memory.scan(start, end)

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of ``scan``, last one first."""
        return self._memory.scan_back(start, end)

    def dump(self) -> Iterator[tuple[bytes, bytes]]:
        """Every pair as it is at this moment."""
        return self._memory.dump()

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch, deletes first."""
        if self._power.use():
            raise PowerCut
        if self.fail_write():
            raise Unavailable("cannot write to the store: No space left on device")
        batch = list(puts), list(deletes)
        self._memory.write(*batch)
        self._content.add(batch)

    def flush(self) -> None:
        """Return when all batches written so far are on the disk."""
        if self._power.use():
            raise PowerCut
        count = len(self._content.batches)
        self._disk_time()
        self._content.flush(count)

    def close(self) -> None:
        """Let go."""
