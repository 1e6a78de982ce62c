"""Follows a running smss master by smss's own replica command, in the place of ``Replication``.

The first time it asks for the list of topics: those that were created before the oldest record of the master's binlog
are not in the stream. Then it asks for every record after the newest one that is here, and appends and shows what
comes. The journal says where to go on, so a record is taken once, however often the connection or this process ends.

A lost connection is made again after ``replication.reconnect_ms``. A record that cannot be taken ends it for good: the
reason is in the status and in the log, and the operator decides.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pixiu.machines.queue_wire.commands import CODE_DONE, LIST
from pixiu.machines.queue_wire.requests import encode_list, encode_replica
from pixiu.machines.queue_wire.responses import Kind as AnswerKind
from pixiu.machines.queue_wire.responses import ResponseReader, encode_refused
from pixiu.machines.queue_wire.streams import BATCH_BYTES_MAX_DEFAULT, BlockSent, Refused, ReplicaReader
from pixiu.model.errors import Conflict, PixiuError, ProtocolError
from pixiu.queue.replication.leader_link import CONNECT_TIMEOUT_MS
from pixiu.queue.smss import BaseTopic, SmssIntake, add_base_topics, is_other_log, last_smss_event, refusal_advice
from pixiu.queue.storage.record import first_event_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.scheduler import Timer
    from pixiu.ports.transport import Link, Links
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection

__all__ = ["SmssFollower"]

log = logging.getLogger(__name__)

SILENCE_MS = 40_000
"""smss says that it is alive every 30 s; its own clients give up after 35."""
ACCEPTED_MS = 500
"""smss answers at once if it refuses, and not at all while there is nothing new."""
BLOCK_BYTES_MORE = 4096
"""A block is a payload, its line and, of a delay, 16 bytes."""
NOT_A_LEADER = "this node follows an smss master; stop it and start it without --follow to let it lead"


class SmssFollower:
    """One node that copies an smss master."""

    def __init__(self, engine: Engine, *, name: str, address: str, links: Links) -> None:
        """Raises ``Conflict`` if this directory holds a log that Pixiu has led or copied from Pixiu."""
        if is_other_log(engine):
            raise Conflict(
                f"this directory holds a log of Pixiu's own (epoch {engine.state.epoch}, through event "
                f"{engine.journal.last_event_id}): follow smss with an empty data directory"
            )
        self.name = name
        self._engine = engine
        self._address = address
        self._links = links
        self._link: _SourceLink | None = None
        self._intake: SmssIntake | None = None
        self._timer: Timer | None = None
        self._is_stopped = False
        self._alarm = "not connected yet"
        self._said = ""
        self._is_over = False
        self._heard_us = 0
        self._asked_us = 0
        """When the master was asked for its records on this connection; 0 before."""
        self.when_promoted: Callable[[], object] = lambda: None
        engine.is_leader = False

    # What the node and the commands ask.

    def start(self) -> None:
        """Connect."""
        self._connect()
        self._watch()

    def stop(self) -> None:
        """Copy nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.close()

    @property
    def in_sync_count(self) -> int:
        """Smss does not know its followers."""
        return 0

    @property
    def leader_address(self) -> str:
        """A damaged record cannot be fetched again: smss's stream begins after a record."""
        return ""

    def problems(self) -> list[str]:
        """Why this node does not have everything that the master has."""
        return [self._alarm] if self._alarm else []

    def status(self) -> dict[str, object]:
        """What ``pixiu queue status`` shows."""
        engine = self._engine
        state = "stopped" if self._is_over else "joining" if self._alarm else "following"
        return {
            "name": self.name,
            "role": "follower",
            "state": state,
            "epoch": 0,
            "leader": f"smss://{self._address}",
            "in_sync": [],
            "acknowledge": "smss",
            "last_event_id": engine.journal.last_event_id,
            "commit_event_id": engine.commit_event_id,
            "flushed_event_id": engine.journal.flushed_through,
            "first_event_id": engine.journal.first_event_id,
            "flush": engine.all_settings.journal.flush,
            "followers": [],
            "journal_bytes": engine.journal.size,
            "problem": self._alarm,
        }

    def follow_asked(self, connection: Connection, *_asked: object, has_stamps: bool = False) -> None:
        """A follower of smss has no followers."""
        connection.answer(encode_refused(NOT_A_LEADER))

    def promote(self, connection: Connection, *, force: bool) -> None:
        """A restart without --follow lets it lead."""
        connection.answer(encode_refused(NOT_A_LEADER))

    def why_not_join(self) -> str:
        """It leads no log that a registry could get."""
        return NOT_A_LEADER

    def note_damage(self, *, is_damaged: bool) -> None:
        """The journal check logs and shows it."""

    def step_down(self) -> None:
        """It does not lead."""

    @property
    def block_bytes_max(self) -> int:
        """The longest block that can be taken."""
        return self._engine.settings.payload_bytes_max + BLOCK_BYTES_MORE

    # The stream.

    def _connect(self) -> None:
        self._timer = None
        if not self._is_stopped and not self._is_over:
            self._intake = SmssIntake(self._engine)
            self._heard_us = self._engine.clock.monotonic_us()
            self._link = _SourceLink(self)
            self._link.open(self._links, self._address)

    def _watch(self) -> None:
        if self._is_stopped or self._is_over:
            return
        now_us = self._engine.clock.monotonic_us()
        if self._asked_us and now_us - self._asked_us > ACCEPTED_MS * 1000:
            self.following()
        silent_ms = (now_us - self._heard_us) / 1000
        if self._link is not None and silent_ms > SILENCE_MS:
            self._link.close()
            self.lost(f"nothing came for {SILENCE_MS // 1000} s")
        self._engine.scheduler.after(1000, self._watch)

    def request(self, *, has_list: bool) -> bytes:
        """What to ask now: for the topics if nothing is here and they are not known, else for the records."""
        after = last_smss_event(self._engine)
        if not after and not has_list:
            return encode_list()
        self._asked_us = self._engine.clock.monotonic_us()
        return encode_replica(after=after)

    def heard(self) -> None:
        """The master is there."""
        self._heard_us = self._engine.clock.monotonic_us()

    def following(self) -> None:
        """The stream has begun."""
        if self._alarm:
            log.info("smss_following", extra={"leader": self._address, "after": self._engine.journal.last_event_id})
        self._alarm = self._said = ""

    def take(self, blocks: list[bytes], base: list[BaseTopic]) -> None:
        """Records of the stream; ``base`` are topics that may be older than the first of them."""
        assert self._intake is not None
        try:
            for block in blocks:
                if self._engine.journal.is_empty and not self._intake.last_event_id:
                    first = first_event_id(block)
                    add_base_topics(self._engine, [topic for topic in base if topic.create_event_id < first])
                self._intake.add(block)
            self._intake.commit()
        except OSError as error:  # a full disk, perhaps: what the journal has not is asked for again
            self.lost(f"cannot write: {error}")
        except (PixiuError, ValueError) as error:
            self._end(str(error))
        else:
            self.following()

    def refused(self, text: str) -> None:
        """The master does not give its log."""
        self.lost(f"smss answers {text!r}: {refusal_advice(text)}")

    def lost(self, reason: str) -> None:
        """The connection is gone, or was never made."""
        self._asked_us = 0
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._is_stopped or self._is_over:
            return
        self._alarm = f"cannot follow smss://{self._address}: {reason}"
        if reason != self._said:
            self._said = reason
            log.warning("smss_leader_lost", extra={"leader": self._address, "reason": reason})
        self._timer = self._engine.scheduler.after(self._engine.all_settings.replication.reconnect_ms, self._connect)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._asked_us = 0
        self._alarm = f"stopped following smss://{self._address}: {reason}"
        log.error("smss_follow_stopped", extra={"leader": self._address, "reason": reason})
        if self._link is not None:
            self._link.close()
            self._link = None


