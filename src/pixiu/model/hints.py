"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["HINT_CHARACTERS_MAX", "nearest"]

HINT_CHARACTERS_MAX = 64
"""Longest name that is compared. The work grows with the length of the name, and a request chooses that length."""


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known name most like ``word``; None if none is alike, or if ``word`` is no text or too long to compare."""
    if type(word) is not str or len(word) > HINT_CHARACTERS_MAX:
        return None
    found = get_close_matches(word, known if isinstance(known, list | tuple) else list(known), n=1)
    return found[0] if found else None
