"""The tables of the archive, as they are stored."""

import pyarrow as pa

from pixiu.pipeline.records.schema import SCHEMAS

__all__ = ["BUCKETS", "LAKE_SCHEMAS", "ORDER"]

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
}

ORDER = {
    "messages": ["day", "bucket", "conversation", "message_id"],
    "deliveries": ["day", "user_id", "platform", "event_id", "part"],
    "changes": ["event_id", "part"],
}
"""How the files of a table are sorted."""
