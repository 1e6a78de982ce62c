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


def _present(name: str, kind: pa.DataType) -> pa.Field:
    """A column that every row has.

    Spark is told so, and asks no row whether there is something: that was half of what Java did with a batch.
    """
    return pa.field(name, kind, nullable=False)


_HEADER_FIELDS = [
    _present("event_id", pa.int64()),
    _present("message_id", pa.int64()),
    _present("topic", pa.string()),
    _present("kind", pa.int32()),
    _present("written_at", pa.timestamp("us", tz="UTC")),
    _present("key_hash", pa.int64()),
    _present("bytes", pa.int32()),
]

HEADER = pa.schema(_HEADER_FIELDS)
"""What the index alone knows."""

FULL = pa.schema([*_HEADER_FIELDS, _present("key", pa.binary()), _present("payload", pa.binary())])
"""The same, with the key and what the message says."""

_SPARK_TYPES = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]} NOT NULL" for field in schema)


HEADER_DDL, FULL_DDL = _ddl(HEADER), _ddl(FULL)
