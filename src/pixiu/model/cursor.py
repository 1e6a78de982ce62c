"""Cursors: how far a device holds its inbox, with the epoch of the numbers that the inbox has.

Entries of an inbox are numbered 1, 2, 3 …, and a replay of the same log gives the same numbers. Stores that are made
from another log (a topic that was made anew, a copy) have other ones: the same number is another message there. So a
cursor has the epoch of the numbering in its upper bits; one of another epoch says nothing about this inbox, and whoever
comes with it is told to resync. A node's own log has epoch 0: its cursors are the plain numbers.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["EPOCH_MAX", "USEQ_MAX", "Cursors", "epoch_of"]

_SHIFT = 40
USEQ_MAX = 2**_SHIFT - 1
"""A million entries a second last for twelve days, ten a second for three thousand years."""
EPOCH_MAX = 2**22 - 1


def epoch_of(name: str) -> int:
    """The epoch of a log that has a name of its own: the same on every node, and never 0."""
    return 1 + int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") % EPOCH_MAX


class Cursors:
    """Between the numbers of entries and the cursors of clients. 0 is 0: whoever holds nothing."""

    __slots__ = ("_base", "epoch")

    def __init__(self, epoch: int = 0) -> None:
        self.begin(epoch)

    def begin(self, epoch: int) -> None:
        """From here on it is this epoch."""
        if not 0 <= epoch <= EPOCH_MAX:
            raise ValueError(f"an epoch is from 0 to {EPOCH_MAX}, not {epoch}")
        self.epoch = epoch
        self._base = epoch << _SHIFT

    def of(self, useq: int) -> int:
        """The cursor of whoever holds everything through an entry."""
        return self._base | useq if useq else 0

    def useq(self, cursor: int) -> int | None:
        """The entry through which someone with this cursor holds everything; None if it is of another epoch."""
        if not cursor:
            return 0
        return cursor - self._base if cursor >> _SHIFT == self.epoch else None
