"""Have we seen this message? A memory that is bounded by time and by count.

A reliable room message may come in up to three copies over different ways, and each of them again. A gateway shows it
once: it remembers ``(message_id, key)``, where the key is the user, or, cheaper, whatever else a copy is for (a room, a
slice of a room). The id alone will not do: the slices of one big room carry the same id to different people (E6).

The time must be longer than a copy can be under way. The count protects the memory; when it has to let go of something
that is not old enough, ``forgotten_early`` says so: then the bound is too small for the traffic (E52).

Mark after sending: who stops in between sends again rather than not at all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

__all__ = ["Seen"]


class Seen:
    """Remembers what was marked, for ``window_ms`` and up to ``count_max`` entries. Time is an argument."""

    __slots__ = ("_count_max", "_entries", "_order", "_window_ms", "forgotten_early", "marked")

    def __init__(self, *, window_ms: int, count_max: int) -> None:
        self._window_ms = window_ms
        self._count_max = count_max
        self._entries: set[tuple[int, Hashable]] = set()
        self._order: deque[tuple[int, tuple[int, Hashable]]] = deque()
        self.forgotten_early = 0
        self.marked: Callable[[int, Hashable], object] | None = None
        """Told of each new entry, for whoever keeps them over a restart."""

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, message_id: int, key: Hashable, now_ms: int) -> bool:
        """Was it marked within the window?"""
        self._forget(now_ms)
        return (message_id, key) in self._entries

    def mark(self, message_id: int, key: Hashable, now_ms: int) -> bool:
        """Remember it from now on. False if it is known already; that does not make it younger."""
        self._forget(now_ms)
        entry = (message_id, key)
        if entry in self._entries:
            return False
        self._entries.add(entry)
        self._order.append((now_ms, entry))
        if self.marked is not None:
            self.marked(message_id, key)
        if len(self._entries) > self._count_max:
            self._entries.remove(self._order.popleft()[1])
            self.forgotten_early += 1
        return True

    def restore(self, entries: Iterable[tuple[int, Hashable, int]]) -> None:
        """What was marked in an earlier life: ids, keys and times, which may lie before 0, oldest first."""
        marked, self.marked = self.marked, None
        for message_id, key, at_ms in entries:
            self.mark(message_id, key, at_ms)
        self.marked = marked

    def _forget(self, now_ms: int) -> None:
        order, before = self._order, now_ms - self._window_ms
        while order and order[0][0] <= before:
            self._entries.remove(order.popleft()[1])
