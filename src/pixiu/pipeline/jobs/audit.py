"""Who should have got what, and what became of it, by joins and windows: what a rebuild makes stores of.

An *entry* is a message in an inbox, with the place that the carrier gave it (``useq``). Entries are made again from
messages, inboxes and memberships as of each message's event id; the ledger says which of them left, and how.

Everything here is DataFrames in, DataFrames out. The audit's books have the same rules in pixiu.pipeline.books;
``pixiu audit`` replays the log into empty stores, and pixiu.pipeline.checker asks by SQL of its own.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from pixiu.model.inbox import FIRST
from pixiu.roles.carrier.reached import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

__all__ = [
    "departures",
    "entries_of",
    "inboxes_of",
    "large_groups",
    "members_of",
]

_INBOX = ["user_id", "platform"]
_FOREVER = 2**62


# The state of things, as of an event.


def inboxes_of(changes: DataFrame) -> DataFrame:
    """Every inbox: since which event it is open, and since which it has its name.

    A user's first inbox is called ``first`` until a platform takes it over, with all that is in it.
    """
    named = changes.where("what = 'push' AND size(platforms) > 0").select(
        "user_id", "event_id", sf.explode("platforms").alias("platform")
    )
    opened = (
        changes.where("what = 'user'")
        .select("user_id", "event_id", sf.lit(FIRST).alias("platform"))
        .unionByName(changes.where("what = 'inbox'").select("user_id", "event_id", "platform"))
        .unionByName(named)
    )
    of_user = Window.partitionBy("user_id")
    first_named = sf.min(sf.when(sf.col("platform") != FIRST, sf.struct("event_id", "platform"))).over(of_user)
    return (
        opened.groupBy("user_id", "platform")
        .agg(sf.min("event_id").alias("event_id"))
        .withColumn("_first_event", sf.min("event_id").over(of_user))
        .withColumn("_takes_over", first_named)
        .where((sf.col("platform") != FIRST) | sf.col("_takes_over").isNull())
        .withColumn(
            "opened_event",
            sf.when(
                sf.col("_takes_over").isNull() | (sf.col("_takes_over.platform") == sf.col("platform")),
                sf.col("_first_event"),
            ).otherwise(sf.col("event_id")),
        )
        .select("user_id", "platform", "opened_event", sf.col("event_id").alias("named_event"))
    )


def _name_at(event: str) -> Column:
    """What an inbox was called at an event."""
    return sf.when(sf.col(event) < sf.col("named_event"), sf.lit(FIRST)).otherwise(sf.col("platform"))


def members_of(changes: DataFrame) -> DataFrame:
    """Who was a member where, from which event to before which."""
    created = changes.where("what = 'group'").groupBy("group_id").agg(sf.min("event_id").alias("created_event"))
    steps = (
        changes.where("what IN ('join', 'quit', 'founder')")
        .join(created, "group_id")
        .where("what != 'founder' OR event_id = created_event")
        .select("group_id", "user_id", "event_id", (sf.col("what") != "quit").alias("is_in"))
    )
    order = Window.partitionBy("group_id", "user_id").orderBy("event_id")
    return (
        steps.withColumn("_was_in", sf.coalesce(sf.lag("is_in").over(order), sf.lit(False)))
        .where("is_in != _was_in")
        .withColumn("left_event", sf.coalesce(sf.lead("event_id").over(order), sf.lit(_FOREVER)))
        .where("is_in")
        .select("group_id", "user_id", sf.col("event_id").alias("joined_event"), "left_event")
    )


def large_groups(changes: DataFrame) -> DataFrame:
    """Groups that became large, and by which event."""
    return (
        changes.where("what = 'group' AND number = 1").groupBy("group_id").agg(sf.min("event_id").alias("large_event"))
    )


# Who should have got what.


def entries_of(messages: DataFrame, changes: DataFrame, inboxes: DataFrame) -> DataFrame:
    """One row per message and inbox that was meant to get it, with its place there. Worth to be persisted."""
    said = messages.select("message_id", "event_id", "accepted_at", "sender_id", "recipient_id", "group_id", "notice")
    spoken = said.where("notice IS NULL OR notice IN ('recalled', 'contact', 'block', 'group_info', 'member')")
    private = spoken.where("recipient_id > 0")
    people = private.select(
        "message_id", "event_id", "accepted_at", sf.col("recipient_id").alias("user_id")
    ).unionByName(
        private.where("sender_id != 0 AND sender_id != recipient_id").select(
            "message_id", "event_id", "accepted_at", sf.col("sender_id").alias("user_id")
        )
    )
    in_groups = (
        spoken.where("recipient_id = 0 AND group_id > 0")
        .join(large_groups(changes), "group_id", "left")
        .where("large_event IS NULL OR large_event > event_id")
    )
    heard = in_groups.join(members_of(changes), "group_id").where("joined_event <= event_id AND event_id < left_event")
    gone = in_groups.where("notice = 'member'").join(
        changes.where("what = 'quit'").select("event_id", "user_id"), "event_id"
    )
    columns = ["message_id", "event_id", "accepted_at", "user_id"]
    people = people.unionByName(heard.select(*columns)).unionByName(gone.select(*columns)).distinct()
    entered = people.join(inboxes, "user_id").where("opened_event <= event_id").select(*columns, "platform")
    pushed = (
        said.where("notice = 'push'")
        .select("message_id", "event_id", "accepted_at")
        .join(
            changes.where("what = 'push'").select(
                "event_id", "user_id", sf.col("platforms").alias("_only"), sf.col("without_platforms").alias("_without")
            ),
            "event_id",
        )
        .join(inboxes, "user_id")
        .where("opened_event <= event_id")
        .withColumn("_name", _name_at("event_id"))
        .where(
            sf.when(sf.size("_only") > 0, sf.array_contains("_only", sf.col("_name"))).otherwise(
                ~sf.array_contains("_without", sf.col("_name"))
            )
        )
        .select(*columns, "platform")
    )
    place = sf.row_number().over(Window.partitionBy(*_INBOX).orderBy("event_id"))
    return entered.unionByName(pushed).withColumn("useq", place.cast("bigint"))


# What became of it.


def _by_event() -> WindowSpec:
    """An inbox in the order of its history, up to each row."""
    return Window.partitionBy(*_INBOX).orderBy("event_id", "part").rowsBetween(Window.unboundedPreceding, 0)


def departures(entries: DataFrame, deliveries: DataFrame, changes: DataFrame, inboxes: DataFrame) -> DataFrame:
    """The entries, each with the event by which it left and how (acked, expired, dead); nulls for what waits."""
    ledger = (
        deliveries.where("what IN ('acked', 'expired', 'dead')")
        .withColumnRenamed("platform", "_named")
        .join(inboxes, "user_id")
        .where((sf.col("opened_event") < sf.col("event_id")) & (_name_at("event_id") == sf.col("_named")))
        .select(
            *_INBOX, "event_id", "part", "what", "noted_at", "first_useq", "through_useq",
            sf.lit(None).cast("bigint").alias("message_id"),
        )
    )  # fmt: skip
    added = entries.select(
        *_INBOX, "event_id", sf.lit(-1).alias("part"), sf.lit("added").alias("what"),
        sf.col("accepted_at").alias("noted_at"), sf.col("useq").alias("first_useq"),
        sf.col("useq").alias("through_useq"), "message_id",
    )  # fmt: skip
    # Nobody can ack, or remove, what is not there yet.
    latest = sf.sum(sf.when(sf.col("what") == "added", 1).otherwise(0)).over(_by_event())
    steps = added.unionByName(ledger).withColumn("through_useq", sf.least("through_useq", latest))
    event = sf.struct("event_id", "part", sf.col("what").alias("how"), sf.col("noted_at").alias("left_at"))
    by_place = Window.partitionBy(*_INBOX).orderBy(sf.desc("through_useq"), sf.desc("part"))
    ack = sf.min(sf.when(sf.col("what") == "acked", event)).over(by_place.rowsBetween(Window.unboundedPreceding, 0))
    found = (
        steps.where("what IN ('added', 'acked')")
        .withColumn("_ack", ack)
        .where("what = 'added'")
        .select(
            "message_id", "event_id", sf.col("noted_at").alias("accepted_at"), *_INBOX,
            sf.col("first_useq").alias("useq"), "_ack",
        )
    )  # fmt: skip
    removed = (
        steps.where("what IN ('expired', 'dead') AND first_useq <= through_useq")
        .withColumn("useq", sf.explode(sf.sequence("first_useq", "through_useq")))
        .groupBy(*_INBOX, "useq")
        .agg(sf.min(event).alias("_removal"))
    )
    reasons = ["_ack", "_removal"]
    found = found.join(removed, [*_INBOX, "useq"], "left")
    evicted = _evicted(steps, entries, changes, inboxes)
    if evicted is not None:
        reasons.append("_eviction")
        found = found.join(evicted, [*_INBOX, "useq"], "left")
    left = sf.array_min(sf.filter(sf.array(*reasons), lambda each: each.isNotNull()))
    return found.withColumn("_left", left).select(
        "message_id", "event_id", "accepted_at", *_INBOX, "useq",
        sf.col("_left.event_id").alias("left_event"),
        sf.col("_left.how").alias("how"),
        sf.col("_left.left_at").alias("left_at"),
    )  # fmt: skip


_EVICTED = (
    "user_id BIGINT, platform STRING, useq BIGINT, "
    "_eviction STRUCT<event_id: BIGINT, part: INT, how: STRING, left_at: TIMESTAMP>"
)


def _evicted(steps: DataFrame, entries: DataFrame, changes: DataFrame, inboxes: DataFrame) -> DataFrame | None:
    """What left since its inbox was full: not in the log, since it follows from it.

    Only inboxes are replayed in which more may have waited than the smallest limit: what came, less what was acked.
    """
    rows = changes.where("what = 'limit'").orderBy("event_id").select("event_id", "platform", "number").collect()
    limits: list[tuple[int, dict[str, int]]] = [(0, {"": Limits().offline_max})]
    for row in rows:
        if row.event_id != limits[-1][0]:
            limits.append((row.event_id, {}))
        limits[-1][1][row.platform] = row.number
    smallest = min((number for _, each in limits for number in each.values() if number >= 0), default=_FOREVER)
    long = entries.groupBy(*_INBOX).count().where(sf.col("count") > smallest).select(*_INBOX)
    if long.isEmpty():
        return None
    crowded = crowded_of(steps.join(long, _INBOX, "left_semi"), smallest)
    replayed = steps.join(crowded, _INBOX, "left_semi").join(inboxes.select(*_INBOX, "named_event"), _INBOX)
    return replayed.groupBy(*_INBOX).applyInArrow(_replay(limits), _EVICTED)


def crowded_of(steps: DataFrame, smallest: int) -> DataFrame:
    """The inboxes in which, after some addition, more may have waited than ``smallest``."""
    acked = sf.max(sf.when(sf.col("what") == "acked", sf.col("through_useq"))).over(_by_event())
    return (
        steps.withColumn("_acked", sf.coalesce(acked, sf.lit(0)))
        .where((sf.col("what") == "added") & (sf.col("first_useq") - sf.col("_acked") > smallest))
        .select(*_INBOX)
        .distinct()
    )


def _replay(limits: list[tuple[int, dict[str, int]]]) -> Callable[[Any], Any]:
    """For one inbox: what each addition pushed out."""

    def replay(table: Any) -> Any:
        rows = sorted(table.to_pylist(), key=lambda row: (row["event_id"], row["part"]))
        user, platform, named = rows[0]["user_id"], rows[0]["platform"], rows[0]["named_event"]

        def limit_at(event_id: int) -> int:
            return _limit_at(limits, FIRST if event_id < named else platform, event_id)

        found = list(evictions(rows, limit_at))
        moment = pa.timestamp("us", tz="UTC")
        eviction = pa.struct(
            [("event_id", pa.int64()), ("part", pa.int32()), ("how", pa.string()), ("left_at", moment)]
        )
        return pa.table(
            {
                "user_id": pa.array([user] * len(found), pa.int64()),
                "platform": pa.array([platform] * len(found), pa.string()),
                "useq": pa.array([useq for useq, _ in found], pa.int64()),
                "_eviction": pa.array(
                    [
                        {"event_id": row["event_id"], "part": -1, "how": "expired", "left_at": row["noted_at"]}
                        for _, row in found
                    ],
                    eviction,
                ),
            }
        )

    return replay


def _limit_at(limits: list[tuple[int, dict[str, int]]], platform: str, event_id: int) -> int:
    _, found = max(((event, each) for event, each in limits if event <= event_id), key=lambda pair: pair[0])
    return found.get(platform, found[""])


def evictions(rows: Iterable[dict[str, Any]], limit_at: Callable[[int], int]) -> Iterable[tuple[int, dict[str, Any]]]:
    """Which entries an inbox had no room for, each with the addition that pushed it out."""
    waiting: deque[int] = deque()
    for row in rows:
        what, first, through = row["what"], row["first_useq"], row["through_useq"]
        if what == "added":
            waiting.append(first)
            limit = limit_at(row["event_id"])
            while 0 <= limit < len(waiting):
                yield waiting.popleft(), row
        elif what == "acked":
            while waiting and waiting[0] <= through:
                waiting.popleft()
        else:
            waiting = deque(useq for useq in waiting if not first <= useq <= through)
