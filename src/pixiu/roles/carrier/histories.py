"""The second half of an audit: is every row of every timeline there, and every body?

The reference knows them as of the cut; the stores go on changing while they are compared. A row that is new behind the
cut lies above the newest of the cut, and is not asked for. One that has gone may have been trimmed or erased
behind the cut; one may not be there yet, since a cut is of the inboxes, and the lane of timelines may be behind. So
whatever differs is only a doubt. When all was compared, or many doubts have come together, the log is read on from
where the reference is to where the stores are by then: what the reference still has, and the stores still have not, is
lost. Without doubts, and mostly there are none, nothing is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import LANES, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pixiu.model.timeline import GroupRow, PrivateRow
    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.ports.timelines import Timelines
    from pixiu.roles.carrier.appliers import Appliers
    from pixiu.roles.carrier.audit import AuditReport

__all__ = ["Histories", "KeptTimelines", "Reference"]

HISTORY_PAGE = 500
"""Rows that are asked for at once."""
HISTORY_TURN = 1000
"""Rows that are compared before others get their turn: some milliseconds."""
PAGE_WORK = 50
"""A page counts as so many: of an engine elsewhere it is a round trip."""
DOUBTS_MAX = 10_000
"""Doubts that are held; then they are settled in between, and the comparison goes on with a newer reference."""
REPLAY_TURN = 200

_IDS = "Q"
_REASONS = {
    "row": "not in the history",
    "ghost": "in the history, and the log has no such row",
    "body": "its body is missing",
}


class KeptTimelines:
    """Timelines that know whose they are, and the ids of each in order: pages of them cost no sorting."""

    def __init__(self, inner: Timelines) -> None:
        self._inner = inner
        self.private: dict[int, array[int]] = {}
        """By user, also those of whom nothing is left."""
        self.groups: dict[int, array[int]] = {}
        self.said = array(_IDS)
        """Every message of the log within the time."""
        self.is_counted = True
        """Is what is written now within the time, and before the cut?"""
        self.private_row = inner.private_row
        self.group_row = inner.group_row
        self.mark = inner.mark
        self.recall_private = inner.recall_private
        self.recall_group = inner.recall_group
        self.private_forward: Callable[..., list[PrivateRow]] = inner.private_forward
        self.private_backward: Callable[..., list[PrivateRow]] = inner.private_backward
        self.group_forward: Callable[..., list[GroupRow]] = inner.group_forward
        self.group_backward: Callable[..., list[GroupRow]] = inner.group_backward

    def put_private(self, user: int, row: PrivateRow) -> None:
        """Write, and keep the id."""
        self._inner.put_private(user, row)
        if self.is_counted:
            _keep(self.private, user, row[0])

    def put_group(self, group: int, row: GroupRow) -> None:
        """Write, and keep the id."""
        self._inner.put_group(group, row)
        if self.is_counted:
            _keep(self.groups, group, row.message_id)

    def drop_private(self, user: int, *, through: int) -> list[int]:
        """Remove rows, and their ids."""
        _drop(self.private, user, through)
        return self._inner.drop_private(user, through=through)

    def drop_group(self, group: int, *, through: int) -> list[int]:
        """Remove rows, and their ids."""
        _drop(self.groups, group, through)
        return self._inner.drop_group(group, through=through)


def _keep(owners: dict[int, array[int]], owner: int, message_id: int) -> None:
    ids = owners.get(owner)
    if ids is None:
        owners[owner] = array(_IDS, (message_id,))
    elif not ids or message_id > ids[-1]:
        ids.append(message_id)
    else:
        place = bisect_left(ids, message_id)
        if ids[place] != message_id:
            ids.insert(place, message_id)


def _drop(owners: dict[int, array[int]], owner: int, through: int) -> None:
    ids = owners.get(owner)
    if ids is not None:
        del ids[: bisect_right(ids, through)]


class Doubt(NamedTuple):
    """Something that differs, for now."""

    what: Literal["row", "ghost", "body"]
    kind: Literal["user", "group", ""]
    owner: int
    message_id: int


class Reference:
    """What the stores of an audit should hold. Made through the cut; goes on behind it where there are doubts."""

    def __init__(self, stores: Stores, kept: KeptTimelines, appliers: Appliers) -> None:
        """``kept`` are the timelines of ``stores``, which ``appliers`` write."""
        self.kept = kept
        self.bodies = stores.bodies
        self._appliers = appliers

    def replay(self, record: LogRecord) -> None:
        """Apply a record that comes after the cut."""
        if record.topic != MAIN:
            return
        try:
            self._appliers.apply(record, parse(record))
        except (DecodeError, ValueError):  # the stores have skipped it, too
            for lane in LANES:
                self._appliers.skip(lane, record.event_id)
        self._appliers.forget_news()


class Histories:
    """Timelines and bodies of stores, against those of an audit's reference."""

    def __init__(self, reference: Reference, stores: Stores, report: AuditReport, *, is_whole: bool = True) -> None:
        """``report`` has the event of the cut, and gets what is found.

        ``is_whole``: what was said first is within the time, so histories are read from their beginning.
        """
        self._reference = reference
        self._stores = stores
        self._report = report
        self._doubts: list[Doubt] = []
        said = reference.kept.said
        self._after = 0 if is_whole else min(said, default=1) - 1
        self._newest = max(said, default=0)
        self.through = report.cut
        """The event that the reference has come to. Whoever has replayed more of the log says so here."""
        reference.kept.is_counted = False

    def comparing(self) -> Iterator[bool]:
        """Compare, a little before each yield.

        True: there are doubts. Before going on, wait until the stores have applied all that is committed by now, and
        replay the log from ``through`` to there.
        """
        work = 0
        for steps in (self._private(), self._groups(), self._bodies()):
            for compared in steps:
                work += PAGE_WORK + compared
                if len(self._doubts) >= DOUBTS_MAX:
                    yield True
                    yield from self._settling()
                elif work >= HISTORY_TURN:
                    work = 0
                    yield False
        if self._doubts:
            yield True
            yield from self._settling()

    def replaying(self, records: Iterable[LogRecord]) -> Iterator[None]:
        """Bring the reference on, a few records before each yield; the books' counts stay as they were at the cut."""
        for count, record in enumerate(records, 1):
            self._reference.replay(record)
            if count % REPLAY_TURN == 0:
                yield

    # Each of these yields how much it has compared, page by page.

    def _private(self) -> Iterator[int]:
        forward, newest = self._stores.timelines.private_forward, self._newest
        for user in list(self._reference.kept.private):
            after = self._after
            while after < newest:
                rows = forward(user, after=after, through=newest, limit=HISTORY_PAGE)
                through = newest if len(rows) < HISTORY_PAGE else rows[-1].message_id
                self._compare("user", user, [row[0] for row in rows], after, through)
                after = through
                yield len(rows)

    def _groups(self) -> Iterator[int]:
        forward, newest = self._stores.timelines.group_forward, self._newest
        for group in list(self._reference.kept.groups):
            after = self._after
            while after < newest:
                ids = [row.message_id for row in forward(group, after=after, limit=HISTORY_PAGE)]
                through = newest if len(ids) < HISTORY_PAGE else ids[-1]
                self._compare("group", group, ids[: bisect_right(ids, newest)], after, through)
                after = through
                yield len(ids)

    def _bodies(self) -> Iterator[int]:
        """In the order of the log, not by whom they are for: each is asked for once, beside its neighbours."""
        said = self._reference.kept.said
        for first in range(0, len(said), HISTORY_PAGE):
            wanted = self._reference.bodies.get(said[first : first + HISTORY_PAGE])
            found = self._stores.bodies.get(wanted)
            if len(found) < len(wanted):
                self._doubts += [Doubt("body", "", 0, each) for each in wanted if each not in found]
            yield len(wanted)

    def _compare(self, kind: Literal["user", "group"], owner: int, ids: list[int], after: int, through: int) -> None:
        kept = (self._reference.kept.private if kind == "user" else self._reference.kept.groups)[owner]
        wanted = kept[bisect_right(kept, after) : bisect_right(kept, through)]
        self._report.histories += len(wanted)
        if array(_IDS, ids) != wanted:
            there, known = set(ids), set(wanted)
            self._doubts += [Doubt("row", kind, owner, each) for each in wanted if each not in there]
            self._doubts += [Doubt("ghost", kind, owner, each) for each in ids if each not in known]

    # What became of doubts.

    def _settling(self) -> Iterator[bool]:
        """What the log behind the cut does not explain, and what is not in its place by now, is named."""
        doubts, self._doubts = self._doubts, []
        for count, doubt in enumerate(doubts, 1):
            if self._is_so(doubt):
                place = {doubt.kind: doubt.owner} if doubt.kind else {}
                name = self._report.double if doubt.what == "ghost" else self._report.lose
                name(**place, message_id=doubt.message_id, reason=_REASONS[doubt.what])
            if count % PAGE_WORK == 0:
                yield False

    def _is_so(self, doubt: Doubt) -> bool:
        what, kind, owner, message_id = doubt
        kept, stored = self._reference.kept, self._stores.timelines
        if what == "body":
            return bool(self._reference.bodies.get([message_id])) and not self._stores.bodies.get([message_id])
        if kind == "group":
            is_known = kept.group_row(owner, message_id) is not None
            is_there = stored.group_row(owner, message_id) is not None
        else:
            is_known = kept.private_row(owner, message_id) is not None
            is_there = stored.private_row(owner, message_id) is not None
        return is_there and not is_known if what == "ghost" else is_known and not is_there
