"""A number of things in words: ``1 message``, ``2 messages``."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, several: str = "", *, is_grouped: bool = False) -> str:
    """So many of something. ``several`` is its plural where that is not made with an s; ``is_grouped``: as 1,000."""
    number = f"{count:,}" if is_grouped else f"{count}"
    return f"{number} {noun if count == 1 else several or f'{noun}s'}"
