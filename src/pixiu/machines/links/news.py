"""Routes on their way: what one end tells, and how the other end gets all of it over links that lose and reorder.

::

    NewsSource.tell(row) ── News ──▶ NewsSink.news      rows to apply at once, in any order
                         ── Reach ─▶ NewsSink.reach     what is missing, what is different
    NewsSource.wanted    ◀─ Want ──  NewsSink.due       "I have all through 17, but not 12 to 13"
    NewsSource.pages     ◀─ AskRoutes                   too much is missing: all rows, please
                         ── Routes ▶ NewsSink.page

The receiving end asks; the telling end only answers. So a receiver that was away, a source that has changed, and a
datagram that was lost are all the same case. Numbers tell what never came; the digest tells what is different though
all has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.machines.links.messages import AskRoutes, News, Reach, Routes, Want
from pixiu.machines.seqlog import AHEAD_MAX, Heard, Missing, Told
from pixiu.model.partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pixiu.machines.links.messages import ClusterMessage, StreamKey
    from pixiu.machines.routes import Digest, RouteRow

__all__ = ["ByCount", "NewsRules", "NewsSink", "NewsSource", "Snapshot", "by_count", "flushed", "sources_of"]

PAGE_ROWS = 5_000
AGAIN_MAX = 2_000
"""Rows sent again for one ``Want``; what else is missing is asked for again."""


class NewsRules(NamedTuple):
    """Times of a stream, in milliseconds."""

    want_ms: int = 1_000
    """A receiver says so often what it has; that is its subscription."""
    again_ms: int = 100
    """What is missing is asked for again after this."""
    snapshot_ms: int = 2_000
    """A snapshot of which nothing has come for this long, and which is not whole, is asked for again."""
    silent_ms: int = 5_000
    """A receiver that has not said anything for this is sent nothing any more."""


class Snapshot(NamedTuple):
    """All rows of a source."""

    rows: list[RouteRow]
    marks: dict[int, int]
    life: int
    position: int


class NewsSource:
    """The telling end of one stream, and who receives it. Time is an argument."""

    def __init__(self, key: StreamKey, life: int, rules: NewsRules) -> None:
        self.key = key
        self._rules = rules
        self._told: Told[RouteRow] = Told(life)
        self._flushed = 0
        self._sinks: dict[int, int] = {}

    @property
    def position(self) -> int:
        """The last number."""
        return self._told.position

    def sinks(self, now_ms: int) -> list[int]:
        """The boot ids of those who receive it; those who have fallen silent are forgotten."""
        for boot in [boot for boot, at in self._sinks.items() if now_ms - at >= self._rules.silent_ms]:
            del self._sinks[boot]
        return list(self._sinks)

    def admit(self, boot: int, now_ms: int) -> None:
        """Someone receives it from now on, without having asked."""
        self._sinks[boot] = now_ms

    def tell(self, row: RouteRow) -> None:
        """Number a row. It goes out with the next ``flush``."""
        self._told.tell(row)

    def flush(self) -> News | None:
        """What was told since the last time."""
        fresh = self._told.after(self._flushed)
        if not fresh:
            return None
        self._flushed = self._told.position
        return News(self.key, self._told.life, fresh[0][0], [row for _, row in fresh])

    def numbered(self, number: int) -> News | None:
        """One row again, under its number."""
        rows = self._told.again(Missing(number, number))
        return News(self.key, self._told.life, number, [rows[0][1]]) if rows else None

    def reach(self, digest: Digest) -> Reach:
        """How far it goes. ``digest`` is of the rows as they are after the last number."""
        told = self._told
        return Reach(self.key, told.life, told.position, told.oldest, digest)

    def wanted(self, boot: int, want: Want, digest: Digest, now_ms: int) -> list[ClusterMessage]:
        """A receiver says what it has, and gets what it has not."""
        self._sinks[boot] = now_ms
        answers: list[ClusterMessage] = []
        left = AGAIN_MAX
        for hole in want.holes if want.life == self._told.life else ():
            rows = self._told.again(Missing(hole.first, min(hole.last, hole.first + left - 1)))
            if rows:
                answers.append(News(self.key, self._told.life, rows[0][0], [row for _, row in rows]))
                left -= len(rows)
            if left <= 0:
                break
        answers.append(self.reach(digest))
        return answers

    def pages(self, ask: AskRoutes, rows: Sequence[RouteRow], marks: Sequence[tuple[int, int]]) -> list[Routes]:
        """All rows, complete through ``marks``."""
        told = self._told
        parts = [rows[begin : begin + PAGE_ROWS] for begin in range(0, len(rows), PAGE_ROWS)] or [[]]
        return [
            Routes(self.key, told.life, told.position, ask.attempt, page, len(parts), marks if not page else (), part)
            for page, part in enumerate(parts)
        ]


class NewsSink:
    """The receiving end of one stream. Time is an argument."""

    def __init__(self, key: StreamKey, rules: NewsRules) -> None:
        self.key = key
        self.is_loaded = False
        """Has a snapshot come?"""
        self.is_known = False
        """Has the source said how far it is?"""
        self.marks: dict[int, int] = {}
        """Through which version of each gateway everything has come this way."""
        self._rules = rules
        self._heard = Heard()
        self._ahead: dict[int, RouteRow] = {}
        self._wanted_ms: int | None = None
        self._asked_ms: int | None = None
        self._holes: list[Missing] = []
        self._attempt = 0
        self._pages: dict[int, Routes] = {}
        self._pages_seen = 0

    @property
    def position(self) -> int:
        """Everything through this number has come."""
        return self._heard.position

    @property
    def needs_snapshot(self) -> bool:
        """Is something missing that cannot be sent again?"""
        return self._heard.needs_snapshot

    def news(self, news: News) -> list[RouteRow]:
        """The rows that have not come before: apply them, in any order."""
        fresh: list[RouteRow] = []
        for number, row in enumerate(news.rows, news.first):
            if self._heard.heard(news.life, number):
                fresh.append(row)
                self._ahead[number] = row
        self._advance()
        return fresh

    def reach(self, reach: Reach, digest: Digest) -> None:
        """How far the source is. ``digest`` is of the rows that are here."""
        heard = self._heard
        heard.reaches(reach.life, reach.position)
        self.is_known = True
        holes = heard.missing()
        if holes and holes[0].first < reach.oldest:
            heard.gone()
        if not holes and heard.life == reach.life and heard.position == reach.position and digest != reach.digest:
            heard.gone()

    def page(self, routes: Routes) -> Snapshot | None:
        """One page of a snapshot; all of it, when this was the last that was missing."""
        if routes.attempt != self._attempt or self._asked_ms is None:
            return None
        others = next(iter(self._pages.values()), routes)
        if (others.life, others.position, others.pages) != (routes.life, routes.position, routes.pages):
            self._pages = {}  # told while it was changing: the later one counts
        self._pages[routes.page] = routes
        if len(self._pages) < routes.pages:
            return None
        pages, self._pages, self._asked_ms = self._pages, {}, None
        rows = [row for page in sorted(pages) for row in pages[page].rows]
        marks = {gateway: version for page in pages.values() for gateway, version in page.marks}
        self._heard.begin(routes.life, routes.position)
        self._ahead = {number: row for number, row in self._ahead.items() if number > routes.position}
        for gateway, version in marks.items():
            self.marks[gateway] = max(version, self.marks.get(gateway, 0))
        self.is_loaded = True
        self._advance()
        return Snapshot(rows, marks, routes.life, routes.position)

    def ask(self) -> None:
        """A snapshot is wanted, whatever has come."""
        self._heard.gone()
        self._asked_ms = None

    def due(self, now_ms: int) -> list[ClusterMessage]:
        """What to say to the source now."""
        rules, heard = self._rules, self._heard
        said: list[ClusterMessage] = []
        holes = [] if heard.needs_snapshot else heard.missing()
        pause_ms = rules.again_ms if holes else rules.want_ms
        if self._wanted_ms is None or now_ms - self._wanted_ms >= pause_ms or (holes and not self._holes):
            self._wanted_ms = now_ms
            said.append(Want(self.key, heard.life, heard.position, holes))
        self._holes = holes
        if self._asked_ms is not None and len(self._pages) != self._pages_seen:
            self._asked_ms, self._pages_seen = now_ms, len(self._pages)  # it is coming: a large one takes its time
        if heard.needs_snapshot and (self._asked_ms is None or now_ms - self._asked_ms >= rules.snapshot_ms):
            self._asked_ms = now_ms
            self._attempt += 1
            self._pages, self._pages_seen = {}, 0
            said.append(AskRoutes(self.key, self._attempt))
        return said

    def _advance(self) -> None:
        """What has come without a hole is complete: remember through which version of each gateway.

        Not before the snapshot that is needed has come: what was so before the first number nobody has told. Whoever
        took this for complete would forget those rows for good.
        """
        ahead, position = self._ahead, self._heard.position
        if self._heard.needs_snapshot:
            for number in list(ahead)[: max(len(ahead) - AHEAD_MAX, 0)]:
                del ahead[number]  # it counts as incomplete, which harms nobody
            return
        for number in sorted(number for number in ahead if number <= position):
            row = ahead.pop(number)
            self.marks[row.gateway] = max(row.version, self.marks.get(row.gateway, 0))


ByCount = dict[int, dict[int, list[NewsSource]]]
"""Sources by how many partitions their receivers have, and by partition."""


def by_count(sources: Iterable[NewsSource]) -> ByCount:
    """Sources so that ``sources_of`` finds those of a room: what a row costs does not grow with partitions."""
    found: ByCount = {}
    for source in sources:
        key = source.key
        found.setdefault(key.partitions, {}).setdefault(key.partition % key.partitions, []).append(source)
    return found


def sources_of(sources: ByCount, room: int) -> list[NewsSource]:
    """Those that tell of this room."""
    found: list[NewsSource] = []
    for count, partitions in sources.items():
        found += partitions.get(partition_of(room, count), ())
    return found


def flushed(sources: Iterable[NewsSource], now_ms: int) -> Iterator[tuple[int, News]]:
    """What was told to these sources since the last time, and to whom each piece goes."""
    for source in sources:
        news = source.flush()
        if news is not None:
            for boot in source.sinks(now_ms):
                yield boot, news
