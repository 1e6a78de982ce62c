"""The embedded index as a sink: tantivy, beside the lake. A step is one commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pixiu.backends.tantivy.schema import STATE, find_tantivy, index_folder, make_schema, pair_of
from pixiu.machines.search.terms import index_text
from pixiu.model.errors import Conflict, CorruptData, PixiuError
from pixiu.pipeline.search.steps import State

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import tantivy

    from pixiu.pipeline.search.steps import Erased, Said, Step, Taken

__all__ = ["EmbeddedIndex", "look_at"]

HEAP_BYTES = 64 * 2**20
"""What the writer gathers before it writes a piece of the index: its memory has this bound, however long a step is."""

_STATE_KEY = "state"


class EmbeddedIndex:
    """The index of a data directory, opened for writing; tantivy's own lock keeps a second writer out."""

    name = "search"

    def __init__(self, data: Path, *, reached: Callable[[str], object] = lambda point: None) -> None:
        library = find_tantivy()
        self._library, self._schema, self._reached = library, make_schema(), reached
        self.folder = index_folder(data)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._index = library.Index(self._schema, path=str(self.folder), reuse=True)
            self._index.config_reader(reload_policy="manual")
            self._writer = self._index.writer(heap_size=HEAP_BYTES, num_threads=1)
        except (ValueError, OSError) as error:
            if "LockBusy" in str(error):
                raise Conflict(f"another process writes the index in {self.folder}; wait for it, or stop it") from error
            raise CorruptData(
                f"the index in {self.folder} cannot be opened: {error}; remove the folder, and it is made again"
            ) from error
        self._state = self._read_state()

    def state(self) -> State:
        """How far it is."""
        return self._state

    def documents(self) -> int:
        """How many messages it holds."""
        self._index.reload()
        return int(self._index.searcher().num_docs) - (1 if self._state != State() else 0)

    def apply(self, step: Step) -> int:
        """Add, then remove, then say how far it is, in one commit."""
        count = 0
        try:
            for said in step.said:
                count += self._add(said)
            self._reached("search-added")
            for taken in step.taken:
                self._take(taken)
            for erased in step.erased:
                self._erase(erased)
            if step.state.kept_from > self._state.kept_from:
                self._writer.delete_documents_by_query(self._range("message_id", 0, step.state.kept_from - 1))
            self._write_state(step.state)
            self._reached("search-before-commit")
            self._writer.commit()
        except BaseException:
            self._writer.rollback()
            raise
        self._state = step.state
        self._reached("search-after-commit")
        return count

    def close(self) -> None:
        """End the merges that run, and let go of the lock."""
        self._writer.wait_merging_threads()

    def _add(self, said: Said) -> int:
        terms = index_text(said.text)
        if not terms:
            return 0
        document = self._library.Document()
        document.add_unsigned("message_id", said.message_id)
        document.add_unsigned("event_id", said.event_id)
        document.add_unsigned("sender", said.sender)
        document.add_unsigned("group", said.group)
        if not said.group:
            # The system has no timeline, and a note to oneself is one row: as the appliers have it.
            for user in {said.sender, said.recipient} - {0}:
                document.add_unsigned("party", user)
            document.add_text("pair", pair_of(said.sender, said.recipient))
        document.add_text("text", terms)
        self._writer.add_document(document)
        return 1

    def _take(self, taken: Taken) -> None:
        """A recall names the message and where it is; one that does not fit removes nothing, as in the archive."""
        place = (
            self._term("group", taken.group)
            if taken.group
            else self._term("pair", pair_of(taken.sender, taken.recipient))
        )
        self._writer.delete_documents_by_query(
            self._all(self._term("message_id", taken.message_id), place, self._term("sender", taken.sender))
        )

    def _erase(self, erased: Erased) -> None:
        spoken = self._term("sender", erased.user)
        self._writer.delete_documents_by_query(self._all(spoken, self._range("event_id", 0, erased.through)))

    # How far it is.

    def _read_state(self) -> State:
        self._index.reload()
        return _state_in(self._index.searcher(), self.folder)

    def _write_state(self, state: State) -> None:
        self._writer.delete_documents_by_term(STATE, _STATE_KEY)
        document = self._library.Document()
        document.add_text(STATE, _STATE_KEY)
        document.add_text(STATE, json.dumps(state._asdict()))
        self._writer.add_document(document)

    # Queries.

    def _term(self, name: str, value: int | str) -> Any:
        return self._library.Query.term_query(self._schema, name, value)

    def _range(self, name: str, low: int, high: int) -> Any:
        kind = self._library.FieldType.Unsigned
        return self._library.Query.range_query(self._schema, name, kind, low, high)

    def _all(self, *queries: Any) -> Any:
        must = self._library.Occur.Must
        return self._library.Query.boolean_query([(must, query) for query in queries])


def _state_in(searcher: tantivy.Searcher, folder: Path) -> State:
    query = find_tantivy().Query.term_query(make_schema(), STATE, _STATE_KEY)
    found = searcher.search(query, limit=1).hits
    if not found:
        return State()
    values: list[Any] = searcher.doc(found[0][1]).get_all(STATE)
    try:
        return State(**json.loads(values[1]))
    except (ValueError, TypeError, LookupError) as error:
        raise CorruptData(
            f"the index in {folder} does not say how far it is: {error}; remove the folder, and it is made again"
        ) from error


def look_at(data: Path) -> tuple[State, int] | None:
    """How far the index of a data directory is, and how many messages it holds; None if it cannot be asked."""
    folder = index_folder(data)
    if not (folder / "meta.json").exists():
        return None
    try:
        index = find_tantivy().Index.open(str(folder))
        index.reload()
        searcher = index.searcher()
        state = _state_in(searcher, folder)
    except (PixiuError, ValueError, OSError):
        return None
    return state, max(0, int(searcher.num_docs) - 1)
