"""The tables that records become, for Arrow and for Spark."""

import pyarrow as pa

__all__ = ["DDL", "SCHEMAS"]

_MOMENT = pa.timestamp("us", tz="UTC")

SCHEMAS = {
    "messages": pa.schema(
        [
            ("message_id", pa.int64()),
            ("event_id", pa.int64()),
            ("accepted_at", _MOMENT),
            ("written_at", _MOMENT),
            ("sender_id", pa.int64()),
            ("recipient_id", pa.int64()),
            ("group_id", pa.int64()),
            ("kind", pa.string()),
            ("notice", pa.string()),
            ("text", pa.string()),
            ("body", pa.binary()),
            ("send_id", pa.string()),
            ("device", pa.string()),
            ("ref", pa.int64()),
            ("priority", pa.int32()),
            ("encryption", pa.int32()),
            ("options", pa.int32()),
            ("session", pa.int64()),
            ("bytes", pa.int32()),
        ]
    ),
    "deliveries": pa.schema(
        [
            ("event_id", pa.int64()),
            ("part", pa.int32()),
            ("noted_at", _MOMENT),
            ("what", pa.string()),
            ("user_id", pa.int64()),
            ("platform", pa.string()),
            ("first_useq", pa.int64()),
            ("through_useq", pa.int64()),
            ("message_id", pa.int64()),
            ("gateway", pa.string()),
            ("waited", pa.bool_()),
        ]
    ),
    "changes": pa.schema(
        [
            ("event_id", pa.int64()),
            ("part", pa.int32()),
            ("message_id", pa.int64()),
            ("accepted_at", _MOMENT),
            ("what", pa.string()),
            ("actor_id", pa.int64()),
            ("user_id", pa.int64()),
            ("peer_id", pa.int64()),
            ("group_id", pa.int64()),
            ("about", pa.int64()),
            ("number", pa.int64()),
            ("platform", pa.string()),
            ("platforms", pa.list_(pa.string())),
            ("without_platforms", pa.list_(pa.string())),
            ("options", pa.int32()),
            ("public_id", pa.string()),
            ("name", pa.string()),
        ]
    ),
    "traces": pa.schema(
        [
            ("event_id", pa.int64()),
            ("part", pa.int32()),
            ("noted_at", _MOMENT),
            ("what", pa.string()),
            ("node", pa.int32()),
            ("happened_at", _MOMENT),
            ("link", pa.string()),
            ("platform", pa.string()),
            ("room", pa.string()),
            ("user_id", pa.int64()),
            ("session_id", pa.int64()),
            ("after_event", pa.int64()),
            ("through_event", pa.int64()),
            ("us", pa.int64()),
            ("messages", pa.int64()),
            ("deliveries", pa.int64()),
            ("bytes", pa.int64()),
            ("members", pa.int64()),
            ("users", pa.int64()),
            ("sessions", pa.int64()),
            ("peak", pa.int64()),
        ]
    ),
}

_SPARK_TYPES = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    _MOMENT: "TIMESTAMP",
    pa.list_(pa.string()): "ARRAY<STRING>",
}

DDL = {
    name: ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
    for name, schema in SCHEMAS.items()
}
