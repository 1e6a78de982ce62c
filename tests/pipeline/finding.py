"""An index of what a world on memory has said: unfolded and indexed as the pipeline does it, asked as a node asks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pixiu.backends.tantivy.reader import IndexReader
from pixiu.im.draft import Answer
from pixiu.model.errors import PixiuError
from pixiu.pipeline.records.unfold import Records, unfold
from pixiu.pipeline.search.embedded import EmbeddedIndex
from pixiu.pipeline.search.feed import said_in, taken_in
from pixiu.pipeline.search.steps import Step
from pixiu.pipeline.source.schema import FULL
from pixiu.ports.log import MAIN, LogRecord
from pixiu.ports.search import Asked, Found
from tests.im.world import World, messages

__all__ = ["DirectSearches", "FindingWorld"]


class DirectSearches:
    """``Searches`` without threads: a simulated world has none."""

    def __init__(self, data: Path) -> None:
        self._reader = IndexReader(data)
        self.asked: list[Asked] = []

    def find(self, asked: Asked, done: Callable[[Found | PixiuError], object]) -> None:
        self.asked.append(asked)
        try:
            found: Found | PixiuError = self._reader.find(asked)
        except PixiuError as error:
            found = error
        done(found)


class FindingWorld(World):
    """A world whose messages can be found, as far as ``index`` has come."""

    def __init__(self, data: Path, **options: Any) -> None:
        self.searches = DirectSearches(data)
        super().__init__(searches=self.searches, **options)
        self.data = data
        self.indexed: set[int] = set()

    def index(self) -> None:
        """Everything that was said so far."""
        sink = EmbeddedIndex(self.data)
        through = sink.state().through
        new = [each for each in self.log.records if each.topic == MAIN and through < each.event_id]
        if new:
            records = Records.of_rows(as_batch(new))
            said = list(said_in(unfold(records, "messages")))
            taken = list(taken_in(unfold(records, "changes")))
            self.indexed |= {each.message_id for each in said}
            sink.apply(Step(said, taken, (), sink.state()._replace(through=new[-1].event_id)))
        sink.close()

    def search(self, user: str, q: str, *, limit: int = 100, **params: object) -> list[Answer]:
        """All that a user finds, page by page."""
        found: list[Answer] = []
        cursor = None
        for _ in range(1000):
            given = {"q": q, "limit": limit, **params} | ({"cursor": cursor} if cursor is not None else {})
            page = self.do(user, "search", given)
            assert len(messages(page)) <= limit
            found += messages(page)
            cursor = page["cursor"]
            assert (cursor is not None) == page["has_more"]
            if cursor is None:
                return found
        raise AssertionError("the pages have no end")

    def found(self, user: str, q: str, **params: Any) -> list[int]:
        return [int(str(each["message_id"])) for each in self.search(user, q, **params)]


def as_batch(records: list[LogRecord]) -> Any:
    """Records as rows of the source."""
    columns = {
        "event_id": [each.event_id for each in records],
        "message_id": [each.message_id for each in records],
        "topic": [each.topic for each in records],
        "kind": [129] * len(records),
        "written_at": [each.at * 1000 for each in records],
        "key_hash": [0] * len(records),
        "bytes": [len(each.payload) for each in records],
        "key": [each.key for each in records],
        "payload": [each.payload for each in records],
    }
    return pa.RecordBatch.from_pydict(columns, schema=FULL)
