"""Numbered news between roles: what is missing is noticed, asked for, and sent again.

Routers tell brokers and each other who came and went. Each origin numbers what it tells, densely from 1, and keeps the
last of it. A receiver applies whatever comes, in any order, since newer news of a route wins by its own version; the
numbers only tell what never came::

    Told.tell(news) ─ number ─▶ Heard.heard(number)     new, or a repeat
    Told.after(position)  ◀──── Heard.missing()         "I lack 5 to 8": sent again, or too old: take a snapshot

``life`` tells one life of an origin from the next, which counts anew.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

__all__ = ["AHEAD_MAX", "KEPT_MAX", "Heard", "Missing", "Told"]

News = TypeVar("News")

KEPT_MAX = 100_000
"""News that an origin keeps for those who missed it. Older: they take a snapshot."""
AHEAD_MAX = 10_000
"""Numbers that a receiver remembers beyond a hole. More: the hole is given up, and a snapshot is due."""
ASKED_MAX = 64
"""Holes asked for at a time: the oldest."""


class Missing(NamedTuple):
    """A hole: these numbers have not come, both included."""

    first: int
    last: int


class Told(Generic[News]):
    """An origin's end."""

    __slots__ = ("_kept", "life", "position")

    def __init__(self, life: int, *, kept_max: int = KEPT_MAX) -> None:
        self.life = life
        self.position = 0
        """The last number given."""
        self._kept: deque[News] = deque(maxlen=kept_max)

    @property
    def oldest(self) -> int:
        """The oldest number that is still kept; the next one, if none is."""
        return self.position - len(self._kept) + 1

    def tell(self, news: News) -> int:
        """Number it, and keep it for a while."""
        self.position += 1
        self._kept.append(news)
        return self.position

    def again(self, missing: Missing) -> list[tuple[int, News]] | None:
        """What was in a hole, with its numbers. None: it is not kept any more, take a snapshot."""
        oldest = self.oldest
        if missing.first < oldest:
            return None
        last = min(missing.last, self.position)
        return [(number, self._kept[number - oldest]) for number in range(missing.first, last + 1)]

    def after(self, position: int) -> list[tuple[int, News]] | None:
        """Everything after a position: for one who comes from another source, or comes back."""
        return self.again(Missing(position + 1, self.position))


class Heard:
    """A receiver's end of one origin."""

    __slots__ = ("_ahead", "_ahead_max", "_end", "life", "needs_snapshot", "position")

    def __init__(self, *, ahead_max: int = AHEAD_MAX) -> None:
        self.life = 0
        self.position = 0
        """Everything through this number has come."""
        self.needs_snapshot = False
        """A hole could not be closed: what it held is not known."""
        self._ahead: set[int] = set()
        self._ahead_max = ahead_max
        self._end = 0
        """The highest number that is known to exist."""

    def begin(self, life: int, position: int) -> None:
        """A snapshot, or the origin's word, covers everything through there."""
        if life < self.life:
            return
        if life > self.life:
            self._new_life(life)
        self.needs_snapshot = False
        if position > self.position:
            self.position = position
            self._ahead = {number for number in self._ahead if number > position}
            self._end = max(self._end, position)
            self._close()

    def heard(self, life: int, number: int) -> bool:
        """Is this news new? That of an older life is not.

        With a newer life a snapshot is due: nobody tells the end of the older one any more.
        """
        if life < self.life:
            return False
        if life > self.life:
            self._new_life(life)
        if number <= self.position or number in self._ahead:
            return False
        self._ahead.add(number)
        self._end = max(self._end, number)
        self._close()
        if len(self._ahead) > self._ahead_max:
            self.needs_snapshot = True
            self.position = self._end
            self._ahead = set()
        return True

    def reaches(self, life: int, position: int) -> None:
        """A heartbeat of the origin says how far it is: what was lost at the end shows by that."""
        if life > self.life:
            self._new_life(life)
        if life == self.life:
            self._end = max(self._end, position)

    def missing(self) -> list[Missing]:
        """The holes, oldest first."""
        if not self._ahead and self._end <= self.position:
            return []  # as it nearly always is
        holes: list[Missing] = []
        before = self.position
        for number in [*sorted(self._ahead), self._end + 1]:
            if number > before + 1:
                holes.append(Missing(before + 1, number - 1))
                if len(holes) == ASKED_MAX:
                    break
            before = number
        return holes

    def gone(self) -> None:
        """The origin does not keep what is missing any more."""
        self.needs_snapshot = True

    def _new_life(self, life: int) -> None:
        self.life, self.position, self._ahead, self._end = life, 0, set(), 0
        self.needs_snapshot = True

    def _close(self) -> None:
        while self.position + 1 in self._ahead:
            self.position += 1
            self._ahead.discard(self.position)
