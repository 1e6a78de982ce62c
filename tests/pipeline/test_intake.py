"""What a task of the archive does, without Spark: conversations, days, buckets, order, and the cut at a table's end."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.lake.intake import Target, take_in
from pixiu.pipeline.lake.schema import BUCKETS, LAKE_SCHEMAS, ORDER
from pixiu.pipeline.lake.shape import bucket_of, ordered, shape
from pixiu.pipeline.records.schema import SCHEMAS
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.pipeline.source.remote import RemoteSlice
from pixiu.pipeline.source.slices import slice_of, text_of
from tests.pipeline.logs import small_segments, talk, with_node


def taken(data: Path, tmp_path: Path, **after: int) -> dict[str, Any]:
    """The rows that tasks write for every table, file by file."""
    folder = JournalFolder(data)
    targets = {name: Target(str(tmp_path / name), after.get(name, 0)) for name in LAKE_SCHEMAS}
    found: dict[str, list[Any]] = {name: [] for name in LAKE_SCHEMAS}
    for part in folder.plan(0, folder.end().event_id):
        for name, file, count in take_in(slice_of(text_of(part)), targets):
            rows = pq.read_table(tmp_path / name / file)
            assert rows.num_rows == count
            assert rows.schema.equals(LAKE_SCHEMAS[name])
            found[name].append(rows)
    return {name: pa.concat_tables([LAKE_SCHEMAS[name].empty_table(), *rows]) for name, rows in found.items()}


def test_one_reading_gives_the_rows_of_every_table(data: Path, tmp_path: Path) -> None:
    with_node(data, talk, settings=small_segments())
    folder = JournalFolder(data)
    made = taken(data, tmp_path)
    for name, rows in made.items():
        wanted = Wanted.rows_of(name)
        alone = [batch for part in folder.plan(0, folder.end().event_id) for batch in decode(part, wanted)]
        expected = pa.Table.from_batches(alone, schema=SCHEMAS[name]).to_pylist()
        key = ("event_id", "part") if name != "messages" else ("event_id",)
        found = sorted(rows.select(SCHEMAS[name].names).to_pylist(), key=lambda row: [row[each] for each in key])
        assert found == sorted(expected, key=lambda row: [row[each] for each in key])
        assert found


def test_a_table_gets_only_what_it_lacks(data: Path, tmp_path: Path) -> None:
    with_node(data, talk)
    everything = taken(data, tmp_path / "all")
    middle = everything["messages"].column("event_id").to_pylist()[7]
    some = taken(data, tmp_path / "some", messages=middle, changes=2**40)
    events = everything["messages"].column("event_id").to_pylist()
    assert sorted(some["messages"].column("event_id").to_pylist()) == sorted(each for each in events if each > middle)
    assert some["deliveries"].equals(everything["deliveries"])
    assert not (tmp_path / "some" / "changes").exists()


def message(number: int, **values: Any) -> dict[str, Any]:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    row = dict.fromkeys(SCHEMAS["messages"].names) | {"message_id": number, "event_id": number, "accepted_at": at}
    return row | {"sender_id": 0, "recipient_id": 0, "group_id": 0} | values


def test_conversations_days_and_buckets() -> None:
    day_ms = 86_400_000
    number = (20_000 * day_ms + 5 - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)
    rows = [
        message(number, sender_id=10, recipient_id=9),
        message(number + 1, sender_id=9, recipient_id=10),
        message(number + 2, sender_id=9, group_id=2**60 + 7),
        message(number + 3, recipient_id=5),
        message(number + 4, notice="push"),
        message(number + 5, notice="member", group_id=4),
    ]
    shaped = shape("messages", pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["messages"])).to_pylist()
    names = [row["conversation"] for row in shaped]
    assert names == ["u:9:10", "u:9:10", f"g:{2**60 + 7}", "u:0:5", "push", "g:4"]
    assert {row["day"].toordinal() - 719_163 for row in shaped} == {20_000}
    assert [row["bucket"] for row in shaped] == [bucket_of(name) for name in names]
    assert all(row["recalled_at"] is None for row in shaped)


def test_buckets_are_filled_alike() -> None:
    count = np.bincount([bucket_of(f"u:{low}:{low + 1}") for low in range(1600)], minlength=BUCKETS)
    assert len(count) == BUCKETS
    assert count.min() > 50


def test_files_are_sorted_as_their_table_says() -> None:
    dice = np.random.default_rng(3)
    rows = [
        {
            "day": datetime(2020, 1, int(dice.integers(1, 3)), tzinfo=UTC).date(),
            "bucket": int(dice.integers(3)),
            "conversation": f"u:{dice.integers(20)}:{dice.integers(20)}",
            "message_id": int(dice.integers(2**50)),
            "text": str(number),
        }
        for number in range(300)
    ]
    chunks = [
        pa.Table.from_pylist(rows[start : start + 100], schema=LAKE_SCHEMAS["messages"]) for start in (0, 100, 200)
    ]
    pieces = list(ordered("messages", pa.concat_tables(chunks), 128))
    assert [piece.num_rows for piece in pieces] == [128, 128, 44]
    found = pa.concat_tables(pieces).to_pylist()
    key = ORDER["messages"]
    assert [row["text"] for row in found] == [
        row["text"] for row in sorted(rows, key=lambda row: [row[k] for k in key])
    ]


@pytest.mark.parametrize("in_order", [True, False])
def test_rows_that_come_in_the_order_of_their_events_keep_it(in_order: bool) -> None:
    dice = np.random.default_rng(5)
    day = datetime(2020, 1, 1, tzinfo=UTC).date()
    rows = [
        {"day": day, "user_id": int(dice.integers(9)), "platform": f"p{dice.integers(3)}", "event_id": 7 + at // 40,
         "part": at % 40}
        for at in range(200)
    ]  # fmt: skip
    if not in_order:
        rows = [rows[place] for place in dice.permutation(len(rows))]
    for table in ("deliveries", "changes", "traces"):
        names = set(LAKE_SCHEMAS[table].names)
        given = [{name: value for name, value in row.items() if name in names} for row in rows]
        (found,) = ordered(table, pa.Table.from_pylist(given, schema=LAKE_SCHEMAS[table]), 1000)
        key = ORDER[table]
        kept = [{name: row[name] for name in given[0]} for row in found.to_pylist()]
        assert kept == sorted(given, key=lambda row: [row[k] for k in key])


def test_slices_travel_as_texts() -> None:
    part = RemoteSlice("h:1", 5, 9, 3)
    assert slice_of(text_of(part)) == part
