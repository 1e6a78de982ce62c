"""The tables of the archive, as they are stored."""

import pyarrow as pa

from pixiu.pipeline.records.schema import SCHEMAS

__all__ = ["AUDIT_SCHEMAS", "BUCKETS", "ERASURE_SCHEMAS", "LAKE_SCHEMAS", "MARTS", "MART_SCHEMAS", "ORDER"]

BUCKETS = 16
"""A day's conversations are spread over this many."""

_MOMENT = pa.timestamp("us", tz="UTC")
_DAY = pa.field("day", pa.date32())

LAKE_SCHEMAS = {
    "messages": pa.schema(
        [
            *SCHEMAS["messages"],
            pa.field("conversation", pa.string()),
            _DAY,
            pa.field("bucket", pa.int32()),
            pa.field("recalled_at", _MOMENT),
            pa.field("recalled_by", pa.int64()),
            pa.field("delivered_at", _MOMENT),
            pa.field("read_at", _MOMENT),
        ]
    ),
    "deliveries": pa.schema([*SCHEMAS["deliveries"], _DAY]),
    "changes": pa.schema([*SCHEMAS["changes"], _DAY]),
    "traces": pa.schema([*SCHEMAS["traces"], _DAY]),
}

ORDER = {
    "messages": ["day", "bucket", "conversation", "message_id"],
    "deliveries": ["day", "user_id", "platform", "event_id", "part"],
    "changes": ["event_id", "part"],
    "traces": ["event_id", "part"],
}
"""How the files of a table are sorted."""

MART_SCHEMAS = {
    "usage": pa.schema(
        [
            _DAY,
            ("user_id", pa.int64()),
            ("what", pa.string()),
            ("place", pa.string()),
            ("kind", pa.string()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
        ]
    ),
    "heat": pa.schema(
        [
            _DAY,
            ("minute", _MOMENT),
            ("bucket", pa.int32()),
            ("conversation", pa.string()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("deliveries", pa.int64()),
            ("members", pa.int64()),
        ]
    ),
    "latency": pa.schema(
        [
            _DAY,
            ("minute", _MOMENT),
            ("hop", pa.string()),
            ("link", pa.string()),
            ("messages", pa.int64()),
            ("in_time", pa.int64()),
            ("sum_ms", pa.int64()),
            ("max_ms", pa.int64()),
            ("sum_us", pa.int64()),
            ("max_us", pa.int64()),
            ("sketch", pa.binary()),
        ]
    ),
    "latency_buckets": pa.schema(
        [
            _DAY,
            ("minute", _MOMENT),
            ("hop", pa.string()),
            ("link", pa.string()),
            ("bucket", pa.int32()),
            ("messages", pa.int64()),
        ]
    ),
    "presence": pa.schema(
        [
            _DAY,
            ("minute", _MOMENT),
            ("node", pa.int32()),
            ("connected", pa.int64()),
            ("disconnected", pa.int64()),
            ("peak", pa.int64()),
        ]
    ),
    "first_days": pa.schema([("user_id", pa.int64()), _DAY]),
}
"""Partial sums: rows of the same day or minute add up. ``first_days`` has a user once."""

MARTS = {
    "usage": ("usage", "presence", "first_days"),
    "heat": ("heat",),
    "latency": ("latency", "latency_buckets"),
}
"""The tables that a job fills."""

ERASURE_SCHEMAS = {"erasures": pa.schema([("user", pa.int64()), ("event_id", pa.int64()), ("at", _MOMENT)])}
"""Who was erased, by which event, and when: what others that hold copies go by."""

AUDIT_SCHEMAS = {
    "audit": pa.schema(
        [
            ("window_start", _MOMENT),
            ("user_id", pa.int64()),
            ("inbox", pa.string()),
            ("platform", pa.string()),
            ("newest_at", _MOMENT),
            ("first_useq", pa.int64()),
            ("through_useq", pa.int64()),
            ("intended", pa.int64()),
            ("acked", pa.int64()),
            ("waiting", pa.int64()),
            ("expired", pa.int64()),
            ("dead", pa.int64()),
            ("resent", pa.int64()),
            ("reordered", pa.int64()),
            ("late", pa.int64()),
            ("lost", pa.int64()),
            ("duplicates", pa.int64()),
            ("expected_waiting", pa.int64()),
        ]
    ),
    "findings": pa.schema(
        [
            ("finding", pa.string()),
            ("reason", pa.string()),
            ("user_id", pa.int64()),
            ("platform", pa.string()),
            ("useq", pa.int64()),
            ("message_id", pa.int64()),
        ]
    ),
}
"""The books as changes that add up, and what the newest audit has found. The view ``audit`` has the sums."""
