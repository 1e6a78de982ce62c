"""Fence the former leader of a promoted node: send it a Follow request with the new epoch, and read the answer."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.requests import encode_follow
from pixiu.machines.queue_wire.streams import Refused
from pixiu.machines.replication import FenceAnswered, FenceOutcome
from pixiu.queue.replication.leader_link import LeaderLink, Losses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.replication import Fence
    from pixiu.ports.transport import Links

__all__ = ["FenceRequest"]

log = logging.getLogger(__name__)

DOES_NOT_LEAD = ("fenced", "not the leader")
"""How the refusals of Follow begin that a node sends which no longer leads."""


class FenceRequest:
    """One attempt. ``done`` receives exactly one answer, unless ``close`` comes first."""

    def __init__(self, command: Fence, name: str, key: bytes, done: Callable[[FenceAnswered], object]) -> None:
        self._command = command
        self._done: Callable[[FenceAnswered], object] | None = done
        self.losses = Losses()
        request = encode_follow(
            name.encode(),
            last_event_id=command.last_event_id,
            last_epoch=command.last_epoch,
            highest_epoch=command.epoch,
        )
        self._link = LeaderLink(self, command.attempt, request, key)

    def open(self, links: Links) -> None:
        """Connect to the former leader. Its address is known only if this node was started with --follow."""
        self._link.open(links, self._command.leader)

    def leader_said(self, session: int, event: object) -> None:
        """Read the answer to Follow. A node that accepts the request leads in this epoch or a later one."""
        if not isinstance(event, Refused):
            self._answer(FenceOutcome.UNKNOWN, f"it leads in epoch {self._command.epoch} or a later one")
        elif event.text.startswith(DOES_NOT_LEAD):
            self._answer(FenceOutcome.FENCED, "")
        else:
            self._answer(FenceOutcome.UNKNOWN, event.text)

    def leader_lost(self, session: int, reason: str) -> None:
        """The connection failed or ended without an answer."""
        if ":" not in self._command.leader:
            reason = "its address is unknown: start this node with --follow HOST:PORT"
        is_absent = os.strerror(errno.ECONNREFUSED).lower() in reason.lower()
        self._answer(FenceOutcome.ABSENT if is_absent else FenceOutcome.UNKNOWN, reason)

    def close(self) -> None:
        """Cancel the attempt."""
        self._done = None
        self._link.close()

    def _answer(self, outcome: FenceOutcome, reason: str) -> None:
        done = self._done
        self.close()
        if done is None:
            return
        if outcome is FenceOutcome.FENCED:
            log.info("old_leader_fenced", extra={"leader": self._command.leader, "epoch": self._command.epoch})
        elif self._command.attempt == 1:
            log.warning("old_leader_not_fenced", extra={"leader": self._command.leader, "reason": reason})
        done(FenceAnswered(self._command.attempt, outcome, reason))
