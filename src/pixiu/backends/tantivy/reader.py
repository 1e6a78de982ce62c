"""Asking the index. Read-only; it sees what the pipeline has committed, also while that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.backends.tantivy.schema import find_tantivy, index_folder, make_schema, pair_of
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.ports.search import Found, Hit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import tantivy

    from pixiu.ports.search import Asked

__all__ = ["IndexReader", "NoIndex"]

_UNSIGNED_MAX = 2**63 - 1


class NoIndex(Unavailable):
    """There is no index that can be asked. Its text is the operator's, with folders; ``told`` is for clients."""

    def __init__(self, message: str, told: str) -> None:
        super().__init__(message)
        self.told = told


_NOT_YET = (
    "the server has not indexed any message yet. A pipeline beside it (as that of pixiu serve) does so within a minute "
    "or two: try again then; or its operator runs: pixiu pipeline run archive search --once"
)
_DAMAGED = "the server's index of messages cannot be read; its log says why, and what its operator can do"


class IndexReader:
    """The index of one data directory. One thread at a time opens it; any may search."""

    def __init__(self, data: Path) -> None:
        self._folder = index_folder(data)
        self._data = data
        self._seen: tuple[int, int, int] | None = None
        self._searcher: tantivy.Searcher | None = None

    def find(self, asked: Asked) -> Found:
        """Answer a question now; blocks."""
        return self._find(asked, _readable)

    def find_everywhere(self, asked: Asked) -> Found:
        """The same for an operator, who has the files: whoever said it. ``groups`` and ``peers`` narrow it, if any."""
        return self._find(asked, _named)

    def _find(self, asked: Asked, where: Callable[[tantivy.Schema, Asked], Any]) -> Found:
        searcher = self._newest()
        try:
            hits = _search(searcher, query_of(asked, where), asked)
        except (ValueError, OSError) as error:
            self._searcher = self._seen = None
            raise NoIndex(f"the index in {self._folder} cannot be read: {error}", _DAMAGED) from error
        return Found(hits)

    def _newest(self) -> tantivy.Searcher:
        """The newest commit: its file is looked at for each question, and opened where it has changed."""
        library = find_tantivy()
        try:
            status = (self._folder / "meta.json").stat()
        except OSError:
            self._searcher = self._seen = None
            raise NoIndex(
                f"the pipeline has not indexed any message of {self._data} yet. That of pixiu serve does so within a "
                f"minute or two; to run one: pixiu pipeline run archive search --once --data {self._data}",
                _NOT_YET,
            ) from None
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._searcher is None or seen != self._seen:
            try:
                index = library.Index.open(str(self._folder))
                index.config_reader(reload_policy="manual")
                index.reload()
                self._searcher = index.searcher()
            except (ValueError, OSError) as error:
                raise NoIndex(
                    f"the index in {self._folder} cannot be opened: {error}; remove the folder, and the pipeline makes "
                    "it again",
                    _DAMAGED,
                ) from error
            self._seen = seen
        if self._searcher is None:
            raise PixiuError("an index was opened, and has no searcher")
        return self._searcher


def _search(searcher: tantivy.Searcher, query: tantivy.Query, asked: Asked) -> list[Hit]:
    # Results of a search that is ordered by a field carry that field; others carry a score.
    if asked.is_by_relevance:
        found = searcher.search(query, limit=asked.limit, offset=asked.skip, count=False).hits
    else:
        found = searcher.search(query, limit=asked.limit, count=False, order_by_field="message_id").hits
    addresses = [address for _, address in found]
    ids = searcher.fast_field_values("message_id", addresses) if addresses else []
    groups = searcher.fast_field_values("group", addresses) if addresses else []
    return [Hit(int(number or 0), int(group or 0)) for number, group in zip(ids, groups, strict=True)]


def query_of(asked: Asked, where: Callable[[tantivy.Schema, Asked], Any]) -> tantivy.Query:
    """A question in tantivy's words. Only the terms count for relevance; the rest says where to look."""
    library = find_tantivy()
    query, must = library.Query, library.Occur.Must
    schema = make_schema()
    clauses = [(must, _phrase(schema, phrase)) for phrase in asked.phrases]
    filters = [where(schema, asked)]
    if asked.senders:
        filters.append(query.term_set_query(schema, "sender", list(asked.senders)))
    if asked.at_least or asked.before:
        highest = asked.before - 1 if asked.before else _UNSIGNED_MAX
        filters.append(_ids(schema, asked.at_least, highest))
    clauses += [(must, query.const_score_query(each, 0.0)) for each in filters]
    made: tantivy.Query = query.boolean_query(clauses)
    return made


def _phrase(schema: tantivy.Schema, phrase: tuple[tuple[int, str], ...]) -> Any:
    query = find_tantivy().Query
    if len(phrase) == 1:
        return query.term_query(schema, "text", phrase[0][1])
    return query.phrase_query(schema, "text", list(phrase))


def _readable(schema: tantivy.Schema, asked: Asked) -> Any:
    """Private messages of the user, and groups, some of them from a message on."""
    library = find_tantivy()
    query, must, should = library.Query, library.Occur.Must, library.Occur.Should
    places = []
    if asked.user and asked.peers is None:
        places.append(query.term_query(schema, "party", asked.user))
    elif asked.user and asked.peers:
        pairs = query.term_set_query(schema, "pair", [pair_of(asked.user, peer) for peer in asked.peers])
        places.append(query.boolean_query([(must, query.term_query(schema, "party", asked.user)), (must, pairs)]))
    whole = [group for group, least in asked.groups.items() if not least]
    if whole:
        places.append(query.term_set_query(schema, "group", whole))
    for group, least in asked.groups.items():
        if least:
            in_group = query.term_query(schema, "group", group)
            places.append(query.boolean_query([(must, in_group), (must, _ids(schema, least, _UNSIGNED_MAX))]))
    return query.boolean_query([(should, each) for each in places]) if places else query.empty_query()


def _named(schema: tantivy.Schema, asked: Asked) -> Any:
    """Everything, or these groups and what these users have said or heard in private."""
    library = find_tantivy()
    query, should = library.Query, library.Occur.Should
    if not asked.groups and not asked.peers:
        return query.all_query()
    groups = query.term_set_query(schema, "group", list(asked.groups))
    parties = query.term_set_query(schema, "party", list(asked.peers or ()))
    return query.boolean_query([(should, groups), (should, parties)])


def _ids(schema: tantivy.Schema, lowest: int, highest: int) -> Any:
    library = find_tantivy()
    if highest < lowest:
        return library.Query.empty_query()
    return library.Query.range_query(schema, "message_id", library.FieldType.Unsigned, lowest, highest)
