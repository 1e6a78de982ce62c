"""Marts as pure transforms: tiny frames in, rows out; and what two runs made, rolled up, is what one would have."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from pixiu.model.ids import first_id_of
from pixiu.pipeline.jobs import marts
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MART_SCHEMAS

NOON = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
TODAY, YESTERDAY = date(2026, 11, 15), date(2026, 11, 14)


def at(ms: float) -> datetime:
    return NOON + timedelta(milliseconds=ms)


def message_id(ms: int) -> int:
    return first_id_of(int(NOON.timestamp() * 1000) + ms) + (5 << 12)


def frame(spark: Any, schema: Any, *rows: dict[str, Any]) -> Any:
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema)).coalesce(1)


def rows_of(frame: Any, *names: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.select(*names).collect()}


@pytest.fixture(scope="module")
def tables(spark: Any) -> dict[str, Any]:
    """Alice (1) says two things to Bob (2), who is on his phone; a live room talks; Carol (3) only comes to listen."""
    said = {"sender_id": 1, "kind": "text", "bytes": 100, "day": TODAY, "bucket": 3, "conversation": "u:1:2"}
    ledger = {"user_id": 2, "platform": "ios", "first_useq": 1, "through_useq": 2, "day": TODAY, "part": 0}
    room = {"what": "room", "room": "hall", "bytes": 10, "day": TODAY}
    return {
        "messages": frame(
            spark, LAKE_SCHEMAS["messages"],
            said | {"message_id": message_id(0), "event_id": 1, "accepted_at": at(0), "written_at": at(2)},
            said | {"message_id": message_id(10), "event_id": 2, "accepted_at": at(10), "written_at": at(11)},
        ),
        "deliveries": frame(
            spark, LAKE_SCHEMAS["deliveries"],
            ledger | {
                "event_id": 3, "what": "handed", "noted_at": at(20), "message_id": message_id(10), "gateway": "local",
                "waited": False,
            },
            ledger | {"event_id": 4, "what": "acked", "noted_at": at(320)},
            # What had waited for its session says nothing about the system.
            ledger | {
                "event_id": 5, "what": "handed", "noted_at": at(900_000), "first_useq": 3, "through_useq": 3,
                "message_id": message_id(30), "gateway": "local", "waited": True,
            },
        ),
        "changes": frame(
            spark, LAKE_SCHEMAS["changes"], {"event_id": 1, "what": "user", "user_id": 3, "day": TODAY, "part": 0}
        ),
        "traces": frame(
            spark, LAKE_SCHEMAS["traces"],
            {"what": "flush", "node": 5, "happened_at": at(4), "us": 700, "day": TODAY},
            {"what": "accept", "node": 5, "happened_at": at(5), "link": "5", "us": 900, "day": TODAY},
            {"what": "push", "node": 5, "happened_at": at(5), "link": "ios", "us": 250_000, "day": TODAY},
            {"what": "connected", "node": 5, "happened_at": at(1), "platform": "web", "user_id": 3, "day": TODAY},
            {"what": "sessions", "node": 5, "happened_at": at(1), "sessions": 1, "peak": 4, "day": TODAY},
            room | {"node": 5, "happened_at": at(2), "messages": 2, "deliveries": 20, "members": 10},
            room | {"node": 5, "happened_at": at(3), "messages": 1, "deliveries": 11, "members": 11},
        ),
    }  # fmt: skip


def summed(tables: dict[str, Any]) -> Any:
    deliveries = tables["deliveries"]
    return marts.hop_sums(marts.hops(tables["messages"], deliveries, deliveries, tables["traces"]))


def test_usage(spark: Any, tables: dict[str, Any]) -> None:
    used = marts.usage(tables["messages"], tables["deliveries"], tables["changes"], tables["traces"])
    assert rows_of(used, "user_id", "what", "place", "kind", "messages", "bytes") == {
        (1, "sent", "", "text", 2, 200), (2, "received", "ios", "", 2, 0), (3, "connected", "web", "", 1, 0),
        (3, "came", "", "", 1, 0),
    }  # fmt: skip
    known = frame(spark, MART_SCHEMAS["first_days"], {"user_id": 2, "day": YESTERDAY})
    assert rows_of(marts.first_days(used, known), "user_id", "day") == {(1, TODAY), (3, TODAY)}
    assert rows_of(marts.presence(tables["traces"]), "node", "connected", "disconnected", "peak") == {(5, 1, 0, 4)}


def test_heat_has_conversations_and_live_rooms(tables: dict[str, Any]) -> None:
    assert rows_of(
        marts.heat(tables["messages"], tables["traces"]), "conversation", "messages", "bytes", "deliveries", "members"
    ) == {("u:1:2", 2, 200, 0, 0), ("r:hall", 3, 20, 31, 11)}


def test_hops_and_their_sums(tables: dict[str, Any]) -> None:
    sums = marts.latency(summed(tables))
    assert rows_of(sums, "hop", "link", "messages", "in_time", "sum_us", "max_ms") == {
        ("write", "5", 2, 2, 3000, 2), ("accept", "5", 1, 1, 900, 0), ("store", "5", 1, 1, 700, 0),
        ("push", "ios", 1, 0, 250_000, 250), ("deliver", "local/ios", 2, 2, 20_000, 10),
        ("ack", "ios", 2, 0, 600_000, 300),
    }  # fmt: skip
    buckets = marts.latency_buckets(summed(tables))
    assert ("push", 143, 1) in rows_of(buckets, "hop", "bucket", "messages")  # 2 ** (143 / 8) is 240,000


def test_two_runs_rolled_up_are_one(tables: dict[str, Any]) -> None:
    sums = marts.latency(summed(tables))
    twice = marts.rolled_up(MART_SCHEMAS["latency"], sums.unionByName(sums))
    names = ("minute", "hop", "link", "messages", "in_time", "sum_us", "max_us")
    assert rows_of(twice, *names) == {
        (minute, hop, link, 2 * count, 2 * in_time, 2 * total, most)
        for minute, hop, link, count, in_time, total, most in rows_of(sums, *names)
    }
    merged = twice.selectExpr("hop", "kll_sketch_get_n_bigint(sketch)", "kll_sketch_get_quantile_bigint(sketch, 0.5)")
    assert ("ack", 4, 300_000) in {tuple(row) for row in merged.collect()}
    assert twice.columns == MART_SCHEMAS["latency"].names
