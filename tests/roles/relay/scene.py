"""A relay with real stores in simulated time, a carrier reduced to its inboxes, and clients that answer or do not."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from pixiu.backends.memory.bodies import MemoryBodies
from pixiu.backends.memory.inboxes import MemoryInboxes
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.config import InboxSettings
from pixiu.machines.delivery import Delivery, Push
from pixiu.model.cursor import Cursors
from pixiu.model.inbox import NEED_ALL, Entry
from pixiu.model.pixiu_pb2 import HIGH, MsgChat, Record
from pixiu.model.wake import Wake
from pixiu.roles.relay import Relay
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pixiu.model.session import Session

__all__ = ["GATEWAY", "Client", "Scene"]

GATEWAY = "gateway-1"


class Client:
    """One device. ``acks_after_ms``: None never acks; 0 acks in the next turn."""

    def __init__(self, scene: Scene, *, acks_after_ms: float | None = 0) -> None:
        self.scene = scene
        self.acks_after_ms = acks_after_ms
        self.pushes: list[Push] = []
        self.frames: list[list[int]] = []
        self.events: list[Mapping[str, object]] = []
        self.held: set[int] = set()
        """The messages it has acked; what was on its way when the connection broke is not among them."""
        self.closed = ""
        self.cursor = 0
        self.session: Session | None = None

    @property
    def session_id(self) -> int:
        assert self.session is not None
        return self.session.session_id

    @property
    def useqs(self) -> list[int]:
        return [push.useq for push in self.pushes]

    @property
    def message_ids(self) -> set[int]:
        """What a person is shown: each message once."""
        return {push.message_id for push in self.pushes}

    def push(self, session_id: int, pushes: list[Push]) -> None:
        assert self.session is not None, "a sink is not called before connect has returned"
        assert not self.closed, "a sink is not called after its close"
        assert session_id == self.session_id
        self.pushes += pushes
        self.frames.append([push.useq for push in pushes])
        self.cursor = max(self.cursor, pushes[-1].useq)
        if self.acks_after_ms is not None:
            through = self.cursor
            self.scene.scheduler.after(self.acks_after_ms, lambda: self._ack(pushes, through))

    def _ack(self, pushes: list[Push], through: int) -> None:
        if not self.closed:
            self.held.update(push.message_id for push in pushes)
            self.scene.relay.ack(self.session_id, through)

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        assert not self.closed
        self.events.append(event)

    def close(self, session_id: int, reason: str) -> None:
        assert session_id == self.session_id
        self.closed = reason


class Scene:
    """Everything around one relay."""

    def __init__(
        self,
        settings: InboxSettings | None = None,
        *,
        ledger_after_ms: int = 0,
        ledger_ms: float = 1,
        make_delivery: Callable[[InboxSettings], Delivery] = Delivery,
        resync_share: float = 0.25,
        sessions: MemorySessions | None = None,
        epoch: int = 0,
    ) -> None:
        self.settings = replace(settings or InboxSettings(), ledger_ms=ledger_after_ms)
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.inboxes = MemoryInboxes()
        self.bodies = MemoryBodies()
        self.sessions = sessions or MemorySessions()
        self.ledgers: list[Record] = []
        self.away: list[tuple[int, dict[str, list[int]]]] = []
        self.kicked_elsewhere: list[tuple[int, str]] = []
        self.ledger_ms = ledger_ms
        self._session_ids = iter(range(1001, 10**9))
        self._message_ids = iter(range(1, 10**9))
        self.make_delivery = make_delivery
        self.resync_share = resync_share
        self.cursors = Cursors(epoch)
        self.relay = self.new_relay()

    def new_relay(self) -> Relay:
        """A relay that has just started: of an earlier one it knows what the stores know."""
        return Relay(
            inboxes=self.inboxes,
            bodies=self.bodies,
            sessions=self.sessions,
            clock=self.clock,
            scheduler=self.scheduler,
            settings=self.settings,
            gateway=GATEWAY,
            write_ledger=self.write_ledger,
            new_session_id=lambda: next(self._session_ids),
            away=self._take_away,
            kick_elsewhere=lambda session, reason: self.kicked_elsewhere.append((session.session_id, reason)),
            make_delivery=self.make_delivery,
            resync_share=self.resync_share,
            cursors=self.cursors,
        )

    def _take_away(self, user: int, entries_by_platform: Mapping[str, Sequence[Entry]]) -> None:
        useqs = {platform: [entry.useq for entry in found] for platform, found in entries_by_platform.items()}
        self.away.append((user, useqs))

    # The log and the carrier.

    def write_ledger(self, payload: bytes) -> None:
        record = Record.FromString(payload)
        self.ledgers.append(record)
        self.scheduler.after(self.ledger_ms, lambda: self.apply(record))

    def apply(self, record: Record) -> None:
        ledger = record.ledger
        for rows in (ledger.expired, ledger.dead):
            for user, platform, first, through in zip(rows.user, rows.platform, rows.first, rows.through, strict=True):
                for entry in self.inboxes.remove(user, ledger.platforms[platform], first, through):
                    self.bodies.release(entry.message_id)
        acked = ledger.acked
        for user, platform, through in zip(acked.user, acked.platform, acked.through, strict=True):
            for entry in self.inboxes.ack(user, ledger.platforms[platform], through):
                self.bodies.release(entry.message_id)

    def rows(self, kind: str) -> list[tuple[int, str, int, int]]:
        """All rows of a kind that were ever written."""
        found = []
        for record in self.ledgers:
            rows = getattr(record.ledger, kind)
            for user, platform, first, through in zip(rows.user, rows.platform, rows.first, rows.through, strict=True):
                found.append((user, record.ledger.platforms[platform], first, through))
        return found

    def store(
        self,
        user: int,
        platform: str = "web",
        *,
        options: int = NEED_ALL,
        session: int = 0,
        age_ms: int = 0,
        has_body: bool = True,
        with_bodies: bool = True,
        message_id: int = 0,
        is_urgent: bool = False,
    ) -> Wake:
        """Write a message to the stores, as the carrier does before it wakes the relay."""
        message_id = message_id or next(self._message_ids)
        body = b"message %d" % message_id
        if is_urgent:
            body = MsgChat(msgId=message_id, priority=HIGH).SerializeToString()
        if has_body:
            self.bodies.put(message_id, body, 1)
        self.inboxes.open(user, platform)
        at = self.clock.now_ms() - age_ms
        useq = self.inboxes.add(
            user, platform, message_id=message_id, event_id=next(self._message_ids), at=at, options=options,
            session=session,
        )  # fmt: skip
        entry = Entry(useq, message_id, 0, at, options, session)
        return Wake(user, platform, useq, [entry], {message_id: body} if with_bodies else None)

    def say(
        self,
        user: int,
        platform: str = "web",
        *,
        options: int = NEED_ALL,
        session: int = 0,
        is_urgent: bool = False,
    ) -> int:
        """Store and wake. Returns the useq."""
        wake = self.store(user, platform, options=options, session=session, is_urgent=is_urgent)
        self.relay.wake([wake])
        return wake.latest

    # Clients.

    def connect(
        self,
        user: int,
        platform: str = "web",
        device: str = "",
        *,
        acks_after_ms: float | None = 0,
        cursor: int = 0,
        client: Client | None = None,
    ) -> Client:
        self.inboxes.open(user, platform)
        client = client or Client(self, acks_after_ms=acks_after_ms)
        client.session = None
        client.session = self.relay.connect(user, platform, device, client, cursor=cursor)
        return client

    def run(self, milliseconds: float = 20) -> None:
        self.scheduler.run_for(milliseconds)

    def waiting(self, user: int, platform: str = "web") -> list[int]:
        return [entry.useq for entry in self.inboxes.after(user, platform, 0, 10**6).entries]

    def check_rows(self, kinds: Sequence[str] = ("acked", "expired", "dead")) -> None:
        """No entry has two ends."""
        ends: dict[tuple[int, str, int], set[str]] = defaultdict(set)
        for kind in kinds:
            for user, platform, first, through in self.rows(kind):
                for useq in range(first, through + 1):
                    ends[user, platform, useq].add(kind)
        assert not {key: kinds for key, kinds in ends.items() if len(kinds) > 1}
