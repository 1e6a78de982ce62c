"""The write diffusion as DataFrames: what the carriers write into stores, made again from the log, row by row.

A private message is a row at each side, a group's is one; inboxes hold what has not left; a body has as many references
as there are rows and entries that name it; what is unread is counted step by step. Who was a member, who had which
inbox, and which entries left is what the audit computes already (``jobs.audit``).

Everything is as of the last event of the tables that are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from pixiu.model.inbox import NEED_NOTIFICATION
from pixiu.model.timeline import State
from pixiu.pipeline.jobs.audit import departures, entries_of, inboxes_of, large_groups, members_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column, DataFrame

__all__ = ["Diffusion", "replayed"]

_RECALLED = int(State.RECALLED)
_GROUP_NOTICES = "notice IS NULL OR notice IN ('recalled', 'group_info', 'member')"
_COUNTER = pa.schema(
    [("user_id", pa.int64()), ("kind", pa.string()), ("owner_id", pa.int64()), ("count", pa.int64()),
     ("event_id", pa.int64())]
)  # fmt: skip
UNREAD = "user_id BIGINT, kind STRING, owner_id BIGINT, count BIGINT, event_id BIGINT"


class Diffusion:
    """Every table of the stores that messages fill. ``messages``, ``deliveries``, ``changes`` are the source's."""

    def __init__(self, messages: DataFrame, deliveries: DataFrame, changes: DataFrame) -> None:
        self.messages = messages
        self.changes = changes
        self.inboxes = inboxes_of(changes).persist()
        meant = entries_of(messages, changes, self.inboxes)
        self.entries = departures(meant, deliveries, changes, self.inboxes).persist()
        self._erased = (
            changes.where("what = 'erased'").groupBy("user_id").agg(sf.max("event_id").alias("erased_event")).persist()
        )
        self._trims = (
            changes.where("what = 'trimmed'")
            .select("user_id", "group_id", sf.col("event_id").alias("_cut"), sf.col("about").alias("_through"))
            .persist()
        )
        self._recalls = (
            changes.where("what = 'recalled'")
            .select("event_id", sf.col("about").alias("message_id"), "user_id", "peer_id", "group_id")
            .persist()
        )
        self._blanked_ids = self._blanked().persist()
        self._private = self._marked(self._private_sides()).persist()
        self._groups = self._group_rows().persist()

    def unpersist(self) -> None:
        """Let go of what was kept."""
        kept = self.inboxes, self.entries, self._erased, self._recalls, self._blanked_ids, self._private, self._groups
        for frame in (*kept, self._trims):
            frame.unpersist()

    # What was written by someone who was erased later.

    def _blanked(self) -> DataFrame:
        """message_id, erased_event, sender_id: of messages whose content an erasure has removed."""
        written = self.messages.where("notice IS NULL AND kind NOT IN ('system', 'delete') AND sender_id > 0")
        blanked = written.join(self._erased.withColumnRenamed("user_id", "sender_id"), "sender_id").where(
            "event_id < erased_event"
        )
        # What was written is found in the writer's own timeline, or in the group's, if it is still there.
        private = self._with_cut(blanked.where("recipient_id > 0"), "sender_id", "user_id")
        others = self._with_cut(blanked.where("recipient_id = 0"), "group_id", "group_id")
        found = private.unionByName(others).where("cut_event IS NULL OR cut_event > erased_event")
        return found.select("message_id", "erased_event")

    def _with_cut(self, rows: DataFrame, owner: str, kind: str) -> DataFrame:
        """Rows with the event, ``cut_event``, at which they left their owner's timeline, null if they did not."""
        cuts = self._trims.where(f"{kind} > 0").select(
            sf.col(kind).alias(owner), sf.col("_through").alias("message_id"), "_cut"
        )
        # Message ids rise: whatever is at or below one that was cut was said before the cut.
        above = Window.partitionBy(owner).orderBy(sf.col("message_id").desc(), sf.col("_cut").asc_nulls_last())
        both = rows.withColumn("_cut", sf.lit(None).cast("bigint")).unionByName(cuts, allowMissingColumns=True)
        known = both.withColumn("cut_event", sf.min("_cut").over(above.rowsBetween(Window.unboundedPreceding, 0)))
        return known.where("_cut IS NULL").drop("_cut")

    # Timelines.

    def private_rows(self) -> DataFrame:
        """user_id, message_id, peer, is_incoming, state, delivered_at, read_at: a message twice."""
        return self._private

    def _private_sides(self) -> DataFrame:
        """The rows as they were written: at the sender's side, and at the receiver's."""
        said = self.messages.where("recipient_id > 0 AND (notice IS NULL OR notice = 'recalled')").select(
            "message_id", "event_id", "sender_id", "recipient_id"
        )
        outgoing = said.where("sender_id != 0 AND sender_id != recipient_id").select(
            sf.col("sender_id").alias("user_id"), "message_id", "event_id",
            sf.col("recipient_id").alias("peer"), sf.lit(False).alias("is_incoming"),
        )  # fmt: skip
        incoming = said.select(
            sf.col("recipient_id").alias("user_id"), "message_id", "event_id",
            sf.col("sender_id").alias("peer"), sf.lit(True).alias("is_incoming"),
        )  # fmt: skip
        rows = outgoing.unionByName(incoming)
        kept = rows.join(self._erased, "user_id", "left").where("erased_event IS NULL OR event_id > erased_event")
        return (
            self._with_cut(kept.drop("erased_event"), "user_id", "user_id").where("cut_event IS NULL").drop("cut_event")
        )

    def _marked(self, rows: DataFrame) -> DataFrame:
        """Rows with what has become of them: the first receipt of each kind, and recalls."""
        receipts = self.changes.where("what IN ('delivered', 'seen')").select(
            "what", sf.col("user_id"), sf.col("about").alias("message_id"), sf.col("peer_id").alias("peer"),
            sf.col("event_id").alias("_at"), sf.unix_millis("accepted_at").alias("_ms"),
        )  # fmt: skip
        first = (
            receipts.join(rows.where("NOT is_incoming").select("user_id", "message_id", "peer", "event_id"),
                          ["user_id", "message_id", "peer"])
            .where("_at > event_id")
            .groupBy("user_id", "message_id")
            .agg(
                _first("_ms", sf.col("what") == "delivered").alias("delivered_at"),
                _first("_ms", sf.col("what") == "seen").alias("read_at"),
            )
        )  # fmt: skip
        private = self._recalls.where("group_id = 0")
        recalled = (
            private.select("event_id", "message_id", "user_id")
            .unionByName(private.select("event_id", "message_id", sf.col("peer_id").alias("user_id")))
            .groupBy("user_id", "message_id")
            .agg(sf.max("event_id").alias("_recalled"))
        )
        blanked = self._blanked_ids
        joined = (
            rows.join(first, ["user_id", "message_id"], "left")
            .join(recalled, ["user_id", "message_id"], "left")
            .join(blanked, "message_id", "left")
        )
        is_recalled = (sf.col("_recalled") > sf.col("event_id")) | sf.col("erased_event").isNotNull()
        delivered, read = sf.coalesce("delivered_at", sf.lit(0)), sf.coalesce("read_at", sf.lit(0))
        state = (
            sf.when(is_recalled, _RECALLED)
            .when(read > 0, int(State.READ))
            .when(delivered > 0, int(State.DELIVERED))
            .otherwise(0)
        )
        return joined.select(
            "user_id", "message_id", "peer", "is_incoming", state.cast("int").alias("state"),
            delivered.cast("bigint").alias("delivered_at"), read.cast("bigint").alias("read_at"),
        )  # fmt: skip

    def _in_groups(self) -> DataFrame:
        """What was said in groups that existed then."""
        created = self.changes.where("what = 'group'").groupBy("group_id").agg(sf.min("event_id").alias("_created"))
        return (
            self.messages.where(f"recipient_id = 0 AND group_id > 0 AND ({_GROUP_NOTICES})")
            .join(created, "group_id")
            .where("_created <= event_id")
            .drop("_created")
        )

    def _group_rows(self) -> DataFrame:
        """The rows, with the event at which each was recalled: nulls for those that were not."""
        order = Window.partitionBy("group_id").orderBy("message_id")
        recalled = (
            self._recalls.where("group_id > 0")
            .groupBy("group_id", "message_id")
            .agg(sf.collect_list("event_id").alias("_recalls"))
        )
        behind = sf.filter("_recalls", lambda each: each > sf.col("event_id"))
        gone = sf.least(sf.array_min(behind), sf.col("erased_event"))
        return self._with_cut(
            self._in_groups()
            .withColumn("previous", sf.coalesce(sf.lag("message_id").over(order), sf.lit(0)))
            .join(recalled, ["group_id", "message_id"], "left")
            .join(self._blanked_ids, "message_id", "left")
            .withColumn("gone_event", gone),
            "group_id", "group_id",
        )  # fmt: skip

    def group_rows(self) -> DataFrame:
        """group_id, message_id, from_user, previous, state: a message once."""
        return self.group_rows_ever().where("cut_event IS NULL").drop("cut_event")

    def group_rows_ever(self) -> DataFrame:
        """The same, with those that have left since (``cut_event``): members' places are counted from them."""
        state = sf.when(sf.col("gone_event").isNotNull(), _RECALLED).otherwise(0)
        return self._groups.select(
            "group_id", "message_id", sf.col("sender_id").alias("from_user"), "previous",
            state.cast("int").alias("state"), "cut_event",
        )  # fmt: skip

    # Inboxes.

    def waiting(self) -> DataFrame:
        """user_id, platform, useq, message_id, event_id, at, options, session: what has not left."""
        pushed = self.changes.where("what = 'push'").select("event_id", "user_id", sf.col("options").alias("_own"))
        said = self.messages.select("message_id", "sender_id", "options", "session")
        options = sf.coalesce("_own", "options")
        quiet = sf.when(sf.col("user_id") == sf.col("sender_id"), options.bitwiseAND(sf.lit(~NEED_NOTIFICATION)))
        return (
            self.entries.where("left_event IS NULL")
            .join(said, "message_id")
            .join(pushed, ["event_id", "user_id"], "left")
            .select(
                "user_id", "platform", "useq", "message_id", "event_id", sf.unix_millis("accepted_at").alias("at"),
                sf.coalesce(quiet, options).cast("int").alias("options"), "session",
            )
        )  # fmt: skip

    def inbox_states(self) -> DataFrame:
        """user_id, platform, number, floor, latest, waiting, event_id, oldest_at: every inbox, in order of opening."""
        is_waiting = sf.col("left_event").isNull()
        counts = self.entries.groupBy("user_id", "platform").agg(
            sf.max("useq").alias("_latest"), sf.max("event_id").alias("_event"),
            sf.count(sf.when(is_waiting, 1)).alias("_waiting"),
            sf.min(sf.when(is_waiting, sf.col("useq"))).alias("_first"),
            sf.min_by(
                sf.when(is_waiting, sf.unix_millis("accepted_at")), sf.when(is_waiting, sf.col("useq"))
            ).alias("_oldest"),
        )  # fmt: skip
        opening = Window.partitionBy("user_id").orderBy("opened_event", "platform")
        zero = sf.lit(0).cast("bigint")
        return self.inboxes.join(counts, ["user_id", "platform"], "left").select(
            "user_id", "platform", (sf.row_number().over(opening) - 1).alias("number"),
            sf.coalesce(sf.col("_first") - 1, "_latest", zero).alias("floor"),
            sf.coalesce("_latest", zero).alias("latest"),
            sf.coalesce("_waiting", zero).alias("waiting"), sf.coalesce("_event", zero).alias("event_id"),
            sf.coalesce("_oldest", zero).alias("oldest_at"),
        )  # fmt: skip

    # Send keys.

    def forgotten_keys(self) -> DataFrame:
        """key, cut, through: sends that are known no more, if they were given a message id up to there."""
        return self.changes.where("what = 'forgot'").select(
            sf.unhex("public_id").alias("key"), sf.col("event_id").alias("cut"), sf.col("about").alias("through")
        )

    # References.

    def references(self) -> DataFrame:
        """message_id, references: how many rows and entries name a body. A body that none names is gone."""
        named = (
            self.private_rows()
            .select("message_id")
            .unionByName(self.group_rows().select("message_id"))
            .unionByName(self.entries.where("left_event IS NULL").select("message_id"))
        )
        return named.groupBy("message_id").agg(sf.count("*").alias("references"))

    def tombstones(self) -> DataFrame:
        """message_id, from_id, to_id, is_group: of bodies that were recalled, or written by someone who was erased."""
        events = self.messages.select("message_id", sf.col("event_id").alias("_said"))
        recalled = self._recalls.join(events, "message_id").where("event_id > _said").select(
            "message_id", sf.struct(
                "event_id", sf.col("user_id").alias("from_id"),
                sf.when(sf.col("group_id") > 0, sf.col("group_id")).otherwise(sf.col("peer_id")).alias("to_id"),
                (sf.col("group_id") > 0).alias("is_group"),
            ).alias("_last"),
        )  # fmt: skip
        is_private = sf.col("recipient_id") > 0
        erased = (
            self.messages.where("recipient_id > 0 OR group_id > 0")
            .join(self._blanked_ids, "message_id")
            .select(
                "message_id", sf.struct(
                    sf.col("erased_event").alias("event_id"), sf.col("sender_id").alias("from_id"),
                    sf.when(is_private, sf.col("recipient_id")).otherwise(sf.col("group_id")).alias("to_id"),
                    (~is_private).alias("is_group"),
                ).alias("_last"),
            )
        )  # fmt: skip
        last = recalled.unionByName(erased).groupBy("message_id").agg(sf.max("_last").alias("_last"))
        return last.select("message_id", "_last.from_id", "_last.to_id", "_last.is_group")

    # Unread.

    def unread(self) -> DataFrame:
        """user_id, kind (u or g), owner_id, count, event_id: every counter that was raised or set, and not dropped."""
        steps = self._raised().unionByName(self._dropped()).unionByName(self._read())
        by_user = steps.join(self._erased, "user_id", "left")
        return by_user.groupBy("user_id", "kind", "owner_id").applyInArrow(_counted, UNREAD)

    def _raised(self) -> DataFrame:
        none = sf.lit(0).cast("bigint")
        private = self.messages.where("recipient_id > 0 AND notice IS NULL AND sender_id != recipient_id").select(
            sf.col("recipient_id").alias("user_id"), sf.lit("u").alias("kind"), sf.col("sender_id").alias("owner_id"),
            "event_id", sf.lit("add").alias("what"), none.alias("number"),
        )  # fmt: skip
        members = members_of(self.changes)
        said = (
            self._in_groups()
            .where("notice IS NULL")
            .join(large_groups(self.changes), "group_id", "left")
            .where("large_event IS NULL OR large_event > event_id")
        )
        in_groups = (
            said.join(members, "group_id")
            .where("joined_event <= event_id AND event_id < left_event AND user_id != sender_id")
            .select(
                "user_id", sf.lit("g").alias("kind"), sf.col("group_id").alias("owner_id"), "event_id",
                sf.lit("add").alias("what"), none.alias("number"),
            )
        )  # fmt: skip
        return private.unionByName(in_groups)

    def _dropped(self) -> DataFrame:
        """Joins set a count to nothing; quits and unlinks drop it."""
        none = sf.lit(0).cast("bigint")
        created = self.changes.where("what = 'group'").groupBy("group_id").agg(sf.min("event_id").alias("_created"))
        founders = (
            self.changes.where("what = 'founder'")
            .join(created, "group_id")
            .where("event_id = _created")
            .join(large_groups(self.changes), "group_id", "left")
            .where("large_event IS NULL OR large_event > event_id")
            .select("user_id", "group_id", "event_id", sf.lit("set").alias("what"))
        )
        stays = self.changes.where("what IN ('join', 'quit')").select(
            "user_id", "group_id", "event_id",
            sf.when(sf.col("what") == "join", "set").otherwise("drop").alias("what"),
        )  # fmt: skip
        groups = founders.unionByName(stays).select(
            "user_id", sf.lit("g").alias("kind"), sf.col("group_id").alias("owner_id"), "event_id", "what",
            none.alias("number"),
        )  # fmt: skip
        unlinked = self.changes.where("what = 'unlink'").select(
            "user_id", sf.lit("u").alias("kind"), sf.col("peer_id").alias("owner_id"), "event_id",
            sf.lit("drop").alias("what"), none.alias("number"),
        )  # fmt: skip
        return groups.unionByName(unlinked)

    def _read(self) -> DataFrame:
        """Readings, each with how many messages lay behind what was read, as of then."""
        reads = self.changes.where("what = 'read'").select(
            "user_id", "peer_id", "group_id", "event_id", sf.col("about").alias("through")
        )
        rows = self._groups.select(
            "group_id", "message_id", "sender_id", sf.least("gone_event", "cut_event").alias("gone_event"),
            sf.col("event_id").alias("_said"), "kind",
        )  # fmt: skip
        in_groups = (
            reads.where("group_id > 0")
            .join(large_groups(self.changes), "group_id", "left")
            .where("large_event IS NULL OR large_event > event_id")
            .join(rows, "group_id", "left")
            .withColumn("_counts", _lies_behind() & (sf.col("sender_id") != sf.col("user_id"))
                        & ~sf.col("kind").isin("system", "delete"))
            .groupBy("user_id", "group_id", "event_id")
            .agg(sf.count(sf.when(sf.col("_counts"), 1)).alias("number"))
            .select("user_id", sf.lit("g").alias("kind"), sf.col("group_id").alias("owner_id"), "event_id",
                    sf.lit("read").alias("what"), "number")
        )  # fmt: skip
        recalled = self._recalls.where("group_id = 0").groupBy("message_id").agg(sf.min("event_id").alias("_recalled"))
        said = self.messages.where("recipient_id > 0 AND (notice IS NULL OR notice = 'recalled')")
        private = (
            self._with_cut(said, "recipient_id", "user_id")
            .join(recalled, "message_id", "left")
            .join(self._blanked_ids, "message_id", "left")
            .select(
                sf.col("recipient_id").alias("user_id"), sf.col("sender_id").alias("peer_id"), "message_id",
                sf.col("event_id").alias("_said"), sf.col("kind").alias("_kind"),
                sf.least("_recalled", "erased_event", "cut_event").alias("gone_event"),
            )
        )  # fmt: skip
        direct = (
            reads.where("group_id = 0")
            .join(private, ["user_id", "peer_id"], "left")
            .withColumn("_counts", _lies_behind() & (sf.col("_kind") != "delete"))
            .groupBy("user_id", "peer_id", "event_id")
            .agg(sf.count(sf.when(sf.col("_counts"), 1)).alias("number"))
            .select("user_id", sf.lit("u").alias("kind"), sf.col("peer_id").alias("owner_id"), "event_id",
                    sf.lit("read").alias("what"), "number")
        )  # fmt: skip
        return in_groups.unionByName(direct)


