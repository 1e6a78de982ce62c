"""Bulk files for an embedded store: rows made by Spark, sorted, written as files that RocksDB takes over as they are.

Tasks write them below the target folder, so that folder must be one that driver and workers share. Rows are encoded by
the backend's own code (pixiu.backends.embedded.bulk).
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from pixiu.backends.embedded import bulk
from pixiu.model.body import body_of, tombstone
from pixiu.model.inbox import Entry
from pixiu.model.timeline import GroupRow, PrivateRow
from pixiu.pipeline.records.unfold import said_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from pixiu.pipeline.jobs.rebuild import Diffusion

__all__ = ["rows_of", "write_files"]

_ROWS = "key BINARY, value BINARY"
_BATCH = 8192
_OUT = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def _mapped(frame: DataFrame, make: Callable[[Iterator[dict[str, Any]]], Iterator[tuple[bytes, bytes]]]) -> DataFrame:
    """Rows of a DataFrame, as they come in a partition, as keys and values."""

    def encode(batches: Iterator[Any]) -> Iterator[Any]:
        rows = (row for batch in batches for row in batch.to_pylist())
        pending: list[tuple[bytes, bytes]] = []
        for pair in make(rows):
            pending.append(pair)
            if len(pending) >= _BATCH:
                yield _batch(pending)
                pending = []
        yield _batch(pending)

    return frame.mapInArrow(encode, _ROWS)


def _batch(pairs: list[tuple[bytes, bytes]]) -> Any:
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=_OUT)


def rows_of(made: Diffusion, records: DataFrame) -> DataFrame:
    """Every row of the stores that messages fill; ``records`` is the source with all columns, of ``pixiu.main``.

    Rows of groups are there also if they were trimmed: members' places are counted from them, and whoever has done so
    drops them.
    """
    private = made.private_rows().repartition("user_id").sortWithinPartitions("user_id", "message_id")
    waiting = (
        made.waiting()
        .groupBy("user_id", "platform")
        .agg(sf.collect_list(sf.struct("useq", "message_id", "event_id", "at", "options", "session")).alias("entries"))
    )
    inboxes = (
        made.inbox_states()
        .join(waiting, ["user_id", "platform"], "left")
        .repartition("user_id")
        .sortWithinPartitions("user_id", "number")
    )
    said = records.mapInArrow(_said, "message_id BIGINT, chat BINARY")
    bodies = said.join(made.references(), "message_id").join(made.tombstones(), "message_id", "left")
    sent = "key BINARY, message_id BIGINT, event_id BIGINT, at BIGINT"
    keys = records.where("length(key) > 0").mapInArrow(_keys, sent)
    forgotten = made.forgotten_keys()
    is_gone = (keys.key == forgotten.key) & (forgotten.cut > keys.event_id) & (forgotten.through >= keys.message_id)
    keys = keys.join(forgotten, is_gone, "left_anti")
    frames = (
        _mapped(private, _private),
        _mapped(made.group_rows_ever(), _group),
        _mapped(inboxes, _inboxes),
        _mapped(bodies, _bodies),
        _mapped(made.unread(), _unread),
        _mapped(keys, _sent),
    )
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    return union


def _private(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for user, own in groupby(rows, itemgetter("user_id")):
        yield from bulk.private_rows(
            user,
            [
                PrivateRow(
                    row["message_id"],
                    row["peer"],
                    row["is_incoming"],
                    row["state"],
                    row["delivered_at"],
                    row["read_at"],
                )
                for row in own
            ],
        )


def _group(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        found = GroupRow(row["message_id"], row["from_user"], row["previous"], row["state"])
        yield bulk.group_row(row["group_id"], found)


def _inboxes(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for user, own in groupby(rows, itemgetter("user_id")):
        inboxes = list(own)
        states = [
            (row["platform"], row["floor"], row["latest"], row["waiting"], row["event_id"], row["oldest_at"])
            for row in inboxes
        ]
        entries = {row["platform"]: [Entry(**entry) for entry in row["entries"] or ()] for row in inboxes}
        yield from bulk.inbox_rows(user, states, entries)


def _bodies(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        message_id = row["message_id"]
        if row["from_id"] is None:
            body = body_of(row["chat"], message_id)
        else:
            body = tombstone(message_id, from_id=row["from_id"], to_id=row["to_id"], is_group=row["is_group"])
        yield bulk.body_row(message_id, row["references"], body)


def _unread(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        yield bulk.unread_row(row["user_id"], row["kind"], row["owner_id"], row["count"], row["event_id"])


def _sent(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        yield bulk.key_row(row["key"], row["message_id"], row["event_id"], row["at"])


# Straight from the records.


def _said(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        rows, _, chats = said_in(batch)
        ids = batch.column("message_id").to_numpy()[rows]
        yield pa.RecordBatch.from_arrays([pa.array(ids), chats], names=["message_id", "chat"])


def _keys(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        _, at, _ = said_in(batch)
        columns = [batch.column("key"), batch.column("message_id"), batch.column("event_id"), pa.array(np.asarray(at))]
        yield pa.RecordBatch.from_arrays(columns, names=["key", "message_id", "event_id", "at"])


# Files.


def write_files(rows: DataFrame, folder: str, count: int) -> list[tuple[str, int]]:
    """Write the rows as ``count`` files that do not overlap, sorted. Returns each file's path and its rows."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        from pixiu.backends.embedded.keyvalue import write_sorted

        path, written = write_sorted(
            folder,
            ((key.as_py(), value.as_py()) for batch in batches for key, value in zip(*batch.columns, strict=True)),
        )
        yield pa.RecordBatch.from_arrays(
            [pa.array([path], pa.string()), pa.array([written], pa.int64())], names=["path", "rows"]
        )

    sorted_rows = rows.repartitionByRange(count, "key").sortWithinPartitions("key")
    found = sorted_rows.mapInArrow(write, "path STRING, rows BIGINT").collect()
    return [(row.path, row.rows) for row in found if row.rows]
