"""The newest of the log as frames, in memory: made once, and given to everyone who follows."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from pixiu.backends.kafka.served.frames import Piece, gap_frame, pieces_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.backends.kafka.records import Entry

__all__ = ["TAIL_BYTES_MAX", "FrameTail"]

TAIL_BYTES_MAX = 32 * 2**20
_ROW_BYTES = 200


class FrameTail:
    """Pieces of the log, oldest first, without holes."""

    def __init__(self, *, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self.first = 1
        """Memory is complete from this event on."""
        self.last = 0

    def begin(self, claimed: int, at: int) -> None:
        """A new owner's own event is the newest of the log, and all that is known of it here."""
        self._pieces.clear()
        self._size, self.first, self.last = 0, claimed, claimed - 1
        self._add(Piece(claimed, claimed, gap_frame(claimed, claimed, at)))

    def add(self, entries: Sequence[Entry]) -> None:
        """A batch was committed."""
        for piece in pieces_of(self.last, entries):
            self._add(piece)
        while self._size > self._bytes_max and self._pieces:
            gone = self._pieces.popleft()
            self._size -= len(gone.frames) + _ROW_BYTES
            self.first = gone.last + 1

    def _add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size += len(piece.frames) + _ROW_BYTES
        self.last = piece.last

    def has(self, after: int) -> bool:
        """Is everything behind this event in memory?"""
        return after + 1 >= self.first

    def read(self, after: int) -> Piece | None:
        """The piece that the event behind ``after`` is in; None at the end. Its beginning may be known already."""
        if after >= self.last:
            return None
        return self._pieces[bisect_right(self._pieces, after, key=lambda piece: piece.last)]
