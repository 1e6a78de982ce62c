"""Small tables for charts: usage, heat and latency, as partial sums that add up.

Each run makes rows from the events that are new since the last one, and appends them; a day or a minute that several
runs have seen has several rows, and the views add them up. So the cost of a run follows what is new, never what was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from pixiu.model.ids import NODE_ID_MAX, SEQUENCE_BITS
from pixiu.pipeline.lake.schema import MART_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["added_up", "heat", "keys_of", "latency", "usage"]

WITHIN_MS = 200
"""What counts as in time."""


def usage(messages: DataFrame, deliveries: DataFrame, changes: DataFrame) -> DataFrame:
    """Who did what on which day: sent (by kind and device), received (by platform), came (a new user)."""
    sent = (
        messages.where("sender_id != 0 AND notice IS NULL")
        .groupBy("day", sf.col("sender_id").alias("user_id"), sf.coalesce("device", sf.lit("")).alias("place"), "kind")
        .agg(sf.count("*").alias("messages"), sf.sum("bytes").cast("bigint").alias("bytes"))
        .withColumn("what", sf.lit("sent"))
    )
    received = (
        deliveries.where("what = 'acked'")
        .groupBy("day", "user_id", sf.col("platform").alias("place"))
        .agg(sf.sum(sf.col("through_useq") - sf.col("first_useq") + 1).cast("bigint").alias("messages"))
        .select(
            "*", sf.lit("received").alias("what"), sf.lit("").alias("kind"), sf.lit(0).cast("bigint").alias("bytes")
        )
    )
    came = changes.where("what = 'user'").select(
        "day", "user_id", sf.lit("").alias("place"), sf.lit("").alias("kind"),
        sf.lit(1).cast("bigint").alias("messages"), sf.lit(0).cast("bigint").alias("bytes"),
        sf.lit("came").alias("what"),
    )  # fmt: skip
    return sent.unionByName(received).unionByName(came).select(*MART_SCHEMAS["usage"].names)


def heat(messages: DataFrame) -> DataFrame:
    """How much was said where, minute by minute."""
    return (
        messages.groupBy("day", sf.date_trunc("minute", "written_at").alias("minute"), "bucket", "conversation")
        .agg(sf.count("*").alias("messages"), sf.sum("bytes").cast("bigint").alias("bytes"))
        .select(*MART_SCHEMAS["heat"].names)
    )


def latency(messages: DataFrame, acked: DataFrame, handed: DataFrame) -> DataFrame:
    """How long each hop took, minute by minute, as a sketch that merges over any time.

    ``write``: from the proxy's acceptance to the journal, by the number of the node that gave the message its id.
    ``ack``: from the hand-over of an entry to its ack, by platform. ``acked`` are new rows of the ledger, ``handed``
    those of some days: an entry that was handed over before them is left out.
    """
    written = messages.select(
        "day",
        sf.date_trunc("minute", "written_at").alias("minute"),
        sf.lit("write").alias("hop"),
        sf.shiftright("message_id", SEQUENCE_BITS).bitwiseAND(NODE_ID_MAX).cast("string").alias("link"),
        (sf.unix_millis("written_at") - sf.unix_millis("accepted_at")).alias("ms"),
    )
    until_ack = (
        _each(handed, "handed", "handed_at")
        .join(_each(acked, "acked", "acked_at"), ["user_id", "platform", "useq"])
        .select(
            sf.to_date("acked_at").alias("day"),
            sf.date_trunc("minute", "acked_at").alias("minute"),
            sf.lit("ack").alias("hop"),
            sf.col("platform").alias("link"),
            (sf.unix_millis("acked_at") - sf.unix_millis("handed_at")).alias("ms"),
        )
    )
    return (
        written.unionByName(until_ack)
        .withColumn("ms", sf.greatest("ms", sf.lit(0)))
        .groupBy("day", "minute", "hop", "link")
        .agg(
            sf.count("*").alias("messages"),
            sf.count(sf.when(sf.col("ms") <= WITHIN_MS, 1)).alias("in_time"),
            sf.sum("ms").cast("bigint").alias("sum_ms"),
            sf.max("ms").cast("bigint").alias("max_ms"),
            sf.expr("kll_sketch_agg_bigint(ms)").alias("sketch"),
        )
        .select(*MART_SCHEMAS["latency"].names)
    )


def _each(deliveries: DataFrame, what: str, name: str) -> DataFrame:
    """The entries that rows of the ledger speak of, each with the first time."""
    return (
        deliveries.where(sf.col("what") == what)
        .select("user_id", "platform", "noted_at", sf.explode(sf.sequence("first_useq", "through_useq")).alias("useq"))
        .groupBy("user_id", "platform", "useq")
        .agg(sf.min("noted_at").alias(name))
    )


_ADDED = {
    "messages": "sum(messages)",
    "bytes": "sum(bytes)",
    "in_time": "sum(in_time)",
    "sum_ms": "sum(sum_ms)",
    "max_ms": "max(max_ms)",
    "sketch": "kll_merge_agg_bigint(sketch)",
}
"""How the columns of partial sums add up; all others say what they are sums of."""


def keys_of(schema: Any) -> list[str]:
    """The columns of a mart that say what its rows are sums of."""
    return [name for name in schema.names if name not in _ADDED]


def added_up(rows: DataFrame, schema: Any) -> DataFrame:
    """Partial sums of many runs as one row for each thing that they are sums of."""
    sums = [sf.expr(_ADDED[name]).alias(name) for name in schema.names if name in _ADDED]
    return rows.groupBy(*keys_of(schema)).agg(*sums).select(*schema.names)
