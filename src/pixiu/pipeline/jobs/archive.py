"""The archive: every message once, by conversation; what became of inbox entries; every change.

A message's ``day`` is that of its number, not of its clock: whoever knows a message id knows the day, so a recall or a
receipt finds its message without a search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.lake.schema import BUCKETS, LAKE_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["fold", "marks_of", "shape"]


def shape(table: str, rows: DataFrame) -> DataFrame:
    """Rows of the source as rows of a table of the archive."""
    if table != "messages":
        return rows.withColumn("day", sf.to_date("accepted_at" if table == "changes" else "noted_at"))
    is_push = sf.col("notice").eqNullSafe("push")
    shaped = (
        rows.withColumn("conversation", conversation("sender_id", "recipient_id", is_push=is_push))
        .withColumn("day", day_of("message_id"))
        .withColumn("bucket", bucket_of("conversation"))
        .withColumn("recalled_at", sf.lit(None).cast("timestamp"))
        .withColumn("recalled_by", sf.lit(None).cast("bigint"))
        .withColumn("delivered_at", sf.lit(None).cast("timestamp"))
        .withColumn("read_at", sf.lit(None).cast("timestamp"))
    )
    return shaped.select(*LAKE_SCHEMAS["messages"].names)


def conversation(one: str, other: str, *, is_push: Column | None = None) -> Column:
    """``u:<lower number>:<higher number>`` of two users, or ``g:<group_id>``; pushes belong to none."""
    pair = sf.concat(
        sf.lit("u:"), sf.least(one, other).cast("string"), sf.lit(":"), sf.greatest(one, other).cast("string")
    )
    in_group = sf.concat(sf.lit("g:"), sf.col("group_id").cast("string"))
    found = sf.when((sf.col(other) == 0) & (sf.col("group_id") > 0), in_group)
    if is_push is not None:
        found = found.when(is_push, sf.lit("push"))
    return found.otherwise(pair)


def day_of(message_id: str) -> Column:
    """The day of a message's number, in UTC."""
    milliseconds = sf.shiftright(sf.col(message_id), NODE_BITS + SEQUENCE_BITS) + sf.lit(SNOWFLAKE_EPOCH_MS)
    return sf.to_date(sf.timestamp_millis(milliseconds))


def bucket_of(name: str) -> Column:
    """The bucket of a conversation."""
    return sf.pmod(sf.xxhash64(name), sf.lit(BUCKETS)).cast("int")


def marks_of(changes: DataFrame) -> DataFrame:
    """Recalls and receipts, one row per message: the first of each counts."""
    marks = changes.where(sf.col("what").isin("recalled", "delivered", "seen"))
    recalled = sf.col("what") == "recalled"
    return (
        marks.withColumn("conversation", conversation("user_id", "peer_id"))
        .groupBy("conversation", sf.col("about").alias("message_id"), sf.col("user_id").alias("sender_id"))
        .agg(
            sf.min(sf.when(recalled, sf.col("accepted_at"))).alias("recalled_at"),
            sf.min_by(sf.when(recalled, sf.col("actor_id")), sf.when(recalled, sf.col("event_id"))).alias(
                "recalled_by"
            ),
            sf.min(sf.when(sf.col("what") == "delivered", sf.col("accepted_at"))).alias("delivered_at"),
            sf.min(sf.when(sf.col("what") == "seen", sf.col("accepted_at"))).alias("read_at"),
        )
    )


def fold(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages with their recalls and receipts; what was recalled says nothing any more."""
    on = ["conversation", "message_id", "sender_id"]
    joined = messages.alias("m").join(marks.alias("k"), on, "left")
    is_recalled = sf.col("m.recalled_at").isNotNull() | sf.col("k.recalled_at").isNotNull()
    columns = []
    for name in LAKE_SCHEMAS["messages"].names:
        if name in ("recalled_at", "recalled_by", "delivered_at", "read_at"):
            columns.append(sf.coalesce(sf.col(f"m.{name}"), sf.col(f"k.{name}")).alias(name))
        elif name in ("text", "body"):
            columns.append(sf.when(~is_recalled, sf.col(f"m.{name}")).alias(name))
        else:
            columns.append(sf.col(name) if name in on else sf.col(f"m.{name}"))
    return joined.select(*columns)
