"""The columns of the source, for Arrow and for Spark. Whatever the log is kept in, its rows look like this."""

import numpy as np
import pyarrow as pa

__all__ = ["ENTRY", "FULL", "FULL_DDL", "HEADER", "HEADER_DDL"]

ENTRY = np.dtype(
    {
        "names": ["event_id", "position", "length", "time", "frame", "topic", "message_id", "key", "kind"],
        "formats": ["<i8", "<i8", "<u4", "<i8", "<i8", "<i8", "<i8", "<u8", "u1"],
        "offsets": [0, 8, 16, 20, 28, 36, 44, 52, 60],
        "itemsize": 64,
    }
)
"""One line of a journal segment's index (pixiu.queue.storage.index), as numpy reads it."""

_HEADER_FIELDS = [
    pa.field("event_id", pa.int64()),
    pa.field("message_id", pa.int64()),
    pa.field("topic", pa.string()),
    pa.field("kind", pa.int32()),
    pa.field("written_at", pa.timestamp("us", tz="UTC")),
    pa.field("key_hash", pa.int64()),
    pa.field("bytes", pa.int32()),
]

HEADER = pa.schema(_HEADER_FIELDS)
"""What the index alone knows."""

FULL = pa.schema([*_HEADER_FIELDS, pa.field("key", pa.binary()), pa.field("payload", pa.binary())])
"""The same, with the key and what the message says."""

HEADER_DDL = (
    "event_id BIGINT, message_id BIGINT, topic STRING, kind INT, written_at TIMESTAMP, key_hash BIGINT, bytes INT"
)
FULL_DDL = f"{HEADER_DDL}, key BINARY, payload BINARY"
