"""Damaged records are fetched from the leader, and written again: as many at a time as one piece of a feed has.

It asks as an applier does (Feed), so it needs the cluster's key, and a leader that can read the record. Until that is
so, it asks again now and then; meanwhile others lead, where they can.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.follow import FramesSent
from pixiu.machines.queue_wire.requests import encode_feed
from pixiu.machines.queue_wire.streams import Refused
from pixiu.model.errors import PixiuError
from pixiu.queue.log import topic_messages
from pixiu.queue.replication.leader_link import LeaderLink, Losses
from pixiu.queue.storage.mending import Mended, mend

if TYPE_CHECKING:
    from pixiu.ports.scheduler import Timer
    from pixiu.ports.transport import Links
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.driver import Replication
    from pixiu.queue.replication.smss_follower import SmssFollower
    from pixiu.queue.storage.journal_check import JournalCheck

__all__ = ["Mending"]

log = logging.getLogger(__name__)

FIRST_MS = 1_000
"""A leader that hands over needs a moment."""
AGAIN_MS = 30_000


class Mending:
    """Mends what the look through the journal finds, one place after the other."""

    def __init__(
        self, engine: Engine, replication: Replication | SmssFollower, links: Links, check: JournalCheck
    ) -> None:
        self._engine = engine
        self._replication = replication
        self._links = links
        self._check = check
        self._link: LeaderLink | None = None
        self._session = 0
        self._timer: Timer | None = None
        self._said = ""
        self.losses = Losses()
        check.when_found = self._found

    def stop(self) -> None:
        """Ask nobody any more."""
        self._hang_up()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _found(self) -> None:
        self._replication.note_damage(is_damaged=True)
        self._timer = self._engine.scheduler.after(FIRST_MS, self._ask)

    def _ask(self) -> None:
        """Ask the leader for the record, or let another one lead; look again later, whatever comes of it."""
        self._hang_up()
        wound, address = self._check.wound, self._replication.leader_address
        self._timer = self._engine.scheduler.after(AGAIN_MS, self._ask)
        if not address:
            self._replication.step_down()
        elif wound is not None:
            self._session += 1
            request = encode_feed(after=wound.event_id - 1)
            self._link = LeaderLink(self, self._session, request, self._engine.leader_key)
            self._link.open(self._links, address)

    def leader_said(self, session: int, event: object) -> None:
        """The first frames that come begin with the record."""
        if session != self._session:
            return
        if isinstance(event, Refused):
            self._not_mended(event.text)
        elif isinstance(event, FramesSent) and event.frames:
            self._mend(event.frames)

    def leader_lost(self, session: int, reason: str) -> None:
        """It is asked again later."""
        if session == self._session:
            self._not_mended(reason)

    def _mend(self, frames: bytes) -> None:
        wound = self._check.wound
        if wound is None:
            return
        try:
            mended = mend(self._engine.journal, wound, frames, self._known)
        except OSError as error:
            mended = Mended(0, str(error))
        if not mended.records:
            self._not_mended(mended.reason)
            return
        self.stop()
        log.warning(
            "damaged records were mended with the leader's copies",
            extra={
                "file": wound.path, "position": wound.position, "event_id": wound.event_id, "records": mended.records,
            },
        )  # fmt: skip
        self._said = ""
        self._replication.note_damage(is_damaged=False)
        self._check.mended(mended.records)

    def _known(self, topic: bytes, first: int, count: int) -> list[bytes]:
        """What a topic's own log has of these events, which its checksums prove."""
        live = self._engine.topics.get(topic)
        if live is None or live.create_event_id >= first:
            return []
        try:
            rows = topic_messages(self._engine.topics.log_of(live), first - 1, count)
        except (PixiuError, OSError):
            return []
        is_whole = [row.event_id for row in rows] == list(range(first, first + count))
        return [row.message for row in rows] if is_whole else []

    def _not_mended(self, reason: str) -> None:
        """Said once for each reason: it is tried twice a minute."""
        self._hang_up()
        if reason != self._said:
            self._said = reason
            log.warning("a damaged record was not mended", extra={"reason": reason})

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
