"""The three lanes of appliers over one set of stores: for the carrier, rebuilds, audits and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.pixiu_pb2 import Record
from pixiu.ports.stores import Lane, Stores
from pixiu.roles.carrier.apply_inboxes import InboxApplier
from pixiu.roles.carrier.apply_rosters import RosterApplier
from pixiu.roles.carrier.apply_timelines import TimelineApplier
from pixiu.roles.carrier.reached import Limits, Reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.log import LogRecord

    Apply = Callable[[LogRecord, Record], None]

__all__ = ["LANES", "Appliers", "parse"]

LANES = (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES)
"""In the order in which they get a record: who is a member is known before it is asked."""


class Appliers:
    """Deterministic: the same records on empty stores give the same stores, and a record twice is a record once."""

    def __init__(self, stores: Stores, limits: Limits | None = None) -> None:
        """``limits`` apply until a record changes them; a real node starts with the defaults."""
        self.reached = Reached(stores)
        self.rosters = RosterApplier(stores, self.reached)
        self.inboxes = InboxApplier(stores, limits or Limits(), self.reached)
        self.timelines = TimelineApplier(stores, self.reached)
        self.lanes: tuple[tuple[Lane, Apply], ...] = tuple(
            zip(LANES, (self.rosters.apply, self.inboxes.apply, self.timelines.apply), strict=True)
        )

    def apply(self, record: LogRecord, parsed: Record) -> None:
        """Apply one record of ``pixiu.main`` in every lane.

        A lane to which it makes no sense skips it, and leaves the others to theirs; then this raises ``ValueError``.
        """
        problem: ValueError | None = None
        for lane, apply in self.lanes:
            try:
                apply(record, parsed)
            except ValueError as error:
                self.skip(lane, record.event_id)
                problem = problem or error
        if problem is not None:
            raise problem

    def forget_news(self) -> None:
        """Nobody is to be told: drop what was gathered for that."""
        self.rosters.take_removed()
        self.rosters.take_gone()
        self.inboxes.take_arrivals()
        self.inboxes.take_evictions()
        self.timelines.take_marked()
        self.timelines.take_said()

    def skip(self, lane: Lane, event_id: int) -> None:
        """A record that makes no sense counts as applied."""
        setattr(self.reached, lane.value, max(event_id, getattr(self.reached, lane.value)))


def parse(record: LogRecord) -> Record:
    """What a record of ``pixiu.main`` says. Raises protobuf's ``DecodeError``, or ``ValueError``."""
    parsed = Record.FromString(record.payload)
    if not record.message_id and parsed.chat:
        raise ValueError("the record says something, and has no message_id")
    return parsed
