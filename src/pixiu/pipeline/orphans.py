"""What is wrong with a node's stores, found by holding them against stores that were made again from the log.

Both are read once, in the order of their keys, side by side. A body that no row and no entry should name is an orphan;
so is an id whose body is missing; counts that differ are named with both numbers. Sessions of embedded stores end with
their process, so a node that does not run has none that could be stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.backends.embedded import bulk
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.model.counted import counted
from pixiu.model.errors import Conflict
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.ports.keyvalue import KeyValue

__all__ = ["Finding", "compare_stores", "differences"]

_KINDS = {"u": 1, "g": 2}
_MESSAGING_LANES = (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)


class Finding(NamedTuple):
    """One thing that does not fit."""

    finding: str
    """body without ids, id without body, wrong count, missing row, extra row, wrong row."""
    table: str
    key: str
    expected: str
    found: str


def compare_stores(expected: Path, actual: Path, *, limit: int = 10_000) -> list[Finding]:
    """Everything that differs, up to ``limit``; both folders must stand at the same event."""
    made, held = RocksKeyValue(expected, options=LARGE), RocksKeyValue(actual, options=LARGE)
    try:
        _check_events(made, held)
        found: list[Finding] = []
        for each in differences(made, held):
            found.append(each)
            if len(found) >= limit:
                break
        return found
    finally:
        made.close()
        held.close()


def _check_events(made: RocksKeyValue, held: RocksKeyValue) -> None:
    from pixiu.backends.embedded.stores import EmbeddedStores

    one, other = EmbeddedStores(made), EmbeddedStores(held)
    for lane in _MESSAGING_LANES:
        if one.applied(lane) != other.applied(lane):
            raise Conflict(
                f"{lane.value} stand at event {other.applied(lane)}, and those they are held against at "
                f"{one.applied(lane)}; bring both to the end of the log first"
            )


def differences(made: KeyValue, held: KeyValue) -> Iterator[Finding]:
    """What is in one and not in the other, or not the same, table by table."""
    yield from _bodies(made, held)
    for name, read in (("private timelines", bulk.stored_private_rows), ("group timelines", bulk.stored_group_rows)):
        yield from _rows(name, read, made, held)
    floors = _floors(made), _floors(held)
    for key, one, other in _merged(bulk.stored_inboxes(made), bulk.stored_inboxes(held), lambda row: (row[0], row[2])):
        if one is None or other is None or one[1] != other[1]:
            yield Finding(_missing(one, other), "inboxes", _text(key), _text(one), _text(other))
        elif one != other:
            yield Finding("wrong count", "inboxes", _text(key), _text(one[3:]), _text(other[3:]))
    entries = _waiting(made, floors[0]), _waiting(held, floors[1])
    for key, one, other in _merged(*entries, lambda row: row[:3]):
        yield Finding(_missing(one, other), "inbox entries", _text(key), _text(one), _text(other))
    unread = bulk.stored_unread(made), bulk.stored_unread(held)
    for key, one, other in _merged(*unread, lambda row: (row[0], _KINDS[row[1]], row[2])):
        finding = "wrong count" if one is not None and other is not None else _missing(one, other)
        yield Finding(finding, "unread", _text(key), _text(one), _text(other))


def _bodies(made: KeyValue, held: KeyValue) -> Iterator[Finding]:
    for (key,), one, other in _merged(bulk.stored_bodies(made), bulk.stored_bodies(held), lambda row: row[:1]):
        if one is None:
            yield Finding("body without ids", "bodies", str(key), "", counted(other[1], "reference"))
        elif other is None:
            yield Finding("id without body", "bodies", str(key), counted(one[1], "reference"), "")
        elif one[1] != other[1]:
            yield Finding(
                "wrong count", "bodies", str(key), counted(one[1], "reference"), counted(other[1], "reference")
            )
        else:
            yield Finding("wrong row", "bodies", str(key), counted(len(one[2]), "byte"), counted(len(other[2]), "byte"))


def _rows(
    name: str, read: Callable[[KeyValue], Iterator[tuple[Any, ...]]], made: KeyValue, held: KeyValue
) -> Iterator[Finding]:
    for key, one, other in _merged(read(made), read(held), lambda row: row[:2]):
        yield Finding(_missing(one, other), name, _text(key), _text(one), _text(other))


def _missing(one: Any, other: Any) -> str:
    return "extra row" if one is None else "missing row" if other is None else "wrong row"


def _floors(store: KeyValue) -> dict[tuple[int, int], int]:
    return {(user, place): floor for user, _, place, floor, _, _ in bulk.stored_inboxes(store)}


def _waiting(store: KeyValue, floors: dict[tuple[int, int], int]) -> Iterator[tuple[int, int, int, int]]:
    """Entries that someone would still read: blocks keep those below the floor for a while."""
    for row in bulk.stored_entries(store):
        if row[2] > floors.get((row[0], row[1]), 0):
            yield row


def _merged(
    ours: Iterator[tuple[Any, ...]], theirs: Iterator[tuple[Any, ...]], key_of: Callable[[Any], tuple[Any, ...]]
) -> Iterator[tuple[Any, Any, Any]]:
    """Rows of two sorted streams that are not equal, by key: (key, ours or None, theirs or None)."""
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        key: Any = None if one is None else key_of(one)
        their_key: Any = None if other is None else key_of(other)
        if other is None or (one is not None and key < their_key):
            yield key, one, None
            one = next(ours, None)
        elif one is None or their_key < key:
            yield their_key, None, other
            other = next(theirs, None)
        else:
            if one != other:
                yield key, one, other
            one, other = next(ours, None), next(theirs, None)


def _text(row: Any) -> str:
    return "" if row is None else " ".join(map(str, row))
