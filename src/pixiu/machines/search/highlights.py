"""Which parts of a text a query has met: computed from the text itself, so that an index need not keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.search.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.machines.search.query import Phrase

__all__ = ["HIGHLIGHTS_MAX", "highlights"]

HIGHLIGHTS_MAX = 50


def highlights(text: str, phrases: Iterable[Phrase]) -> list[tuple[int, int]]:
    """Begin and end of every place where a phrase stands, in characters, in order; those that touch are one.

    At most ``HIGHLIGHTS_MAX``: the first.
    """
    at: dict[tuple[int, str], tuple[int, int]] = {
        (term.place, term.text): (term.begin, term.end) for term in terms_of(text)
    }
    phrases = list(phrases)
    places: dict[str, list[int]] = {phrase[0][1]: [] for phrase in phrases}
    for place, word in at:
        if word in places:
            places[word].append(place)
    found: list[tuple[int, int]] = []
    for phrase in phrases:
        for place in places[phrase[0][1]]:
            spans = [at.get((place + step, word)) for step, word in phrase]
            found += [span for span in spans if span is not None] if all(spans) else []
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(set(found)):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged[:HIGHLIGHTS_MAX]
