"""A follower's side of the stream: the connection to its leader, and what arrives on it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines import replication as machine
from pixiu.machines.queue_wire.follow import FollowReader
from pixiu.machines.replication import EpochStart
from pixiu.model.errors import PixiuError
from pixiu.queue.record import read_frames

if TYPE_CHECKING:
    from pixiu.ports.transport import Link, Links
    from pixiu.queue.replication import Replication

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 3000


class LeaderLink:
    """The connection to the leader of one session."""

    def __init__(self, replication: Replication, session: int, request: bytes) -> None:
        self._replication = replication
        self.session = session
        self._request = request
        self._reader = FollowReader()
        self._link: Link | None = None
        self._is_closed = False

    def open(self, links: Links, address: str) -> None:
        """Begin."""
        self._link = links.connect(address, self, timeout_ms=CONNECT_TIMEOUT_MS)

    def opened(self, link: Link) -> None:
        """Ask to follow."""
        link.write(self._request)

    def received(self, data: bytes) -> None:
        """The leader's stream."""
        try:
            events = self._reader.receive(data)
        except PixiuError as error:
            self.close()
            self._replication.leader_lost(self.session, str(error))
            return
        for event in events:
            if not self._is_closed:
                self._replication.leader_said(self.session, event)

    def lost(self, reason: str) -> None:
        """The connection is gone, or never was."""
        if not self._is_closed:
            self._is_closed = True
            self._replication.leader_lost(self.session, reason)

    def write(self, data: bytes) -> None:
        """Tell the leader something."""
        if self._link is not None:
            self._link.write(data)

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()


def arrival(session: int, frames: bytes, commit_event_id: int, epoch: int) -> machine.FramesArrived:
    """What the machine has to know of frames that came. Raises ``ValueError`` for bytes that are not whole frames."""
    first = through = 0
    epochs: list[EpochStart] = []
    for _, frame in read_frames(frames):
        event_id = frame.event_id
        if first == 0:
            first, through = event_id, event_id - 1
        if event_id != through + 1:
            raise ValueError(f"event {event_id} follows {through}")
        if frame.epoch != epoch:
            epoch = frame.epoch
            epochs.append(EpochStart(epoch, event_id))
        through = event_id + frame.count - 1
    return machine.FramesArrived(session, first, through, tuple(epochs), commit_event_id)