class _SourceLink:
    """One connection: perhaps a list of topics, then the stream."""

    def __init__(self, follower: SmssFollower) -> None:
        self._follower = follower
        self._link: Link | None = None
        self._is_closed = False
        self._list: ResponseReader | None = None
        self._base: list[BaseTopic] = []
        self._stream = ReplicaReader(bytes_max=max(BATCH_BYTES_MAX_DEFAULT, follower.block_bytes_max))

    def open(self, links: Links, address: str) -> None:
        """Begin."""
        self._link = links.connect(address, self, timeout_ms=CONNECT_TIMEOUT_MS)

    def opened(self, link: Link) -> None:
        """Ask for the list of topics if nothing is here yet, else for what follows."""
        request = self._follower.request(has_list=False)
        if request[0] == LIST:
            self._list = ResponseReader()
            self._list.expect(AnswerKind.SIZED)
        link.write(request)

    def received(self, data: bytes) -> None:
        """The master's answer."""
        if self._is_closed:
            return
        self._follower.heard()
        try:
            if self._list is not None:
                self._listed(data)
                return
            events = self._stream.receive(data)
        except (ProtocolError, ValueError) as error:
            self._follower.lost(f"not an smss master: {error}")
            return
        self._streamed(events)

    def _listed(self, data: bytes) -> None:
        assert self._list is not None and self._link is not None
        for answer in self._list.receive(data):
            if answer.code != CODE_DONE:
                self._follower.refused(answer.text)
                return
            self._base = [_base_topic(row) for row in json.loads(answer.body or b"[]")]
            self._list = None
            self._link.write(self._follower.request(has_list=True))

    def _streamed(self, events: list[Any]) -> None:
        blocks = [event.block for event in events if isinstance(event, BlockSent)]
        if blocks:
            self._follower.take(blocks, self._base)
        elif events and not isinstance(events[-1], Refused):
            self._follower.following()
        for event in events:
            if isinstance(event, Refused) and not self._is_closed:
                self._follower.refused(event.text)

    def lost(self, reason: str) -> None:
        """The connection is gone, or never was."""
        if not self._is_closed:
            self._is_closed = True
            self._follower.lost(reason)

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()


def _base_topic(row: Any) -> BaseTopic:
    try:
        return BaseTopic(
            row["name"].encode(), int(row["createEventId"]), int(row["createTimeStamp"]), int(row["expireAt"])
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"the list of topics cannot be read: {error!r}") from None
