"""Numbers in the order of a time that each of them has: contacts by the time of adding, groups by that of joining.

A page is found by its cursor, so it costs what it holds. The order is made when the first page is asked for, and kept
up to date from then on.
"""

from bisect import bisect_left, bisect_right, insort

__all__ = ["Ordered", "list_weight"]

Pair = tuple[int, int]
"""A time and a number."""


class Ordered:
    """What one user has."""

    __slots__ = ("_pairs", "times")

    def __init__(self, times: dict[int, int]) -> None:
        self.times = times
        """The time of each number."""
        self._pairs: list[Pair] | None = None

    def put(self, number: int, at: int | None) -> None:
        """The number has this time from now on; None takes it off the list."""
        before = self.times.get(number)
        if before == at:
            return
        if at is None:
            del self.times[number]
        else:
            self.times[number] = at
        if self._pairs is not None:
            if before is not None:
                del self._pairs[bisect_left(self._pairs, (before, number))]
            if at is not None:
                insort(self._pairs, (at, number))

    def page(self, limit: int | None, after: Pair | None = None) -> list[Pair]:
        """The first numbers behind a time and number, each with its time: (number, time)."""
        if self._pairs is None:
            self._pairs = sorted((at, number) for number, at in self.times.items())
        begin = 0 if after is None else bisect_right(self._pairs, after)
        end = None if limit is None else begin + limit
        return [(number, at) for at, number in self._pairs[begin:end]]


def list_weight(ordered: Ordered) -> int:
    """What a list weighs in a cache."""
    return 1 + len(ordered.times)
