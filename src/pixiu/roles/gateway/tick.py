"""Once per turn, for all connections: acks go on, messages are encoded once, each socket is written once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import DELETED, MsgChat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.machines.session import Codec, Encoded, Envelope
    from pixiu.model.message import PublicNames
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.gateway.metrics import GatewayCounters

__all__ = ["Tick"]

log = logging.getLogger(__name__)


class Writing(Protocol):
    """Someone with something to write."""

    def flush(self) -> None: ...


class Acking(Protocol):
    """Someone with an ack to pass on."""

    def pass_ack(self) -> None: ...


class Tick:
    """Collects what happens in a turn of the loop, and ends it."""

    def __init__(self, scheduler: Scheduler, names: PublicNames, counters: GatewayCounters) -> None:
        self._scheduler = scheduler
        self._names = names
        self._counters = counters
        self._is_near = False
        self._writing: list[Writing] = []
        self._acking: list[Acking] = []
        # Only of this turn: what a body or a name was in the last one may not be true any more.
        self._messages: dict[tuple[str, int], tuple[bytes, Encoded]] = {}
        self._events: dict[tuple[str, int, int], tuple[Mapping[str, object], bytes]] = {}

    def will_write(self, writing: Writing) -> None:
        """Call ``flush`` at the end of this turn."""
        self._writing.append(writing)
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._end)

    def will_ack(self, acking: Acking) -> None:
        """Call ``pass_ack`` at the end of this turn, before anything is written: acks bring new messages."""
        self._acking.append(acking)
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._end)

    def message(self, codec: Codec, message_id: int, body: bytes) -> Encoded:
        """A message as its codec has it; encoded once for everyone who gets it in this turn."""
        key = (codec.name, message_id)
        found = self._messages.get(key)
        if found is not None and (found[0] is body or found[0] == body):  # a recalled message has another body
            return found[1]
        try:
            encoded = codec.encode_message(body, self._names)
        except DecodeError:
            log.error("body cannot be decoded", extra={"message_id": message_id})
            tombstone = MsgChat(msgId=message_id, status=DELETED).SerializeToString()
            encoded = codec.encode_message(tombstone, self._names)
        self._counters.encodings += 1
        self._messages[key] = (body, encoded)
        return encoded

    def event_frame(self, codec: Codec, envelope: Envelope, event: Mapping[str, object]) -> bytes:
        """An event, ready to be written; the same object is encoded once for everyone who is told in this turn."""
        key = (codec.name, id(envelope), id(event))
        found = self._events.get(key)
        if found is not None:
            return found[1]
        frame = envelope.wrap(codec.event(event))
        self._events[key] = (event, frame)  # holds the event, so that its id stays its own
        return frame

    def _end(self) -> None:
        acking, self._acking = self._acking, []
        for each in acking:
            try:
                each.pass_ack()
            except Exception:  # one connection's trouble is not the others'
                log.exception("an ack could not be passed on")
        self._is_near = False
        self.write_now()
        self._messages.clear()
        self._events.clear()
        if self._acking and not self._is_near:  # asked for while acks were passed on
            self._is_near = True
            self._scheduler.soon(self._end)

    def write_now(self) -> None:
        """Write what has collected: at the end of a turn, or in the middle of one that is long."""
        writing, self._writing = self._writing, []
        for one in writing:
            try:
                one.flush()
            except Exception:
                log.exception("a connection could not be written")
