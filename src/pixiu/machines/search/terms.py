"""Cutting a text into terms, each with its place.

Chinese, Japanese and Korean are written without spaces, or with words that change at their ends: every character is a
term, and so is every pair of neighbours, between the two. Everything else is cut into words: letters, digits and their
marks. A term is folded (width, compatibility, case), so that what looks alike is found alike.

::

    text    我们 OK                 places    我 0   我们 1   们 2   ok 3

So terms in their order, with spaces between them, are a text that any index cuts the same way again.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

__all__ = ["WORD_CHARS_MAX", "Term", "fold", "index_text", "runs_of", "terms_of"]

WORD_CHARS_MAX = 64
"""A longer word is found by its beginning of this length."""

_BY_CHARACTER = (
    (0x1100, 0x11FF), (0x3005, 0x3007), (0x3041, 0x3096), (0x309D, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF),
    (0x3105, 0x312F), (0x3130, 0x318F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF),
    (0xA960, 0xA97F), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0xFFA0, 0xFFDC), (0x1AFF0, 0x1B16F),
    (0x20000, 0x323AF),
)  # fmt: skip
"""Ideographs, kana, bopomofo, hangul."""

_MARKS_THROUGH = 0x1FFFF


class Term(NamedTuple):
    """One term of a text."""

    text: str
    place: int
    """Its number among the terms of the text: what stands together has neighbouring ones."""
    begin: int
    end: int
    """Where it stands in the text."""


class Run(NamedTuple):
    """A word, or characters in a row without a space."""

    begin: int
    end: int
    is_by_character: bool


@cache
def _pattern() -> re.Pattern[str]:
    """Made when it is first needed: Python's expressions know letters, and not the marks that belong to them."""
    marks: list[str] = []
    begin = None
    for number in range(0x300, min(_MARKS_THROUGH, sys.maxunicode) + 2):
        is_mark = unicodedata.category(chr(number)).startswith("M")
        if is_mark and begin is None:
            begin = number
        elif not is_mark and begin is not None:
            marks.append(f"{chr(begin)}-{chr(number - 1)}")
            begin = None
    characters = "".join(f"{chr(low)}-{chr(high)}" for low, high in _BY_CHARACTER)
    joined = "".join(marks)
    return re.compile(f"(?P<characters>[{characters}]+)|(?:(?![{characters}])[\\w{joined}])+")


def runs_of(text: str) -> list[Run]:
    """The words and rows of characters of a text, in its order. Signs and spaces are none."""
    if text.isascii():
        return [Run(*found.span(), False) for found in _ASCII.finditer(text)]
    return [Run(*found.span(), found.lastgroup is not None) for found in _pattern().finditer(text)]


_ASCII = re.compile(r"\w+", re.ASCII)


@lru_cache(maxsize=16_384)
def fold(text: str) -> str:
    """What a term is compared by."""
    if text.isascii():
        return text[:WORD_CHARS_MAX].lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(folded.split())[:WORD_CHARS_MAX] or text  # some forms are folded to a space and a mark


def terms_of(text: str) -> list[Term]:
    """Every term of a text, as it is indexed: words; characters and pairs of them."""
    terms: list[Term] = []
    for begin, end, is_by_character in runs_of(text):
        if not is_by_character:
            terms.append(Term(fold(text[begin:end]), len(terms), begin, end))
            continue
        for at in range(begin, end):
            terms.append(Term(fold(text[at]), len(terms), at, at + 1))
            if at + 1 < end:
                terms.append(Term(fold(text[at]) + fold(text[at + 1]), len(terms), at, at + 2))
    return terms


def index_text(text: str) -> str:
    """The terms of a text in their order, with spaces between them: what an index is given."""
    if text.isascii():
        return " ".join([word[:WORD_CHARS_MAX] for word in _ASCII.findall(text.lower())])
    words: list[str] = []
    for found in _pattern().finditer(text):
        run = found[0]
        if found.lastgroup is None:
            words.append(fold(run))
            continue
        characters = [fold(character) for character in run]
        words.append(characters[0])
        for left, right in pairwise(characters):
            words += (left + right, right)
    return " ".join(words)
