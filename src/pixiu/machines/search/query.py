"""What someone types to find something: words that must all be there, and filters.

::

    lunch tomorrow          both words
    "lunch tomorrow"        one behind the other
    明天 午饭                both, each as it is written
    from:alice in:team      said by alice, in the group team (or with the user of that name)
    after:2026-01-01 before:2026-02-01      from the first day on, and until the second begins (UTC)

What stands together without a space (``user@example.com``, ``明天午饭``) is found together, like a phrase.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from pixiu.machines.search.terms import fold, runs_of
from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS

__all__ = ["QUERY_CHARS_MAX", "TERMS_MAX", "Phrase", "SearchText", "parse_query"]

QUERY_CHARS_MAX = 256
TERMS_MAX = 32
NAMES_MAX = 8

Phrase = tuple[tuple[int, str], ...]
"""Terms with their places, from 0 on: all of them, at these distances."""

_PIECE = re.compile(r'(?:(?P<name>[A-Za-z]+):)?(?:"(?P<quoted>[^"]*)"?|(?P<plain>[^\s"]+))')
_FILTERS = ("from", "in", "before", "after")


@dataclass(frozen=True, slots=True)
class SearchText:
    """A query, understood."""

    phrases: tuple[Phrase, ...]
    senders: tuple[str, ...] = ()
    """Public ids; ``me`` is whoever asks. Any of them."""
    places: tuple[str, ...] = ()
    """Public ids of groups or users. Any of them."""
    at_least_ms: int | None = None
    before_ms: int | None = None

    @property
    def first_id(self) -> int:
        """No message id below this."""
        return _first_id_of(self.at_least_ms) if self.at_least_ms is not None else 0

    def end_id(self, cursor: int = 0) -> int:
        """Only message ids below this, and below a cursor; 0 is no bound. Before all times there is nothing below 1."""
        bounds = [cursor] if cursor else []
        if self.before_ms is not None:
            bounds.append(max(1, _first_id_of(self.before_ms)))
        return min(bounds, default=0)


def _first_id_of(moment_ms: int) -> int:
    """The smallest message id that the log gives at a time."""
    return max(0, moment_ms - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)


def parse_query(text: str) -> SearchText:
    """Raises ``RequestError`` where there is nothing to look for, or a filter makes no sense."""
    if len(text) > QUERY_CHARS_MAX:
        raise TooLarge(f"q may have {QUERY_CHARS_MAX} characters, not {len(text)}")
    phrases: list[Phrase] = []
    names: dict[str, list[str]] = {"from": [], "in": []}
    times: dict[str, int] = {}
    for piece in _PIECE.finditer(text):
        name = (piece["name"] or "").lower()
        value = piece["quoted"] if piece["quoted"] is not None else piece["plain"]
        if name not in _FILTERS:
            # What looks like a filter and is none (`http://…`, `note:`) is looked for as it stands.
            phrases += filter(None, [phrase_of(f"{piece['name']}:{value}" if name else value)])
        elif not value:
            raise RequestError(f"{name}: has nothing behind it")
        elif name in names:
            names[name].append(value)
        else:
            times[name] = _time(name, value)
    if sum(map(len, phrases)) > TERMS_MAX:
        raise TooLarge(f"q may have {TERMS_MAX} words and pairs of characters")
    for name, given in names.items():
        if len(given) > NAMES_MAX:
            raise TooLarge(f"q may have {NAMES_MAX} times {name}:")
    if not phrases:
        raise RequestError("q has no word to look for")
    return SearchText(
        tuple(dict.fromkeys(phrases)), tuple(names["from"]), tuple(names["in"]), times.get("after"), times.get("before")
    )


def phrase_of(text: str) -> Phrase:
    """The fewest terms that pin a piece of text down: words, pairs of characters, a character that is alone."""
    terms: list[tuple[int, str]] = []
    place = 0
    for begin, end, is_by_character in runs_of(text):
        if not is_by_character:
            terms.append((place, fold(text[begin:end])))
            place += 1
            continue
        folded = [fold(character) for character in text[begin:end]]
        pairs = [(place + 2 * number + 1, folded[number] + folded[number + 1]) for number in range(len(folded) - 1)]
        terms += pairs or [(place, folded[0])]
        place += 2 * len(folded) - 1
    # From the first term on: a pair stands behind the character that it begins with.
    terms = [(number - terms[0][0], term) for number, term in terms]
    return tuple(terms)


def _time(name: str, value: str) -> int:
    """A day, a moment, or milliseconds since the epoch. Without a zone it is UTC."""
    if value.isascii() and value.isdecimal() and len(value) > 8:
        return min(int(value[:16]), 2**41)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise RequestError(f"{name}: takes a day such as 2026-01-31, not {value[:40]!r}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))
