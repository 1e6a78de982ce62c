"""The journal of a leader that runs elsewhere, frame by frame, by the queue's protocol.

The reader asks to follow, as a follower does, and gets journal frames as they are on the server's disk. It never says
that it has made anything durable, so the leader counts on it for nothing: it joins no in-sync set and holds up neither
commits nor retention. Every frame is checked against its CRC by whoever decodes it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.follow import FollowReader, FramesSent, StateTold, TooFarBehind, TruncateTold
from pixiu.machines.queue_wire.requests import encode_follow
from pixiu.machines.queue_wire.streams import Refused
from pixiu.model.errors import Gone, Unavailable
from pixiu.queue.client.keys import show_key_blocking
from pixiu.queue.storage.record import read_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["followed_frames"]

SILENCE_SECONDS = 30.0
RECEIVE_BYTES = 2**20


def followed_frames(server: str, after: int, epoch: int, through: int, *, key: str = "") -> Iterator[bytes]:
    """Whole frames behind the record of ``after``, in pieces, until ``through`` is in one of them.

    ``key`` is shown first, where the leader wants one.
    """
    host, _, port = server.rpartition(":")
    while True:
        known = epoch
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=SILENCE_SECONDS) as connection:
                name = f"reader-{os.getpid()}-{after}".encode()
                request = encode_follow(name, last_event_id=after, last_epoch=epoch if after else 0, highest_epoch=0)
                if key:
                    show_key_blocking(connection, key)
                connection.sendall(request)
                reader = FollowReader()
                while data := connection.recv(RECEIVE_BYTES):
                    for event in reader.receive(data):
                        if isinstance(event, FramesSent) and event.frames:
                            yield event.frames
                            if _last_event_id(event.frames) >= through:
                                return
                        elif isinstance(event, TruncateTold) and event.event_id == after and event.epoch != epoch:
                            epoch = event.epoch
                        elif isinstance(event, TooFarBehind):
                            raise Gone(f"{server} has dropped what came before event {event.oldest_event_id}")
                        elif isinstance(event, Refused):
                            raise Unavailable(f"{server} does not let us follow: {event.text}")
                        elif not isinstance(event, StateTold | FramesSent):
                            raise Unavailable(f"{server} has another history than this reader: {event}")
                    if epoch != known:
                        break
        except OSError as error:
            raise Unavailable(f"cannot read the log of {server}: {error}") from error
        if epoch == known:
            raise Unavailable(f"{server} closed the connection before event {through}")


def _last_event_id(frames: bytes) -> int:
    last = 0
    for _, frame in read_frames(frames):
        last = frame.last_event_id
    return last
