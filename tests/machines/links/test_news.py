"""News between a source and its receivers: all of it comes, whatever is lost; otherwise a snapshot is asked for."""

import random

import pytest

from pixiu.machines.links.messages import TO_BROKER, AskRoutes, News, Reach, Routes, StreamKey, Want
from pixiu.machines.links.news import NewsRules, NewsSink, NewsSource, by_count, sources_of
from pixiu.machines.routes import RouteRow, RouteTable
from pixiu.model.partitions import owns

KEY = StreamKey(TO_BROKER, 0, 1)
RULES = NewsRules()


def row(version: int, session_id: int = 0, *, is_in: bool = True) -> RouteRow:
    return RouteRow(1, "room", 1, session_id or version, 9, version, is_in)


@pytest.mark.sim
@pytest.mark.feature("X34")
@pytest.mark.parametrize("seed", range(20))
def test_everything_comes_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    source, sink = NewsSource(KEY, 5, RULES), NewsSink(KEY, RULES)
    truth, table = RouteTable(), RouteTable()
    on_the_way: list[tuple[bool, object]] = []

    def deliver(message: object, now_ms: int) -> None:
        if isinstance(message, News):
            for each in sink.news(message):
                table.apply(each)
        elif isinstance(message, Reach):
            sink.reach(message, table.digest())
        elif isinstance(message, Routes):
            snapshot = sink.page(message)
            if snapshot is not None:
                table.snapshot(snapshot.rows, snapshot.marks)
        elif isinstance(message, Want):
            on_the_way.extend((True, each) for each in source.wanted(1, message, truth.digest(), now_ms))
        elif isinstance(message, AskRoutes):
            marks = [(9, version)]
            on_the_way.extend((True, each) for each in source.pages(message, list(truth.rows()), marks))

    version = 0
    for now_ms in range(0, 60_000, 50):
        if now_ms < 20_000 and rng.random() < 0.5:
            version += 1
            news = row(version, rng.randrange(1, 9), is_in=rng.random() < 0.6)
            truth.apply(news)
            source.tell(news)
        flushed = source.flush()
        if flushed is not None and source.sinks(now_ms):
            on_the_way.append((True, flushed))
        on_the_way.extend((False, message) for message in sink.due(now_ms))
        batch, on_the_way = on_the_way, []
        if rng.random() < 0.3:
            rng.shuffle(batch)
        for _, message in batch:
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                deliver(message, now_ms)
    assert sorted(table.rows()) == sorted(truth.rows())
    assert sink.position == source.position and not sink.needs_snapshot
    assert sink.marks == {9: version}


def test_a_source_that_came_anew_is_asked_for_all() -> None:
    sink = NewsSink(KEY, RULES)
    old = NewsSource(KEY, 5, RULES)
    old.tell(row(1))
    assert old.flush() is not None
    sink.reach(old.reach(RouteTable().digest()), RouteTable().digest())
    assert AskRoutes(KEY, 1) in sink.due(0)
    (page,) = old.pages(AskRoutes(KEY, 1), [row(1)], [(9, 1)])
    assert sink.page(page) is not None and not sink.needs_snapshot
    new = NewsSource(KEY, 6, RULES)
    sink.reach(new.reach(RouteTable().digest()), RouteTable().digest())
    assert AskRoutes(KEY, 2) in sink.due(10_000)
    assert sink.news(News(KEY, 5, 2, [row(2)])) == [], "the old life is over"


def test_nothing_is_complete_before_the_snapshot_has_told_what_was_there_before() -> None:
    source, sink = NewsSource(KEY, 5, RULES), NewsSink(KEY, RULES)
    source.tell(row(3))  # versions 1 and 2 came before anyone wanted this stream
    news = source.flush()
    assert news is not None
    assert sink.news(news) == [row(3)]
    assert sink.marks == {}, "whoever is told that it has all through 3 forgets 1 and 2"
    (ask,) = [each for each in sink.due(0) if isinstance(each, AskRoutes)]
    (page,) = source.pages(ask, [row(1), row(2)], [(9, 2)])
    assert sink.page(page._replace(position=0)) is not None
    assert sink.marks == {9: 3}, "the snapshot covers what came before, and what has come since"


def test_only_whole_snapshots_count() -> None:
    sink, source = NewsSink(KEY, RULES), NewsSource(KEY, 5, RULES)
    sink.ask()
    (ask,) = [each for each in sink.due(0) if isinstance(each, AskRoutes)]
    pages = source.pages(ask, [row(number) for number in range(1, 12_001)], [(9, 12_000)])
    assert len(pages) == 3
    assert sink.page(pages[0]) is None
    assert sink.page(pages[2]._replace(attempt=99)) is None
    assert sink.page(pages[2]) is None
    snapshot = sink.page(pages[1])
    assert snapshot is not None and len(snapshot.rows) == 12_000 and snapshot.marks == {9: 12_000}
    assert sink.page(pages[1]) is None, "once"


def test_silent_receivers_are_forgotten() -> None:
    source = NewsSource(KEY, 5, RULES)
    source.wanted(1, Want(KEY, 0, 0, ()), RouteTable().digest(), 0)
    assert source.sinks(RULES.silent_ms - 1) == [1]
    assert source.sinks(RULES.silent_ms) == []


def test_a_room_is_told_by_the_sources_that_own_it_of_every_count() -> None:
    keys = [StreamKey(TO_BROKER, partition, count) for count in (1, 2, 4) for partition in range(count)]
    keys.append(StreamKey(TO_BROKER, 5, 4))  # of a partition beyond the count: its twin's rooms
    found = by_count(NewsSource(key, 1, RULES) for key in keys)
    for room in range(64):
        owners = [key for key in keys if owns(key.partition, room, key.partitions)]
        assert sorted(source.key for source in sources_of(found, room)) == sorted(owners)


def test_a_snapshot_that_comes_slowly_is_not_asked_for_anew() -> None:
    sink, source = NewsSink(KEY, RULES), NewsSource(KEY, 5, RULES)
    sink.ask()
    (ask,) = [each for each in sink.due(0) if isinstance(each, AskRoutes)]
    pages = source.pages(ask, [row(number) for number in range(1, 30_001)], [(9, 30_000)])
    assert len(pages) == 6
    now_ms = 0
    for page in pages[:-1]:
        now_ms += RULES.snapshot_ms * 3 // 4
        assert sink.page(page) is None
        assert not any(isinstance(each, AskRoutes) for each in sink.due(now_ms)), "it is on its way"
    assert any(isinstance(each, AskRoutes) for each in sink.due(now_ms + RULES.snapshot_ms)), "it has stopped"
    assert sink.page(pages[-1]) is None, "of the attempt before"
