"""Where the stores of one partition live, and how others take their place: whole, or not at all.

::

    DIR/stores           what this replica has applied
    DIR/stores.coming    a snapshot that is on its way; thrown away when a process finds it
    DIR/stores.ready     one that has come, was checked and is on the disk: it takes the place of ``stores``

A crash at any moment leaves one of these pictures, and whoever opens the stores next finishes what it finds.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING, Protocol

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.layout import LAYOUT, META, number
from pixiu.model.errors import CorruptData
from pixiu.model.partitions import Share

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.ports.keyvalue import KeyValue

__all__ = [
    "DiskHome",
    "StoreHome",
    "begun_anew",
    "has_loss",
    "is_wide",
    "made_by",
    "not_wide",
    "note_loss",
    "opened",
    "seal",
]

log = logging.getLogger(__name__)

STORES_FOLDER = "stores"
COMING_FOLDER = "stores.coming"
READY_FOLDER = "stores.ready"
_LAYOUT = META + b"layout"
_SHARE = META + b"share"
_WIDE = META + b"wide"
_LOSS = META + b"loss"
_ENGINES = META + b"engines"
"""Which engines have the rest, if this store has a part only."""


class StoreHome(Protocol):
    """The place of a partition's stores."""

    def open(self) -> KeyValue:
        """The store that is in place."""
        ...

    def throw_away(self) -> None:
        """What is in place is of no use. It is closed."""
        ...

    def fresh(self) -> KeyValue:
        """An empty store beside the one in place; an earlier one is thrown away."""
        ...

    def adopt(self) -> None:
        """The fresh one is complete, flushed and closed, and so is the one in place: it takes that place."""
        ...


class DiskHome:
    """``StoreHome`` in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self) -> RocksKeyValue:
        """The store that is in place, also when a crash came between."""
        if (self._root / READY_FOLDER).exists():
            self._put_in_place()
        return RocksKeyValue(self._root / STORES_FOLDER, options=LARGE)

    def throw_away(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._root / STORES_FOLDER)

    def fresh(self) -> RocksKeyValue:
        """An empty one beside it."""
        shutil.rmtree(self._root / COMING_FOLDER, ignore_errors=True)
        return RocksKeyValue(self._root / COMING_FOLDER, options=LARGE)

    def adopt(self) -> None:
        """From the first rename on there is no way back, and no way to lose it."""
        (self._root / COMING_FOLDER).rename(self._root / READY_FOLDER)
        self._sync()
        self._put_in_place()

    def _put_in_place(self) -> None:
        if (self._root / STORES_FOLDER).exists():
            shutil.rmtree(self._root / STORES_FOLDER)
        (self._root / READY_FOLDER).rename(self._root / STORES_FOLDER)
        self._sync()

    def _sync(self) -> None:
        folder = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _nothing(_noted: str) -> None:
    """There is nothing elsewhere."""


def opened(
    home: StoreHome, share: Share, *, engines: str = "", empty: Callable[[str], object] = _nothing
) -> tuple[KeyValue, Share]:
    """The store of one partition, and by which count it was made: what is behind a flip goes by that.

    One that is damaged, or of another layout or partition, is thrown away: the log, or another replica, has it all. So
    is one that was made beside other ``engines``; ``empty`` is told which, and empties those that go on with it.
    """
    try:
        store = home.open()
    except CorruptData as error:
        log.error(
            "the stores are damaged, and are made again from the log or another replica", extra={"reason": str(error)}
        )
        home.throw_away()
        store = home.open()
    partition, _, count = (store.get(_SHARE) or b"").partition(b"/")
    is_made_so = partition == b"%d" % share.partition and (store.get(_ENGINES) or b"") == engines.encode()
    if store.get(_LAYOUT) == number.pack(LAYOUT) and is_made_so:
        return store, Share(share.partition, int(count))
    return begun_anew(home, store, share, engines=engines, empty=empty), share


def begun_anew(
    home: StoreHome, store: KeyValue, share: Share, *, engines: str = "", empty: Callable[[str], object] = _nothing
) -> KeyValue:
    """An empty one in the place of one that is of no use, which is closed."""
    try:
        # Before the note of whose they are goes: a crash in between begins here again.
        empty((store.get(_ENGINES) or b"").decode())
        is_used = next(store.dump(), None) is not None
    except BaseException:
        store.close()
        raise
    if is_used:
        log.warning("the stores are of another partition, layout or engine, and are made again")
        store.close()
        home.throw_away()
        store = home.open()
    noted = [(_ENGINES, engines.encode())] if engines else []
    store.write([(_LAYOUT, number.pack(LAYOUT)), made_by(share), *noted])
    return store


def made_by(share: Share) -> tuple[bytes, bytes]:
    """The pair that says whose records a store has."""
    return _SHARE, b"%d/%d" % (share.partition, share.count)


def seal(store: KeyValue, share: Share | None) -> None:
    """A snapshot is complete. ``share``: whose it is now, if it was another partition's and has more than that."""
    if share is not None:
        store.write([made_by(share), (_WIDE, b"1")])
    store.flush()


def is_wide(store: KeyValue) -> bool:
    """Has it what is of other partitions?"""
    return store.get(_WIDE) is not None


def note_loss(store: KeyValue, *, is_lost: bool) -> None:
    """Another engine has lost something somewhere: nothing of it counts until it was emptied."""
    if is_lost:
        store.write([(_LOSS, b"1")])
    else:
        store.write([], [_LOSS])


def has_loss(store: KeyValue) -> bool:
    """Was such a loss noted, and not made good?"""
    return store.get(_LOSS) is not None


def not_wide(store: KeyValue) -> None:
    """It has no more."""
    store.write([], [_WIDE])
