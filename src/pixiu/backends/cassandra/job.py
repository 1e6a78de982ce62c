"""One commit: what is written, and in which order.

Messages are written in logged batches, each with both its sides or neither. Small ones share a batch: a request costs
the driver and the server far more than a row. What is large goes row by row, and the log repairs it.

First how high message ids go, so that a row that might be there is looked for, and new buckets, so that rows in them
are found. Then rows, then removals, then the event id that the lane has reached. It may end anywhere and be written
again: the same rows result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.backends.cassandra.layout import bucket_of, content_of, group_values, pk_of, private_values
from pixiu.backends.cassandra.link import TIMELINES
from pixiu.model.ids import snowflake_time_ms
from pixiu.model.timeline import GroupRow, PrivateRow, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pixiu.backends.cassandra.layout import Layout

__all__ = ["GROUP", "PRIVATE", "Drop", "Job", "Write"]

PRIVATE, GROUP = 0, 1
"""Kinds of owners, in ``pixiu_bucket``."""

LARGE_BYTES = 16_384
"""A body beyond this is written row by row: Cassandra refuses batches of more than 50 KiB."""

BATCH_BYTES = 4_096
"""What messages that share a batch come to: Cassandra warns of batches of more than 5 KiB."""

ROW_BYTES = 100
"""What a statement takes beside a body, about."""

Write = list[tuple[str, tuple[object, ...]]]
"""Statements by name, with their values: one alone, or several as one logged batch."""

_BESIDE = ("put_topic", "put_prev")


@dataclass(frozen=True, slots=True)
class Drop:
    """An owner's rows through an id go."""

    kind: int
    owner: int
    through: int
    peers: tuple[int, ...] = ()
    """Whose conversations they are of, if private."""
    buckets: tuple[int, ...] = ()


@dataclass(slots=True)
class Job:
    """One commit. Nothing in it changes any more: it is read by another thread."""

    number: int
    """They rise."""
    highest: int
    """No message id is above this; 0 if that was written before."""
    position: int
    """The event id that the lane has reached; 0 if it has not moved."""
    private: list[tuple[int, PrivateRow, bool]]
    """User, row, and whether all of it is new."""
    group: list[tuple[int, GroupRow, bool]]
    bodies: Mapping[int, bytes]
    drops: list[Drop]
    buckets: list[tuple[int, int, int]] = field(default_factory=list)
    """Kind, owner and bucket of those that are new."""

    @property
    def rows(self) -> int:
        """How many it writes."""
        return len(self.private) + len(self.group)

    def phases(self, layout: Layout) -> Iterator[list[Write]]:
        """Each is sent when the one before is acknowledged."""
        first: list[Write] = [[("put_bucket", each)] for each in self.buckets]
        if self.highest:
            first.append([("rise", (TIMELINES, self.highest))])
        rows: list[Write] = []
        room = 0
        for message_id, parts in [*self._private_rows(layout), *self._group_rows(layout)]:
            size = len(self.bodies.get(message_id, b""))
            if size > LARGE_BYTES:  # what is beside a row comes before it: who finds the row takes it for all
                first += [[part] for part in parts if part[0] in _BESIDE]
                rows += [[part] for part in parts if part[0] not in _BESIDE]
                room = 0
                continue
            needed = len(parts) * ROW_BYTES + sum(size for name, _ in parts if name not in _BESIDE)
            if needed <= room:
                rows[-1] += parts
                room -= needed
            else:
                rows.append(parts)
                room = BATCH_BYTES - needed
        yield first
        yield rows
        if self.drops:
            yield from self._removals(layout)
        if self.position:
            yield [[("reach", (TIMELINES, self.position, layout.name))]]

    def _private_rows(self, layout: Layout) -> Iterator[tuple[int, Write]]:
        """What one message writes at its sides is one batch."""
        by_message: dict[int, Write] = {}
        for user, row, is_new in self.private:
            message_id, peer, incoming, state, delivered_at, read_at = row
            parts = by_message.setdefault(message_id, [])
            key = layout.key(user, message_id)
            if is_new:
                values = private_values(row, content_of(message_id, self.bodies.get(message_id)))
                parts.append(("put_private", (*key, message_id, *values)))
                topic = (pk_of(user), user, peer, message_id, int(incoming), state, delivered_at, read_at)
                parts.append(("put_topic", topic))
                continue
            if state == State.RECALLED:
                wiped = (state, snowflake_time_ms(message_id), delivered_at, read_at)
                parts.append(("recall_private", (*wiped, *key, message_id)))
            else:
                parts.append(("mark_private", (state, delivered_at, read_at, *key, message_id)))
            parts.append(("mark_topic", (state, delivered_at, read_at, pk_of(user), user, peer, message_id)))
        return iter(by_message.items())

    def _group_rows(self, layout: Layout) -> Iterator[tuple[int, Write]]:
        """One row, whatever the number of members."""
        for group, row, is_new in self.group:
            message_id = row.message_id
            key = layout.key(group, message_id)
            if not is_new:
                yield message_id, [("recall_group", (row.state, snowflake_time_ms(message_id), *key, message_id))]
                continue
            values = group_values(row, content_of(message_id, self.bodies.get(message_id)))
            if layout.has_prev_table:
                prev = ("put_prev", (pk_of(group), group, message_id, row.previous))
                yield message_id, [("put_group", (*key, message_id, *values)), prev]
            else:
                yield message_id, [("put_group", (*key, message_id, *values, row.previous))]

    def _removals(self, layout: Layout) -> Iterator[list[Write]]:
        """What is found through another table goes before that one, so that a second attempt finds it, too."""
        beside: list[Write] = []
        rows: list[Write] = []
        buckets: list[Write] = []
        for drop in self.drops:
            pk, owner, through = pk_of(drop.owner), drop.owner, drop.through
            beside += [[("drop_topic", (pk, owner, peer, through))] for peer in drop.peers]
            if drop.kind == GROUP and layout.has_prev_table:
                beside.append([("drop_prev", (pk, owner, through))])
            name = "drop_private" if drop.kind == PRIVATE else "drop_group"
            if layout.is_bucketed:
                rows += [[(name, (pk, owner, bucket, through))] for bucket in drop.buckets]
                buckets.append([("drop_buckets", (drop.kind, owner, bucket_of(through)))])
            else:
                rows.append([(name, (pk, owner, through))])
        yield beside
        yield rows
        yield buckets
