"""Recalls and receipts, and how they are folded into the messages of the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from pixiu.pipeline.lake.schema import LAKE_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["fold", "marks_of"]


def _conversation(one: str, other: str) -> Column:
    """``u:<lower number>:<higher number>`` of two users, or ``g:<group_id>``, as pixiu.pipeline.lake.shape has it."""
    pair = sf.concat(
        sf.lit("u:"), sf.least(one, other).cast("string"), sf.lit(":"), sf.greatest(one, other).cast("string")
    )
    in_group = sf.concat(sf.lit("g:"), sf.col("group_id").cast("string"))
    return sf.when((sf.col(other) == 0) & (sf.col("group_id") > 0), in_group).otherwise(pair)


def marks_of(changes: DataFrame) -> DataFrame:
    """Recalls and receipts, one row per message: the first of each counts."""
    marks = changes.where(sf.col("what").isin("recalled", "delivered", "seen"))
    recalled = sf.col("what") == "recalled"
    return (
        marks.withColumn("conversation", _conversation("user_id", "peer_id"))
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
