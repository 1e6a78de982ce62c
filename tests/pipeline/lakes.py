"""A lake made without Spark, for tests of what only reads it."""

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable

__all__ = ["MINUTE", "make_marts", "sketch_of"]

MINUTE = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


def sketch_of(values: Sequence[int]) -> bytes:
    """A KLL sketch of few values, as Apache DataSketches writes it: all of them at its first level."""
    k = 200
    assert 1 < len(values) <= k
    head = struct.pack("<BBBBHBxQHBxi", 5, 1, 15, 0, k, 8, len(values), k, 1, k - len(values))
    return head + struct.pack(f"<{len(values) + 2}q", min(values), max(values), *values)


def make_marts(data: Path, *, users: Sequence[int], group: int, through: int, findings: bool = False) -> None:
    """Usage of two days, heat and latency of ten minutes, and an audit; all made up, all adding up."""
    first, second = date(2026, 11, 14), date(2026, 11, 15)
    usage: list[dict[str, Any]] = []
    for number, user in enumerate(users):
        row = {"user_id": user, "place": "", "kind": "", "messages": 1, "bytes": 0}
        usage.append(row | {"day": first, "what": "came"})
        text = row | {"what": "sent", "place": "web", "kind": "text", "messages": 10, "bytes": 900}
        usage += [text | {"day": day} for day in (first, second)[number % 2 :]]
        usage.append(
            row | {"day": second, "what": "sent", "place": "web", "kind": "image", "messages": 5, "bytes": 500}
        )
        usage.append(row | {"day": second, "what": "received", "place": "ios", "messages": 20})
    first_days = [{"user_id": user, "day": (first, second)[number % 2]} for number, user in enumerate(users)]
    rooms = [f"g:{group}", f"u:{min(users)}:{max(users)}"]
    minutes = [MINUTE + timedelta(minutes=number) for number in range(10)]
    heat = [
        {
            "day": second,
            "minute": minute,
            "bucket": number,
            "conversation": room,
            "messages": at + 1,
            "bytes": 99,
            "deliveries": 0,
            "members": 0,
        }
        for at, minute in enumerate(minutes)
        for number, room in enumerate(rooms)
        if number == 0 or at % 3 == 0
    ]
    latency = [
        {"day": second, "minute": minute, "hop": hop, "link": link, "messages": 100, "in_time": 100 - late,
         "sum_ms": 5000, "max_ms": 400, "sum_us": 5_000_000, "max_us": 400_000,
         "sketch": sketch_of([1000 * ms for ms in (*range(100 - late), *([400] * late))])}
        for minute in minutes
        for hop, link, late in (("write", "0", 0), ("ack", "ios", 10))
    ]  # fmt: skip
    book = dict.fromkeys(
        ("acked", "waiting", "expired", "dead", "resent", "reordered", "late", "lost", "duplicates"), 0
    )
    audit = [
        book | {"window_start": MINUTE, "user_id": user, "inbox": "first", "intended": 20,
                "acked": 18, "waiting": 1 if findings else 2, "lost": int(findings), "expected_waiting": 2}
        for user in users
    ]  # fmt: skip
    audit += [{"user_id": user, "inbox": "first", "platform": "ios"} for user in users]
    audit.append({"newest_at": MINUTE + timedelta(hours=2), "waiting": 0})
    found = [
        {"finding": "lost", "reason": "not in the inbox", "user_id": users[0], "platform": "ios", "useq": 7,
         "message_id": 909776103973847040}
    ]  # fmt: skip
    made = {
        "usage": usage,
        "first_days": first_days,
        "heat": heat,
        "latency": latency,
        "audit": audit,
        "findings": found if findings else [],
    }
    for name, rows in made.items():
        schema = (MART_SCHEMAS | AUDIT_SCHEMAS)[name]
        table = LakeTable(Place(data).lake, name, schema)
        files = table.new_folder("made")
        (table.folder / files).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), table.folder / files / "rows.parquet")
        table.append(files, through=through)
