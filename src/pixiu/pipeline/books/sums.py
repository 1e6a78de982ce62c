"""The books themselves: sums by hour and inbox, what was handed over in which order, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.books.entries import Entries, Ledger, Left
    from pixiu.pipeline.books.people import Inboxes

__all__ = ["HOUR", "Handed", "Marks", "compare", "merged", "reordered", "sums_of"]

HOUR = 3_600_000_000
"""Microseconds."""


def sums_of(entries: Entries, left: Left) -> tuple[Any, dict[str, Any]]:
    """Inbox and hour (two columns) of everything that has changed, and by how much each of its counts has.

    ``first_useq`` and ``through_useq`` are the first and the last place of new entries, 0 if there are none. Most often
    all between them are of that hour; ``intended`` says if so.
    """
    changed = np.flatnonzero(entries.is_new | (left.how > 0))
    is_new, how, useq = entries.is_new[changed], left.how[changed], entries.useq[changed]
    hour = entries.accepted[changed] // HOUR
    base = int(hour.min(initial=0))
    step = int(hour.max(initial=0)) - base + 1
    keys, group = np.unique(entries.inbox[changed] * step + (hour - base), return_inverse=True)
    size = len(keys)

    def count(chosen: Any) -> Any:
        return np.bincount(group[chosen], minlength=size).astype(np.int64)

    first, through = np.full(size, 2**62, np.int64), np.zeros(size, np.int64)
    np.minimum.at(first, group[is_new], useq[is_new])
    np.maximum.at(through, group[is_new], useq[is_new])
    is_late = (how == 1) & (left.at[changed] > entries.accepted[changed] + HOUR)
    counts = {
        "first_useq": np.where(through > 0, first, 0),
        "through_useq": through,
        "intended": count(is_new),
        "acked": count(how == 1),
        "expired": count(how == 2),
        "dead": count(how == 3),
        "late": count(is_late),
        "expected_waiting": count(is_new) - count(how > 0),
    }
    return np.stack([keys // step, keys % step + base], axis=1), counts


# Hand-overs.


class Handed(NamedTuple):
    """Ranges of places that were handed over, by inbox; those that touch are one."""

    inbox: Any
    first: Any
    through: Any


def merged(handed: Handed, ledger: Ledger) -> Handed:
    """With what new rows say was handed over."""
    columns = [
        np.concatenate(pair)
        for pair in zip(handed, (ledger.inbox, ledger.first, ledger.through), strict=True)
    ]  # fmt: skip
    chosen = columns[1] <= columns[2]
    inbox, first, through = (column[chosen] for column in columns)
    order = np.lexsort((through, first, inbox))
    inbox, first, through = inbox[order], first[order], through[order]
    if not len(inbox):
        return Handed(inbox, first, through)
    step = int(through.max()) + 2
    reach = np.maximum.accumulate(inbox * step + through)
    begins = np.concatenate([[True], inbox[1:] * step + first[1:] > reach[:-1] + 1])
    begins[1:] |= inbox[1:] != inbox[:-1]
    starts = np.flatnonzero(begins)
    ends = np.concatenate([starts[1:], [len(inbox)]]) - 1
    return Handed(inbox[starts], first[starts], reach[ends] - inbox[starts] * step)


def reordered(handed: Handed, ledger: Ledger) -> Iterator[tuple[int, int]]:
    """Inbox and place of entries that were handed over for the first time behind a later one.

    ``ledger``: new rows, in order. Ranges that only go up have none, so others alone are looked at one by one.
    """
    count = int(max(handed.inbox.max(initial=-1), ledger.inbox.max(initial=-1))) + 1
    most = np.zeros(count, np.int64)
    np.maximum.at(most, handed.inbox, handed.through)
    chosen = ledger.first <= ledger.through
    inbox, first, through = ledger.inbox[chosen], ledger.first[chosen], ledger.through[chosen]
    if not len(inbox):
        return
    step = int(max(through.max(), most.max(initial=0))) + 2
    reach = np.maximum.accumulate(inbox * step + through)
    before = most[inbox]
    follows = inbox[1:] == inbox[:-1]
    before[1:] = np.maximum(before[1:], np.where(follows, reach[:-1] - inbox[1:] * step, 0))
    for odd in np.unique(inbox[first <= before]):
        known = handed.inbox == odd
        ranges = list(zip(handed.first[known].tolist(), handed.through[known].tolist(), strict=True))
        seen: set[int] = set()
        highest = int(most[odd])
        own = inbox == odd
        for low, high in zip(first[own].tolist(), through[own].tolist(), strict=True):
            for useq in range(low, high + 1):
                if useq in seen or any(begin <= useq <= end for begin, end in ranges):
                    continue
                seen.add(useq)
                if useq < highest:
                    yield int(odd), useq
                highest = max(highest, useq)


# The comparison with the stores.


class Marks:
    """What is said about single places of inboxes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], dict[str, int]] = {}

    def add(self, inbox: int, useq: int, mark: str, count: int = 1) -> None:
        """Once more."""
        marks = self.rows.setdefault((inbox, useq), {})
        marks[mark] = marks.get(mark, 0) + count


Finding = tuple[str, str, int, str, int, int]
"""lost or duplicate, reason, user, platform, place, message."""


def compare(
    waiting: dict[int, dict[int, int]], cut: dict[tuple[int, str], list[tuple[int, int, bool]]], inboxes: Inboxes,
    marks: Marks,
) -> Iterator[Finding]:  # fmt: skip
    """What does not fit. ``waiting``: place to message, by inbox; ``cut``: place, message, whether there is a body."""
    numbers = {(int(user), inboxes.platform[at]): at for at, user in enumerate(inboxes.user)}
    for key in sorted(numbers.keys() | cut.keys()):
        number = numbers.get(key)
        for finding in _of_inbox(
            key, number is not None, dict(waiting.get(-1 if number is None else number, {})), cut.get(key, [])
        ):
            yield finding
            if number is not None:
                marks.add(number, finding[4], "lost" if finding[0] == "lost" else "duplicates")
        if number is not None:
            for useq, _, _ in cut.get(key, ()):
                marks.add(number, useq, "waiting")


def _of_inbox(
    key: tuple[int, str], is_known: bool, wanted: dict[int, int], held: list[tuple[int, int, bool]]
) -> Iterator[Finding]:
    met: set[int] = set()
    for useq, message, has_body in sorted(held):
        if not is_known:
            yield "duplicate", "the log knows no such inbox", *key, useq, message
            continue
        if message in met:
            yield "duplicate", "twice in one inbox", *key, useq, message
        met.add(message)
        expected = wanted.pop(useq, None)
        if expected is None:
            yield "duplicate", "waits, though the log says that it has left", *key, useq, message
        elif expected != message:
            yield "lost", "another message has its place", *key, useq, expected
        elif not has_body:
            yield "lost", "its body is missing", *key, useq, message
    for useq, message in wanted.items():
        yield "lost", "not in the inbox", *key, useq, message
