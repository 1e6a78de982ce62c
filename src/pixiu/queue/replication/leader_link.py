"""A follower's side of the stream: the connection to its leader, and what arrives on it."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Protocol

from pixiu.machines import replication as machine
from pixiu.machines.queue_wire.commands import KEY_NEEDED, WRONG_KEY
from pixiu.machines.queue_wire.follow import FollowReader
from pixiu.machines.queue_wire.proof import NONCE_BYTES, Prover
from pixiu.machines.queue_wire.streams import Refused
from pixiu.machines.replication import EpochStart
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from pixiu.ports.transport import Link, Links
    from pixiu.queue.replication.copies import Copy

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 3000


class Losses:
    """Says once why the leader is gone, until that changes or it was there again: it is tried every other second."""

    def __init__(self) -> None:
        self._said = ""

    def note(self, reason: str) -> None:
        """The stream has ended, or never began."""
        is_known, self._said = reason == self._said, reason
        if WRONG_KEY in reason or KEY_NEEDED in reason:  # that does not pass by itself
            words = "the leader does not accept this node's key: give both the same --secret-file"
            log.log(logging.DEBUG if is_known else logging.WARNING, words, extra={"reason": reason})
        else:
            log.log(logging.DEBUG if is_known else logging.INFO, "leader lost", extra={"reason": reason})

    def heard(self) -> None:
        """The leader is there: the next loss is news."""
        self._said = ""


class Hearer(Protocol):
    """Whoever reads what a leader sends."""

    losses: Losses

    def leader_said(self, session: int, event: object) -> None:
        """One message of the stream."""
        ...

    def leader_lost(self, session: int, reason: str) -> None:
        """The stream is over."""
        ...


class LeaderLink:
    """The connection to the leader of one session."""

    def __init__(self, hearer: Hearer, session: int, request: bytes, key: bytes = b"") -> None:
        """``key`` is shown to the leader, which has to show it, too."""
        self._hearer = hearer
        self.session = session
        self._request = request
        self._reader = FollowReader()
        self._prover = new_prover(key)
        self._link: Link | None = None
        self._is_closed = False

    def open(self, links: Links, address: str) -> None:
        """Begin."""
        self._link = links.connect(address, self, timeout_ms=CONNECT_TIMEOUT_MS)

    def opened(self, link: Link) -> None:
        """Ask to follow, once both ends have shown the key."""
        link.write(self._request if self._prover is None else self._prover.start())

    def received(self, data: bytes) -> None:
        """The leader's stream."""
        try:
            if self._prover is not None:
                self.write(self._prover.receive(data))
                if self._prover.is_done:
                    self._prover = None
                    self.write(self._request)
                return
            events = self._reader.receive(data)
        except PixiuError as error:
            self.close()
            self._hearer.leader_lost(self.session, str(error))
            return
        for event in events:
            if not isinstance(event, Refused):
                self._hearer.losses.heard()
            if not self._is_closed:
                self._hearer.leader_said(self.session, event)

    def lost(self, reason: str) -> None:
        """The connection is gone, or never was."""
        if not self._is_closed:
            self._is_closed = True
            self._hearer.leader_lost(self.session, reason)

    def write(self, data: bytes) -> None:
        """Tell the leader something."""
        if self._link is not None and data:
            self._link.write(data)

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()


def new_prover(key: bytes) -> Prover | None:
    """For a connection that shows a key first; None without one."""
    return Prover(key, secrets.token_bytes(NONCE_BYTES)) if key else None


def arrival(
    session: int, copies: list[Copy], commit_event_id: int, epoch: int, stamp_ms: int = -1
) -> machine.FramesArrived:
    """What the machine has to know of records that came. Raises ``ValueError`` if one does not follow the other."""
    first = through = 0
    epochs: list[EpochStart] = []
    for _, frame, record, _ in copies:
        event_id = record.event_id
        if first == 0:
            first, through = event_id, event_id - 1
        if event_id != through + 1:
            raise ValueError(f"event {event_id} follows {through}")
        if frame.epoch != epoch:
            epoch = frame.epoch
            epochs.append(EpochStart(epoch, event_id))
        through = event_id + frame.count - 1
    return machine.FramesArrived(session, first, through, tuple(epochs), commit_event_id, stamp_ms)
