"""``Timelines`` on Cassandra: an overlay of what is not written yet, and pages that merge it with the tables.

Writes are seen at once. ``commit`` hands what has changed to a thread that sends it, and returns: the loop does not
wait for Cassandra. ``applied`` is what was acknowledged. Until then a row stays in the overlay, which is bounded:
beyond that, or while Cassandra does not answer, a write is refused with ``Unavailable`` and its lane stays before the
record.

There is one writer of a keyspace, the carrier of one log. So rows that were just written can be kept in memory, and a
message id above the highest that was ever sent is new without a look at the tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pixiu.backends.cassandra.job import GROUP, PRIVATE, Drop, Job
from pixiu.backends.cassandra.layout import ID_MAX, Layout, bucket_of, pk_of
from pixiu.backends.cassandra.link import TIMELINES, Link
from pixiu.backends.cassandra.pending import Pending
from pixiu.backends.cassandra.sender import Sender
from pixiu.backends.memory.timelines import with_receipts
from pixiu.model.errors import Unavailable
from pixiu.model.timeline import GroupRow, PrivateRow, State
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pixiu.backends.cassandra.address import Address

__all__ = ["FAR", "CassandraTimelines"]

FAR = 2**63 - 1
"""How far the lanes are of which nothing is kept here."""
WAITING_MAX = 100_000
"""Rows in the overlay, sent or not. Beyond this writes are refused until some are acknowledged."""
CHANGE_BYTES = 300
"""About what a change takes, for who asks how much a commit writes."""
KNOWN_MAX = 20_000
"""Rows that were written or read last, in memory: a receipt follows its message within seconds."""
BUCKETS_MAX = 100_000
FLUSH_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
_LIMIT_MAX = 2**31 - 1


class CassandraTimelines:
    """Every timeline, and how far their lane is in the tables. A ``Part`` of ``MixedStores``."""

    def __init__(
        self,
        address: Address,
        bodies_of: Callable[[Iterable[int]], Mapping[int, bytes]],
        *,
        is_patient: bool = False,
    ) -> None:
        """``bodies_of`` gives the content that rows get. A patient one waits where others refuse: for rebuilds."""
        self._layout = Layout(address.layout)
        self.link = Link(address, self._layout)
        self._bodies_of = bodies_of
        self.is_patient = is_patient
        try:
            position, highest = self._read_position()
        except BaseException:
            self.link.close()
            raise
        self.has_position = position is not None
        """Was anything ever committed here?"""
        self.sender = Sender(self.link, position or 0)
        self._forget(position or 0, highest)

    def _read_position(self) -> tuple[int | None, int]:
        rows = self.link.read("position", TIMELINES)
        return (rows[0][0], rows[0][1] or 0) if rows else (None, 0)

    def _forget(self, position: int, highest: int) -> None:
        self._sent_position = position
        self._high = highest
        self._number = self.sender.done + 1
        self._jobs: list[Job] = []
        self._private: Pending[PrivateRow] = Pending()
        self._group: Pending[GroupRow] = Pending()
        self._known: dict[tuple[int, int], PrivateRow] = {}
        self._buckets: dict[tuple[int, int], list[int]] = {}

    # As a part of the stores.

    def applied(self, lane: Lane) -> int:
        """The event id that was acknowledged; of a lane that has nothing here, no bound."""
        return self.sender.position if lane is Lane.TIMELINES else FAR

    def problems(self) -> list[str]:
        """Why it is not asked now. What is written behind has nobody else to tell."""
        return [f"{TIMELINES}: {self.link.problem}"] if self.link.problem else []

    def begin_again(self) -> None:
        """What Cassandra has acknowledged it keeps."""

    @property
    def pending_bytes(self) -> int:
        """About how much a commit would send."""
        return (len(self._private.changed) + len(self._group.changed)) * CHANGE_BYTES

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Send what has changed, with the lane's event id. Raises ``Unavailable``; then the next one takes it along."""
        self._collect()
        if not self.is_patient:
            self.link.check()
        position = applied.get(Lane.TIMELINES, 0)
        is_moved = position != self._sent_position and position > 0
        private, group = self._private, self._group
        if not (private.changed or group.changed or private.new_drops or group.new_drops or is_moved):
            return
        said = [(user, *private.change(user, each)) for user, each in private.changed]
        said_in_groups = [(owner, *group.change(owner, each)) for owner, each in group.changed]
        new = {row.message_id for _, row, is_new in said if is_new}
        new.update(row.message_id for _, row, is_new in said_in_groups if is_new)
        bodies = self._bodies_of(new) if new else {}
        if len(bodies) < len(new) and applied.get(Lane.INBOXES, FAR) < position:
            raise Unavailable(f"inboxes are at event {applied[Lane.INBOXES]}, and rows up to {position} need bodies")
        highest = max(new, default=0)
        job = Job(
            self._number, highest if highest > self._high else 0, position if is_moved else 0,
            said, said_in_groups, bodies, [*private.new_drops, *group.new_drops],
        )  # fmt: skip
        if self._layout.is_bucketed:
            self._note_buckets(job)
        self._high = max(self._high, highest)
        self._sent_position = position or self._sent_position
        private.sent(self._number)
        group.sent(self._number)
        self._number += 1
        self._jobs.append(job)
        self.sender.send(job)
        if self.is_patient:
            self._wait(job.number - 1)

    def flush(self) -> None:
        """Return when everything that was committed is acknowledged. Raises ``Unavailable``."""
        self._wait(self._number - 1)

    def close(self) -> None:
        """Let go, without a commit."""
        self.sender.close()
        self.link.close()

    def clear(self) -> None:
        """Remove every row, to begin anew. Raises ``Unavailable``."""
        self.flush()
        self.link.clear()
        self.sender.forget()
        self._forget(0, 0)
        self.has_position = False

    def _wait(self, number: int) -> None:
        seconds = PATIENCE_SECONDS if self.is_patient else FLUSH_SECONDS
        if not self.sender.wait(number, seconds):
            raise Unavailable(self.link.problem or f"{self.link.address}: commits are still being written")
        self._collect()

    def _collect(self) -> None:
        """What was acknowledged leaves the overlay."""
        done = self.sender.done
        while self._jobs and self._jobs[0].number <= done:
            job = self._jobs.pop(0)
            for user, row, _ in job.private:
                if self._private.written(user, row.message_id, job.number):
                    self._know(user, row)
            for group, in_group, _ in job.group:
                self._group.written(group, in_group.message_id, job.number)
            for drop in job.drops:
                (self._private if drop.kind == PRIVATE else self._group).dropped(drop)

    def _check_room(self) -> None:
        """Raise ``Unavailable`` if a write would have to wait too long."""
        if self.is_patient:
            return
        self.link.check()
        if self._private.count + self._group.count >= WAITING_MAX:
            self._collect()
            if self._private.count + self._group.count >= WAITING_MAX:
                raise Unavailable(f"{self.link.address}: {WAITING_MAX} rows wait to be written", retry_after_ms=1000)

    def _know(self, user: int, row: PrivateRow) -> None:
        known = self._known
        known[user, row.message_id] = row
        if len(known) > KNOWN_MAX:
            del known[next(iter(known))]

    # Writes.

    def load_private(self, user: int, row: PrivateRow) -> None:
        """Write a row, as it is now, into tables that had none: nobody looks whether it is there."""
        self._private.put(user, row.message_id, row, is_new=True)

    def load_group(self, group: int, row: GroupRow) -> None:
        """The same for a group message."""
        self._group.put(group, row.message_id, row, is_new=True)

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write one side of a private message; writing it again changes nothing."""
        if self._private.get(user, row.message_id) is None:
            self._check_room()
            is_new = row.message_id > self._high
            if not self._private.hides(user, row.message_id) and (is_new or self._find_private(user, row[0]) is None):
                self._private.put(user, row.message_id, row, is_new=True)

    def put_group(self, group: int, row: GroupRow) -> None:
        """Write a group message; writing it again changes nothing."""
        message_id = row.message_id
        if self._group.get(group, message_id) is None:
            self._check_room()
            is_new = message_id > self._high
            if not self._group.hides(group, message_id) and (is_new or self._find_group(group, message_id) is None):
                self._group.put(group, message_id, row, is_new=True)

    def mark(self, user: int, message_id: int, *, delivered_at: int = 0, read_at: int = 0) -> bool:
        """Note receipts in a user's row, if it exists. True if anything changed."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        marked = with_receipts(row, delivered_at, read_at)
        if marked == row:
            return False
        self._check_room()
        self._private.put(user, message_id, marked, is_new=False)
        return True

    def recall_private(self, user: int, message_id: int) -> bool:
        """Mark one side as recalled, for good. False if there is no such row."""
        row = self.private_row(user, message_id)
        if row is None:
            return False
        if row.state != State.RECALLED:
            self._check_room()
            self._private.put(user, message_id, row._replace(state=int(State.RECALLED)), is_new=False)
        return True

    def recall_group(self, group: int, message_id: int) -> bool:
        """Mark a group message as recalled, for good. False if there is no such row."""
        row = self.group_row(group, message_id)
        if row is None:
            return False
        if row.state != State.RECALLED:
            self._check_room()
            self._group.put(group, message_id, replace(row, state=int(State.RECALLED)), is_new=False)
        return True

    def drop_private(self, user: int, *, through: int) -> list[int]:
        """Remove a user's rows through here; returns their message ids."""
        rows = self.private_forward(user, through=through, limit=_LIMIT_MAX)
        if rows:
            buckets = self._buckets_with(PRIVATE, user, through, (row.message_id for row in rows))
            self._private.drop(Drop(PRIVATE, user, through, tuple({row.peer for row in rows}), buckets))
            self._known = {key: row for key, row in self._known.items() if key[0] != user}
        return [row.message_id for row in rows]

    def drop_group(self, group: int, *, through: int) -> list[int]:
        """Remove a group's rows through here; returns their message ids."""
        rows = self._group_page(group, 0, through + 1, _LIMIT_MAX, is_back=False)
        if rows:
            buckets = self._buckets_with(GROUP, group, through, (row.message_id for row in rows))
            self._group.drop(Drop(GROUP, group, through, (), buckets))
        return [row.message_id for row in rows]

    # Reads.

    def private_row(self, user: int, message_id: int) -> PrivateRow | None:
        """One side of a private message."""
        return self._private.get(user, message_id) or self._find_private(user, message_id)

    def _find_private(self, user: int, message_id: int) -> PrivateRow | None:
        if not 0 < message_id <= self._high or self._private.hides(user, message_id):
            return None
        row = self._known.get((user, message_id))
        if row is None:
            rows = self._stored_private(user, message_id - 1, message_id + 1, 1, None, is_back=False)
            row = rows[0] if rows else None
            if row is not None:
                self._know(user, row)
        return row

    def group_row(self, group: int, message_id: int) -> GroupRow | None:
        """One group message."""
        return self._group.get(group, message_id) or self._find_group(group, message_id)

    def _find_group(self, group: int, message_id: int) -> GroupRow | None:
        if not 0 < message_id <= self._high or self._group.hides(group, message_id):
            return None
        rows = self._stored_group(group, message_id - 1, message_id + 1, 1, is_back=False)
        return rows[0] if rows else None

    def private_forward(
        self, user: int, *, after: int = 0, through: int | None = None, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Rising, behind ``after``; with ``through``, not beyond it."""
        end = ID_MAX if through is None else through + 1
        return self._private_page(user, after, end, limit, peer, is_back=False)

    def private_backward(
        self, user: int, *, before: int | None = None, down_to: int = 0, limit: int = 100, peer: int | None = None
    ) -> list[PrivateRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        return self._private_page(user, down_to, ID_MAX if before is None else before, limit, peer, is_back=True)

    def _private_page(
        self, user: int, after: int, before: int, limit: int, peer: int | None, *, is_back: bool
    ) -> list[PrivateRow]:
        after, before, limit = max(after, self._private.hidden(user)), min(before, ID_MAX), min(limit, _LIMIT_MAX)
        if limit <= 0 or before - after < 2:
            return []
        stored: list[PrivateRow] = []
        if after < self._high:
            stored = self._stored_private(user, after, before, limit, peer, is_back=is_back)
        found = {row.message_id: row for row in stored}
        pending = self._private.between(user, after, before)
        found.update((each, row) for each, row in pending if peer is None or row.peer == peer)
        return [found[message_id] for message_id in sorted(found, reverse=is_back)[:limit]]

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        """Rising, behind ``after``."""
        return self._group_page(group, after, ID_MAX, limit, is_back=False)

    def group_backward(
        self, group: int, *, before: int | None = None, down_to: int = 0, limit: int = 100
    ) -> list[GroupRow]:
        """Falling, from the newest or from below ``before``, never at or below ``down_to``."""
        return self._group_page(group, down_to, ID_MAX if before is None else before, limit, is_back=True)

    def _group_page(self, group: int, after: int, before: int, limit: int, *, is_back: bool) -> list[GroupRow]:
        after, before, limit = max(after, self._group.hidden(group)), min(before, ID_MAX), min(limit, _LIMIT_MAX)
        if limit <= 0 or before - after < 2:
            return []
        stored: list[GroupRow] = []
        if after < self._high:
            stored = self._stored_group(group, after, before, limit, is_back=is_back)
        found = {row.message_id: row for row in stored}
        found.update(self._group.between(group, after, before))
        return [found[message_id] for message_id in sorted(found, reverse=is_back)[:limit]]

    # The tables.

    def _stored_private(
        self, user: int, after: int, before: int, limit: int, peer: int | None, *, is_back: bool
    ) -> list[PrivateRow]:
        pk, suffix = pk_of(user), "_back" if is_back else ""
        if peer is not None:
            rows = self.link.read(f"topic{suffix}", pk, user, peer, after, before, limit)
            return [PrivateRow(row[0], peer, bool(row[1]), row[2], row[3], row[4]) for row in rows]
        found: list[PrivateRow] = []
        for key in self._keys(PRIVATE, user, after, before, is_back=is_back):
            for row in self.link.read(f"pchat{suffix}", *key, after, before, limit - len(found)):
                message_id, uid2, io, st, tm1, tm2 = row
                found.append(PrivateRow(message_id, uid2, bool(io), st or 0, tm1 or 0, tm2 or 0))
            if len(found) >= limit:
                break
        return found

    def _stored_group(self, group: int, after: int, before: int, limit: int, *, is_back: bool) -> list[GroupRow]:
        suffix = "_back" if is_back else ""
        if self._layout.has_prev_table:
            values = (pk_of(group), group, after, before, limit)
            rows, beside = self.link.read_both((f"gchat{suffix}", values), (f"prev{suffix}", values))
            previous = dict(beside)
            return [GroupRow(row[0], row[1], previous.get(row[0], 0), row[2] or 0) for row in rows]
        found: list[GroupRow] = []
        for key in self._keys(GROUP, group, after, before, is_back=is_back):
            rows = self.link.read(f"gchat{suffix}", *key, after, before, limit - len(found))
            found += [GroupRow(row[0], row[1], row[3] or 0, row[2] or 0) for row in rows]
            if len(found) >= limit:
                break
        return found

    # Buckets.

    def _keys(self, kind: int, owner: int, after: int, before: int, *, is_back: bool) -> list[tuple[int, ...]]:
        """The partitions that may hold these ids, in the order of the page."""
        if not self._layout.is_bucketed:
            return [(pk_of(owner), owner)]
        buckets = self._buckets_of(kind, owner, after, before)
        return [(pk_of(owner), owner, bucket) for bucket in (reversed(buckets) if is_back else buckets)]

    def _buckets_of(self, kind: int, owner: int, after: int, before: int) -> list[int]:
        if not self._layout.is_bucketed:
            return []
        buckets = self._buckets.get((kind, owner))
        if buckets is None:
            found = {row[0] for row in self.link.read("buckets", kind, owner)}
            pending = self._private if kind == PRIVATE else self._group  # on their way, so the table may lack them
            buckets = sorted(found.union(bucket_of(each) for each, _ in pending.between(owner, 0, ID_MAX)))
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.clear()
            self._buckets[kind, owner] = buckets
        low, high = bucket_of(after), bucket_of(before)
        return [bucket for bucket in buckets if low <= bucket <= high]

    def _buckets_with(self, kind: int, owner: int, through: int, message_ids: Iterable[int]) -> tuple[int, ...]:
        """The buckets through an id, with those of rows that no commit has seen."""
        if not self._layout.is_bucketed:
            return ()
        return tuple(sorted({*self._buckets_of(kind, owner, 0, through + 1), *map(bucket_of, message_ids)}))

    def _note_buckets(self, job: Job) -> None:
        """Rows in a bucket that nobody knows of would not be found."""
        new: set[tuple[int, int, int]] = set()
        for user, row, is_new in job.private:
            if is_new:
                new.add((PRIVATE, user, bucket_of(row.message_id)))
        for group, in_group, is_new in job.group:
            if is_new:
                new.add((GROUP, group, bucket_of(in_group.message_id)))
        for kind, owner, bucket in sorted(new):
            known = self._buckets.get((kind, owner))
            if known is None or bucket not in known:
                job.buckets.append((kind, owner, bucket))
                if known is not None:
                    known.append(bucket)
                    known.sort()
