"""Words and pieces of words: how texts and queries are cut, and what of a text a query has met. No I/O."""

from pixiu.machines.search.highlights import highlights
from pixiu.machines.search.query import Phrase, SearchText, parse_query
from pixiu.machines.search.terms import Term, terms_of

__all__ = ["Phrase", "SearchText", "Term", "highlights", "parse_query", "terms_of"]