def _first(value: str, condition: Column) -> Column:
    """The value of the first event that meets a condition."""
    return sf.min_by(sf.when(condition, sf.col(value)), sf.when(condition, sf.col("_at")))


def _lies_behind() -> Column:
    """Was this message there when something was read, behind it, and not yet recalled?"""
    return (
        (sf.col("message_id") > sf.col("through"))
        & (sf.col("_said") < sf.col("event_id"))
        & (sf.col("gone_event").isNull() | (sf.col("gone_event") > sf.col("event_id")))
    )


def replayed(steps: Iterable[tuple[int, str, int]], erased_event: int = 0) -> tuple[int, int] | None:
    """A counter after these steps (event_id, what, number), in order: its count and the last event; None if dropped."""
    counter: tuple[int, int] | None = None
    for event_id, what, number in steps:
        if counter is not None and counter[1] < erased_event < event_id:
            counter = None
        before = 0 if counter is None else counter[0]
        if what == "add":
            counter = before + 1, event_id
        elif what == "drop":
            counter = None
        else:
            counter = min(number, before) if what == "read" else 0, event_id
    return None if counter is not None and counter[1] < erased_event else counter


def _counted(table: Any) -> Any:
    rows = table.to_pylist()
    erased = rows[0]["erased_event"] or 0
    steps: Iterator[tuple[int, str, int]] = iter(sorted((row["event_id"], row["what"], row["number"]) for row in rows))
    found = replayed(steps, erased)
    first = rows[0]
    kept = [] if found is None else [(first["user_id"], first["kind"], first["owner_id"], *found)]
    columns = zip(*kept, strict=True) if kept else [()] * len(_COUNTER)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _COUNTER, strict=True)]
    return pa.table(arrays, schema=_COUNTER)
