"""Bytes that are not a whole frame yet.

A body of many megabytes arrives in thousands of pieces. They are collected here and joined once, when
enough is there, instead of being parsed (or copied) again with each piece.
"""

__all__ = ["Unread"]


class Unread:
    """What has arrived and was not used, and how much it takes to go on."""

    __slots__ = ("_kept", "_needed")

    def __init__(self, needed: int) -> None:
        self._kept = bytearray()
        self._needed = needed

    def __len__(self) -> int:
        return len(self._kept)

    def join(self, data: bytes) -> bytes | None:
        """Everything unread with ``data`` at its end, or None while that is too little to go on."""
        kept = self._kept
        if not kept and len(data) >= self._needed:
            return data
        kept += data
        if len(kept) < self._needed:
            return None
        whole = bytes(kept)
        kept.clear()
        return whole

    def keep(self, rest: bytes, needed: int) -> None:
        """Put back what was not used; ``join`` waits until ``needed`` bytes are there."""
        self._kept += rest
        self._needed = needed

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
