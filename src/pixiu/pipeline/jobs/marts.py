"""Small tables for charts: usage, heat and latency, as partial sums that add up.

Each run makes rows from the events that are new since the last one, and appends them; a day or a minute that several
runs have seen has several rows, and the views add them up. So the cost of a run follows what is new, never what was.
``rolled_up`` makes one row of those that say the same, now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as sf

from pixiu.model.ids import NODE_BITS, NODE_ID_MAX, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.lake.schema import BUCKETS, MART_SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "OF_SUMS", "New", "first_days", "heat", "hop_sums", "hops", "keys_of", "latency", "latency_buckets", "presence",
    "rolled_up", "rows_of", "usage",
]  # fmt: skip


class New(NamedTuple):
    """Rows of the archive of which marts are made."""

    messages: DataFrame
    deliveries: DataFrame
    changes: DataFrame
    traces: DataFrame


WITHIN_MS = 200
"""What counts as in time."""

BUCKETS_PER_OCTAVE = 8
"""Of the histograms: a bucket ends 9 % above where it begins."""


def usage(messages: DataFrame, deliveries: DataFrame, changes: DataFrame, traces: DataFrame) -> DataFrame:
    """Who did what on which day: sent (by kind and device), received and connected (by platform), came (a new user)."""
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
        .withColumn("what", sf.lit("received"))
    )
    connected = (
        traces.where("what = 'connected'")
        .groupBy(sf.to_date("happened_at").alias("day"), "user_id", sf.col("platform").alias("place"))
        .agg(sf.count("*").alias("messages"))
        .withColumn("what", sf.lit("connected"))
    )
    came = changes.where("what = 'user'").select(
        "day", "user_id", sf.lit("").alias("place"), sf.lit(1).cast("bigint").alias("messages"),
        sf.lit("came").alias("what"),
    )  # fmt: skip
    others = received.unionByName(connected).unionByName(came)
    others = others.select("*", sf.lit("").alias("kind"), sf.lit(0).cast("bigint").alias("bytes"))
    return sent.unionByName(others).select(*MART_SCHEMAS["usage"].names)


def first_days(used: DataFrame, known: DataFrame) -> DataFrame:
    """The first day of users who were never active before: ``used`` are new rows of usage, ``known`` who was."""
    new = used.where("what != 'came'").groupBy("user_id").agg(sf.min("day").alias("day"))
    return new.join(known.select("user_id"), "user_id", "left_anti").select(*MART_SCHEMAS["first_days"].names)


def presence(traces: DataFrame) -> DataFrame:
    """How many sessions there were, minute by minute and node by node."""
    return (
        traces.where("what IN ('connected', 'disconnected', 'sessions')")
        .groupBy(sf.to_date("happened_at").alias("day"), sf.date_trunc("minute", "happened_at").alias("minute"), "node")
        .agg(
            sf.count(sf.when(sf.col("what") == "connected", 1)).alias("connected"),
            sf.count(sf.when(sf.col("what") == "disconnected", 1)).alias("disconnected"),
            sf.coalesce(sf.max("peak"), sf.lit(0)).cast("bigint").alias("peak"),
        )
        .select(*MART_SCHEMAS["presence"].names)
    )


def heat(messages: DataFrame, traces: DataFrame) -> DataFrame:
    """How much was said where, minute by minute: in conversations, and in live rooms (``r:<room>``)."""
    stored = (
        messages.groupBy("day", sf.date_trunc("minute", "written_at").alias("minute"), "bucket", "conversation")
        .agg(sf.count("*").alias("messages"), sf.sum("bytes").cast("bigint").alias("bytes"))
        .select("*", sf.lit(0).cast("bigint").alias("deliveries"), sf.lit(0).cast("bigint").alias("members"))
    )
    live = (
        traces.where("what = 'room'")
        .withColumn("conversation", sf.concat(sf.lit("r:"), sf.col("room")))
        .groupBy(
            sf.to_date("happened_at").alias("day"),
            sf.date_trunc("minute", "happened_at").alias("minute"),
            "conversation",
        )
        .agg(
            *(sf.sum(name).cast("bigint").alias(name) for name in ("messages", "bytes", "deliveries")),
            sf.max("members").cast("bigint").alias("members"),
        )
        .withColumn("bucket", sf.pmod(sf.xxhash64("conversation"), sf.lit(BUCKETS)).cast("int"))
    )
    return stored.unionByName(live).select(*MART_SCHEMAS["heat"].names)


def hops(messages: DataFrame, deliveries: DataFrame, handed: DataFrame, traces: DataFrame) -> DataFrame:
    """How long each hop took: ``at``, ``hop``, ``link``, ``us``. docs/pipeline.md says what each of them is.

    ``deliveries`` are new rows of the ledger, ``handed`` those that their acks may answer.
    """
    node = sf.shiftright("message_id", SEQUENCE_BITS).bitwiseAND(NODE_ID_MAX).cast("string")
    write = messages.select(
        sf.col("written_at").alias("at"), sf.lit("write").alias("hop"), node.alias("link"),
        (sf.unix_micros("written_at") - sf.unix_micros("accepted_at")).alias("us"),
    )  # fmt: skip
    moment = sf.col("happened_at").alias("at")
    timed = traces.where("what IN ('accept', 'push')").select(moment, sf.col("what").alias("hop"), "link", "us")
    store = traces.where("what = 'flush'").select(
        moment, sf.lit("store").alias("hop"), sf.col("node").cast("string").alias("link"), "us"
    )
    given = sf.shiftright("message_id", NODE_BITS + SEQUENCE_BITS) + sf.lit(SNOWFLAKE_EPOCH_MS)
    deliver = deliveries.where("what = 'handed' AND message_id > 0 AND NOT waited").select(
        sf.col("noted_at").alias("at"), sf.lit("deliver").alias("hop"),
        sf.concat_ws("/", "gateway", "platform").alias("link"),
        ((sf.unix_millis("noted_at") - given) * 1000).alias("us"),
        sf.explode(sf.sequence("first_useq", "through_useq")).alias("useq"),
    ).drop("useq")  # fmt: skip
    ack = (
        _each(handed, "handed", "handed_at")
        .join(_each(deliveries, "acked", "acked_at"), ["user_id", "platform", "useq"])
        .select(
            sf.col("acked_at").alias("at"), sf.lit("ack").alias("hop"), sf.col("platform").alias("link"),
            (sf.unix_micros("acked_at") - sf.unix_micros("handed_at")).alias("us"),
        )
    )  # fmt: skip
    found = write.unionByName(timed).unionByName(store).unionByName(deliver).unionByName(ack)
    return found.withColumn("us", sf.greatest("us", sf.lit(0)).cast("bigint"))


def hop_sums(timed: DataFrame) -> DataFrame:
    """Rows of ``hops`` by minute, hop, link and bucket: small, and all that the two tables of latency need.

    The bucket of a time is floor(8 * log2(us + 1)).
    """
    us = sf.col("us")
    bucket = sf.floor(sf.log2(us + 1) * BUCKETS_PER_OCTAVE).cast("int")
    minute = sf.date_trunc("minute", "at")
    return timed.groupBy(
        sf.to_date("at").alias("day"), minute.alias("minute"), "hop", "link", bucket.alias("bucket")
    ).agg(
        sf.count("*").alias("messages"),
        sf.count(sf.when(us <= WITHIN_MS * 1000, 1)).alias("in_time"),
        sf.sum(us).cast("bigint").alias("sum_us"),
        sf.max(us).cast("bigint").alias("max_us"),
        sf.expr("kll_sketch_agg_bigint(us)").alias("sketch"),
    )  # fmt: skip


def latency(sums: DataFrame) -> DataFrame:
    """``hop_sums`` minute by minute, with a sketch that merges over any time."""
    return (
        sums.groupBy("day", "minute", "hop", "link")
        .agg(
            *(sf.sum(name).cast("bigint").alias(name) for name in ("messages", "in_time", "sum_us")),
            sf.max("max_us").cast("bigint").alias("max_us"),
            sf.expr("kll_merge_agg_bigint(sketch)").alias("sketch"),
        )
        .withColumn("sum_ms", sf.floor(sf.col("sum_us") / 1000).cast("bigint"))
        .withColumn("max_ms", sf.floor(sf.col("max_us") / 1000).cast("bigint"))
        .select(*MART_SCHEMAS["latency"].names)
    )


def latency_buckets(sums: DataFrame) -> DataFrame:
    """The same as histograms, which any engine can read."""
    return sums.select(*MART_SCHEMAS["latency_buckets"].names)


OF_SUMS = {"latency": latency, "latency_buckets": latency_buckets}
"""Marts that are made of ``hop_sums``."""


def rows_of(name: str, new: New, known: DataFrame) -> DataFrame:
    """What these rows add to any other mart; ``known`` are the first days that are known."""
    messages, deliveries, changes, traces = new
    match name:
        case "usage":
            return usage(messages, deliveries, changes, traces)
        case "first_days":
            return first_days(usage(messages, deliveries, changes, traces), known)
        case "presence":
            return presence(traces)
        case _:
            return heat(messages, traces)


def keys_of(schema: Any) -> list[str]:
    """The columns of a mart that say what its rows are sums of."""
    return [name for name in schema.names if name not in _SUMS | _TOPS | {"sketch"}]


def rolled_up(schema: Any, rows: DataFrame) -> DataFrame:
    """Rows of a mart, or of the books, with those that say the same made one: no sum changes."""
    if schema == MART_SCHEMAS["first_days"]:
        return rows.groupBy("user_id").agg(sf.min("day").alias("day"))
    keys = keys_of(schema)
    values: list[Column] = [
        sf.expr("kll_merge_agg_bigint(sketch)").alias("sketch") if each == "sketch"
        else (sf.sum(each) if each in _SUMS else sf.max(each)).cast("bigint").alias(each)
        for each in schema.names if each not in keys
    ]  # fmt: skip
    return rows.groupBy(*keys).agg(*values).select(*schema.names)


_SUMS = {
    "messages", "bytes", "deliveries", "in_time", "sum_ms", "sum_us", "connected", "disconnected",
    "intended", "acked", "waiting", "expired", "dead", "resent", "reordered", "late", "lost", "duplicates",
    "expected_waiting",
}  # fmt: skip
_TOPS = {"members", "max_ms", "max_us", "peak"}


def _each(deliveries: DataFrame, what: str, name: str) -> DataFrame:
    """The entries that rows of the ledger speak of, each with the first time."""
    return (
        deliveries.where(sf.col("what") == what)
        .select("user_id", "platform", "noted_at", sf.explode(sf.sequence("first_useq", "through_useq")).alias("useq"))
        .groupBy("user_id", "platform", "useq")
        .agg(sf.min("noted_at").alias(name))
    )
