"""From the archive into the index: everything once, whatever is killed; recalled, erased and aged messages go."""

import asyncio
import shutil
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tantivy")

import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.backends.tantivy.reader import IndexReader
from pixiu.backends.tantivy.schema import find_tantivy, index_folder
from pixiu.machines.search import parse_query
from pixiu.model.errors import Conflict, Unavailable
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.search.embedded import EmbeddedIndex
from pixiu.pipeline.search.steps import steps_of
from pixiu.ports.search import Asked
from tests.pipeline.logs import say, with_node
from tests.pipeline.search_child import feed, table_of

pytestmark = pytest.mark.feature("B03")


def found(data: Path, q: str, user: int = 0, groups: dict[int, int] | None = None) -> list[int]:
    """Message ids, newest first; without a user, whatever is there."""
    reader = IndexReader(data)
    phrases = parse_query(q).phrases
    if user or groups:
        return [hit.message_id for hit in reader.find(Asked(phrases, user, groups or {}, limit=10_000)).hits]
    everyone = [row["user_id"] for row in _changes(data) if row["what"] == "user"]
    everywhere = {row["group_id"]: 0 for row in _changes(data) if row["what"] == "group"}
    asked = [Asked(phrases, each, everywhere, limit=10_000) for each in everyone]
    hits = {hit.message_id: hit for each in asked for hit in reader.find(each).hits}
    return sorted(hits, reverse=True)


def _changes(data: Path) -> list[dict[str, Any]]:
    return [row for uri in table_of(data, "changes").uris() for row in pq.read_table(uri).to_pylist()]


def rows_of(data: Path) -> list[dict[str, Any]]:
    return [row for uri in table_of(data, "messages").uris() for row in pq.read_table(uri).to_pylist()]


def documents(data: Path) -> int:
    index = EmbeddedIndex(data)
    count = index.documents()
    index.close()
    return count


async def _talk(node: Any) -> dict[str, list[int]]:
    ids = await say(node, 12)
    await node.create_group("alice", "team", members=["bob"])
    team = [int((await node.gsend("bob", group="team", text=f"群里说 {n} 午饭"))["message_id"]) for n in range(4)]
    await node.act("alice", "send", to="bob", body="YWxpY2U=", kind="text", enc="aes")
    await node.act("alice", "recall", message_id=ids[3])
    await node.act("bob", "recall", message_id=team[1])
    await node.act(None, "push", uids=["bob"], msg_bodies=["alice pushes"], msg_options=3)
    return {"private": ids, "team": team}


def test_the_archive_is_indexed_and_what_is_new_is_added(data: Path) -> None:
    ids = with_node(data, _talk)
    fill_lake(data)
    told: list[tuple[Any, ...]] = []
    assert feed(data, tell=lambda *each: told.append(each)) == 16, "a message is added, and a recall takes it away"
    end = table_of(data, "messages").through
    assert (sum(each[0] for each in told), told[-1][1:3]) == (16, (end, end))
    kept = [each for each in ids["private"] if each != ids["private"][3]]
    assert found(data, "alice") == kept[::-1], "no recalled, no encrypted, no pushed one"
    assert found(data, "午饭") == [ids["team"][place] for place in (3, 2, 0)]
    assert found(data, "群里") == found(data, "里说") == found(data, "午饭")
    assert found(data, "群说") == [], "characters must stand together"
    assert documents(data) == 14
    assert feed(data) == 0

    more = with_node(data, lambda node: say(node, 5, begin=50))
    with_node(data, lambda node: node.act("alice", "recall", message_id=kept[0]))
    fill_lake(data)
    assert feed(data) == 5
    assert found(data, "alice") == sorted([*kept[1:], *more], reverse=True)
    with pytest.raises(Conflict, match="another process writes"):
        holding(data)


def holding(data: Path) -> None:
    first = EmbeddedIndex(data)
    try:
        EmbeddedIndex(data)
    finally:
        first.close()


def test_the_pipeline_has_the_job_and_needs_no_spark_for_it(data: Path) -> None:
    with_node(data, lambda node: say(node, 3))
    fill_lake(data)

    def no_spark() -> Any:
        raise AssertionError("search needs no Spark")

    with Pipeline(data, no_spark) as pipeline:
        assert pipeline.run(["search"]) == {"search": 3}
        assert pipeline.run(["search"]) == {"search": 0}
    assert len(found(data, "alice")) == 3


@pytest.fixture(scope="module")
def in_pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """An archive of several files, and what can be found in it."""
    data = tmp_path_factory.mktemp("pieces") / "data"
    ids: list[int] = []
    for begin in (0, 30, 60):
        ids += with_node(data, partial(say, count=15, begin=begin))
        fill_lake(data)
    recalled = ids.pop(2)
    with_node(data, lambda node: node.act("alice", "recall", message_id=recalled))
    fill_lake(data)
    return data, ids


@pytest.mark.parametrize("point", ["search-added", "search-before-commit", "search-after-commit"])
def test_killed_anywhere_it_goes_on_and_every_message_is_there_once(
    data: Path, in_pieces: tuple[Path, list[int]], point: str
) -> None:
    made, ids = in_pieces
    shutil.copytree(made, data)
    child = [sys.executable, "-m", "tests.pipeline.search_child", str(data), point, "2"]
    done = subprocess.run(child, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-500:]
    partly = len(found(data, "alice"))
    assert partly == (30 if point == "search-after-commit" else 15)
    feed(data)
    assert found(data, "alice") == ids[::-1]
    assert documents(data) == len(ids), "none twice"


def test_whose_words_are_erased_is_not_found(data: Path) -> None:
    with_node(data, lambda node: say(node, 4))
    fill_lake(data)
    feed(data)
    alice = rows_of(data)[0]["sender_id"]
    erase(data, alice, table_of(data, "messages").through)
    later = with_node(data, lambda node: say(node, 2, begin=10))
    fill_lake(data)
    feed(data)
    assert found(data, "alice") == later[::-1], "said after the erasure: a new life"
    bob = with_node(data, lambda node: say(node, 2, user="bob", to="alice"))
    erase(data, alice, table_of(data, "messages").through)
    assert feed(data) == 0
    assert found(data, "alice") == []
    fill_lake(data)
    feed(data)
    assert found(data, "bob") == bob[::-1]


def test_an_index_that_is_made_anew_takes_no_erased_words_in(data: Path) -> None:
    with_node(data, lambda node: say(node, 4))
    fill_lake(data)
    erase(data, rows_of(data)[0]["sender_id"], table_of(data, "messages").through)
    assert feed(data) == 0
    assert documents(data) == 0


def erase(data: Path, user: int, event_id: int) -> None:
    """As the erasure job notes it."""
    columns = pa.schema([("user", pa.int64()), ("event_id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    table = LakeTable(Place(data).lake, "erasures", columns)
    folder = table.new_folder("made")
    (table.folder / folder).mkdir(parents=True)
    rows = pa.table({"user": [user], "event_id": [event_id], "at": [datetime.now(UTC)]}, schema=columns)
    pq.write_table(rows, table.folder / folder / "rows.parquet")
    table.append(folder, through=event_id)


def test_what_has_aged_out_of_the_archive_is_not_found(data: Path) -> None:
    ids = with_node(data, lambda node: say(node, 4))
    fill_lake(data)
    feed(data)
    days = (date(2121, 1, 1) - date(1970, 1, 1)).days
    table = table_of(data, "messages")
    table.replace(table.files(), None, why="retention", positions={"pixiu.kept_from": days})
    assert len(ids) == 4
    assert feed(data) == 0
    assert found(data, "alice") == []
    index = EmbeddedIndex(data)
    assert index.state().kept_from == (days * 86_400_000 - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)
    index.close()


def test_steps_cut_where_files_end() -> None:
    assert list(steps_of(0, 0, [])) == []
    assert list(steps_of(0, 50, [], 10)) == [(0, 50)]
    assert list(steps_of(0, 50, [5, 12, 20, 45, 60], 10)) == [(0, 12), (12, 45), (45, 50)]
    assert list(steps_of(20, 50, [5, 12, 20, 45, 60], 10)) == [(20, 45), (45, 50)]


def test_a_reader_sees_the_newest_commit_and_says_what_is_missing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = IndexReader(data)
    asked = Asked(parse_query("alice").phrases, 1, {})
    with pytest.raises(Unavailable, match="pixiu pipeline run archive search --once"):
        reader.find(asked)
    with_node(data, lambda node: say(node, 2))
    fill_lake(data)
    feed(data)
    asked = asked._replace(user=rows_of(data)[0]["sender_id"])
    assert len(reader.find(asked).hits) == 2
    with_node(data, lambda node: say(node, 2, begin=5))
    fill_lake(data)
    feed(data)
    assert len(reader.find(asked).hits) == 4, "opened again by itself"
    (index_folder(data) / "meta.json").write_text("{", encoding="utf-8")
    with pytest.raises(Unavailable, match="cannot be opened"):
        reader.find(asked)
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with pytest.raises(Unavailable, match="install the pipeline's packages: make setup"):
        find_tantivy()


def test_a_node_finds_by_the_action(data: Path) -> None:
    """All of it, on a real node: log, archive, index, action."""
    with_node(data, _talk)
    fill_lake(data)
    feed(data)

    async def ask(node: Any) -> Any:
        page = await node.act("alice", "search", q="午饭 from:bob in:team", limit=2)
        rest = await node.act("alice", "search", q="午饭 from:bob in:team", limit=2, cursor=page["cursor"])
        with pytest.raises(Unavailable, match="searches"):
            await asyncio.gather(*(node.act("alice", "search", q="alice") for _ in range(50)))
        return page, rest

    page, rest = with_node(data, ask)
    assert [each["text"] for each in page["messages"]] == ["群里说 3 午饭", "群里说 2 午饭"]
    assert [each["text"] for each in rest["messages"]] == ["群里说 0 午饭"]
    assert page["messages"][0]["highlights"] == [[6, 8]]
    assert (page["has_more"], rest["has_more"], rest["cursor"]) == (True, False, None)
