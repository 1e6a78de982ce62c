"""Leader and followers of one queue: the driver around ``machines.replication``.

The machine decides; this performs. Leading, it is told of every group commit and streams the journal's frames, as they
are on disk, to whoever follows. Following, it appends those frames unchanged, flushes, says how far it is, and applies
what is committed. Payloads never pass through the machine. A standalone queue runs the same code: a leader with nobody
to wait for.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from pixiu.machines import replication as machine
from pixiu.machines.queue_wire.commands import FATE_UNKNOWN, FOLLOW_FLAG_STAMPS, LEASE_OVER, NOT_IN_SYNC
from pixiu.machines.queue_wire.follow import FramesSent, StateTold, TooFarBehind, TruncateTold
from pixiu.machines.queue_wire.requests import encode_follow, encode_follow_progress
from pixiu.machines.queue_wire.responses import encode_done, encode_refused
from pixiu.machines.queue_wire.streams import Refused
from pixiu.machines.replication import Replica, State
from pixiu.model.errors import CorruptData, PixiuError
from pixiu.queue.replication.control import FileControl
from pixiu.queue.replication.copies import Copy, Showing, read_copies
from pixiu.queue.replication.fencing import FenceRequest
from pixiu.queue.replication.follow_stream import FollowStream, FollowStreams
from pixiu.queue.replication.joining import Join, among_others, machine_settings, own_record, tick_ms_of, why_not_join
from pixiu.queue.replication.known_leader import KNOWN_LEADER_PATH, KnownLeader
from pixiu.queue.replication.leader_link import CONNECT_TIMEOUT_MS, LeaderLink, Losses, arrival, new_prover
from pixiu.queue.replication.status import log_state_of, problems_of, status_of
from pixiu.queue.storage.snapshot import SnapshotFetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import Links
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.control import ControlSource
    from pixiu.queue.server.connection import Connection

log = logging.getLogger(__name__)

SERVING = (State.LEADING, State.IN_SYNC)
_BEFORE_SHOWING = (machine.Append, machine.SendDurable, machine.Committed)
"""What need not wait until a follower has shown what is committed."""


class Replication:
    """Performs what the replica machine decides."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        follow: str | None,
        links: Links,
        restart: Callable[[], object],
        control: ControlSource | None = None,
        led_epoch: int = 0,
        when_placed: Callable[[], object] = lambda: None,
    ) -> None:
        """With ``control`` the registry's record says who leads; without, the operator does.

        ``led_epoch``: in which this node led a log of its own. ``when_placed`` is told when the registry has placed it.
        """
        self._engine = engine
        self._control = control or FileControl(engine.files)
        self._is_elected = control is not None
        self._links = links
        self._follow = follow
        self._restart = restart
        settings = engine.all_settings.replication
        self._tick_ms = tick_ms_of(settings, is_elected=self._is_elected)
        self._when_placed = when_placed
        self.when_overtaken: Callable[[], object] = when_placed
        self.when_promoted: Callable[[], object] = lambda: None
        """Told when this node begins to follow another."""
        self.when_leading: Callable[[int], object] = lambda _epoch: None
        """Called with the epoch, after the engine leads."""
        self.when_leading_ended: Callable[[str], object] = lambda _reason: None
        """Called with the reason, after the engine leads no longer."""
        self._known = KnownLeader(engine.files) if self._is_elected else None
        self._join: Join | None = None
        self._replica = Replica(
            name, machine_settings(settings, is_elected=self._is_elected), log_state_of(engine), led_epoch=led_epoch
        )
        self._left: Callable[[], object] | None = None
        self._events: deque[machine.Event] = deque()
        self._is_busy = self._is_stopped = self._is_damaged = False
        self._has_followed = follow is not None
        self._lead_from = 0
        self._showing = Showing(engine, lambda: None if self._is_stopped else self._feed(machine.Ticked()))
        self._streams = FollowStreams(engine)
        self._next_session = 1
        self._link: LeaderLink | None = None
        self._fetch: SnapshotFetch | None = None
        self._fence_request: FenceRequest | None = None
        self._arrived: tuple[bytes, list[Copy]] = b"", []
        self._promoting: list[Connection] = []
        self._alarm = ""
        self.losses = Losses()
        engine.flushed_hook = self._flushed
        engine.writer.written_hook, engine.writer.followers = self._streams.written, self._streams
        engine.retention_holds.append(lambda: self._replica.needed_after + 1)
        engine.is_leader = False

    # What the node and the commands ask.

    def start(self) -> None:
        """Find out what this node is."""
        self._control.start(self._control_told)
        known = self._known
        started = machine.Started(self._follow)
        if known is not None:
            started = machine.Started(None, known.name, known.epoch, known.claimed)
        self._feed(started)
        self._tick()

    def why_not_join(self) -> str:
        """Why this node cannot bring its log to a registry now; empty if it can."""
        has_joined = self._is_elected or self._join is not None
        return why_not_join(self._replica.state, has_joined=has_joined, has_followers=bool(self._streams))

    def join(self, control: ControlSource, done: Callable[[str], object]) -> None:
        """Put the log that this node leads under a registry, while it leads; ``done`` is told why not, or nothing."""

        def ended(seen: machine.ControlSeen | None, reason: str) -> None:
            self._join = None
            control.stop() if seen is None else self._joined(control, seen)
            done(reason)

        self._join = Join(control, self._engine, lambda: own_record(self._replica), ended)
        self._join.start()

    def _joined(self, control: ControlSource, seen: machine.ControlSeen) -> None:
        engine = self._engine
        engine.all_settings = replace(engine.all_settings, replication=among_others(engine.all_settings.replication))
        self._control.stop()
        self._control, self._is_elected = control, True
        self._tick_ms = tick_ms_of(engine.all_settings.replication, is_elected=True)
        self._known = KnownLeader(engine.files)
        control.start(self._control_told)
        self._feed(machine.Joined(machine_settings(engine.all_settings.replication, is_elected=True), seen))
        control.leads(self._replica.epoch)
        control.shows_damage(is_damaged=self._is_damaged)

    def leave(self, done: Callable[[], object]) -> None:
        """Hand over what this node leads, then call ``done``: another need not wait for the end of our lease."""
        self._left = done
        self._control.stands("Draining")
        self._feed(machine.LeaveAsked())

    def note_damage(self, *, is_damaged: bool) -> None:
        """This journal has, or has no more, a record that nobody can be given: others shall lead, where they can."""
        self._is_damaged = is_damaged
        self._control.shows_damage(is_damaged=is_damaged)
        self._look_at_others()

    def step_down(self) -> None:
        """Let an in-sync member lead that is not known to be damaged."""
        self._feed(machine.LeaveAsked(stays=True))
        self._look_at_others()

    def _look_at_others(self) -> None:
        """Who leads reads nothing by itself."""
        if self._is_elected:
            self._control.read(self._engine.clock.monotonic_us() // 1000)

    def stop(self) -> None:
        """Say nothing more to anyone."""
        self._is_stopped = True
        if self._join is not None:
            self._join.stop()
        self._control.stop()
        if self._link is not None:
            self._link.close()
        if self._fetch is not None:
            self._fetch.close()
        self._cancel_fencing()

    @property
    def name(self) -> str:
        """This node, as others know it."""
        return self._replica.name

    @property
    def in_sync_count(self) -> int:
        """Members of the in-sync set, as far as this node knows."""
        control = self._replica.control
        return len(control.in_sync) if control is not None else 0

    def holds_lease(self) -> bool:
        """Does this node lead at this moment, so that no other does?"""
        return not self._is_stopped and self._replica.holds_lease(self._engine.clock.monotonic_us() // 1000)

    @property
    def leader_name(self) -> str:
        """The last known leader, or the empty string."""
        return self._replica.leader

    @property
    def leader_address(self) -> str:
        """Where the leader is whom this node follows; empty if it leads, or knows none."""
        leader = self._replica.leader
        return "" if leader in ("", self.name) else self._address_of(leader) or ""

    def problems(self) -> list[str]:
        """Why this node is not ready, as replication sees it."""
        return problems_of(self._replica, self._engine, self._alarm)

    def status(self) -> dict[str, object]:
        """What ``pixiu queue status`` shows."""
        return status_of(self._replica, self._engine, self._streams.values(), self.problems())

    def follow_asked(
        self,
        connection: Connection,
        name: str,
        last_event_id: int,
        last_epoch: int,
        highest_epoch: int,
        *,
        has_stamps: bool = False,
    ) -> None:
        """A follower has connected. ``has_stamps``: it echoes stamps, and so can grant a lease."""
        session = self._next_session
        self._next_session += 1
        heard, gone = self._stream_heard(session), self._stream_gone(session)
        stream = FollowStream(self._engine, connection, name, heard, gone, has_stamps=has_stamps)
        self._streams[session] = stream
        connection.begin_stream(stream)
        self._engine.counters.followers += 1
        self._feed(machine.Trimmed(self._engine.journal.first_event_id))
        own_tail = self._engine.journal.last_event_id
        self._feed(machine.FollowAsked(session, name, last_event_id, last_epoch, highest_epoch, own_tail))

    def promote(self, connection: Connection, *, force: bool) -> None:
        """The operator wants this node to lead."""
        connection.block()
        self._promoting.append(connection)
        self._feed(machine.PromoteAsked(force))

    # The machine's turn.

    def _tick(self) -> None:
        if not self._is_stopped:
            self._feed(machine.Ticked())
            if self._left is None:
                self._control.stands("Running" if self._replica.state in SERVING else "Init")
            self._engine.scheduler.after(self._tick_ms, self._tick)

    def _control_told(self, event: machine.Event) -> None:
        """The registry, or the file in its place, says something."""
        if isinstance(event, machine.ControlSeen) and self._known is not None:
            leader = event.control.leader if event.control is not None else ""
            try:
                self._known.seen(event, self._control.address_of(leader))
            except OSError as error:
                log.warning("file_not_written", extra={"path": KNOWN_LEADER_PATH, "reason": str(error)})
                return  # nothing is done about an answer that a restart would forget; it is asked for again
        self._feed(event)

    def _may_claim(self, version: int) -> bool:
        """Whether a restart will remember the claim; without that it is not made."""
        try:
            if self._known is not None:
                self._known.claims(version)
        except OSError as error:
            log.warning("file_not_written", extra={"path": KNOWN_LEADER_PATH, "reason": str(error)})
            return False
        return True

    def _address_of(self, name: str) -> str | None:
        """Where this node listens, as the registry says, or as it said when it was last reached."""
        address = self._control.address_of(name)
        return address if address is not None or self._known is None else self._known.address_of(name)

    def _feed(self, event: machine.Event) -> None:
        """Give the machine an event and do what it says; events that this causes come after."""
        self._events.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._events:
                now_ms = self._engine.clock.monotonic_us() // 1000
                for command in self._replica.receive(now_ms, self._events.popleft()):
                    if not self._is_stopped:
                        self._perform(command)
            if not self._is_stopped:
                self._showing.soon() if self._arrived[0] else self._showing.now()
        except OSError as error:
            # Nobody knows how much of a command reached the disk: take part no more, and wait for a person.
            self._is_stopped = True
            self._alarm = f"the disk failed: {error}; restart the queue once the disk is well"
            self._engine.writer.flush_failed(error)
        finally:
            self._is_busy = False

    def _perform(self, command: machine.Command) -> None:
        if self._showing.through and not isinstance(command, _BEFORE_SHOWING):
            self._showing.now()
        match command:
            case machine.Committed(through):
                self._committed(through)
            case machine.Append():
                self._append()
            case machine.SendDurable(session, event_id, epoch, stamp_ms):
                report = encode_follow_progress(durable_event_id=event_id, epoch=epoch, stamp_ms=stamp_ms)
                self._to_leader(session, report)
            case machine.SendState() | machine.SendTruncate() | machine.SendTooFar() | machine.StreamAfter():
                self._to_follower(command)
            case machine.RefuseFollower(session, reason):
                self._end_stream(session, encode_refused(reason))
            case machine.CloseFollower(session):
                if (stream := self._streams.get(session)) is not None:
                    stream.cut()
            case machine.ReadControl(asked_ms):
                self._control.read(asked_ms)
            case machine.ChangeControl(expected_version, control, asked_ms, is_claim):
                if not is_claim or self._may_claim(expected_version):
                    self._control.change(expected_version, control, asked_ms)
            case machine.Follow():
                self._connect(command)
            case machine.Unfollow(session):
                self._unfollow(session)
            case machine.Truncate(through):
                self._truncate(through)
            case machine.FetchSnapshot(session, leader):
                self._fetch_snapshot(session, leader)
            case machine.Alarm(text):
                self._alarm = text
                log.warning("replication", extra={"alarm": text})
            case _:
                self._perform_leading(command)

    def _perform_leading(self, command: machine.Command) -> None:
        engine = self._engine
        match command:
            case machine.AppendEpoch(epoch, event_ids):
                self._append_epoch(epoch, event_ids)
            case machine.Lead(epoch):
                self._lead_from = engine.writer.next_event_id
                engine.lead(epoch)
                engine.is_leader = True
                engine.refuse_writes = LEASE_OVER if self._is_elected else NOT_IN_SYNC
                self._control.leads(epoch)
                self._when_placed()
                log.info("leading", extra={"epoch": epoch, "from_event_id": self._lead_from})
                self.when_leading(epoch)
            case machine.AcceptWrites():
                engine.refuse_writes = None
            case machine.RefuseWrites(reason):
                engine.refuse_writes = reason if reason == LEASE_OVER else f"{NOT_IN_SYNC}: {reason}"
                engine.writer.run_soon()
                log.warning("writes refused", extra={"reason": reason})
            case machine.StopLeading(reason):
                log.warning("leading no more", extra={"reason": reason})
                engine.refuse_writes = None
                engine.stop_leading(f"this node leads no more ({reason}); {FATE_UNKNOWN}")
                self.when_leading_ended(reason)
                self._events.append(machine.LeadingStopped(log_state_of(self._engine)))
            case machine.Promoted(epoch):
                self._answer_promotion(encode_done(epoch))
                self.when_promoted()
            case machine.Fence():
                self._cancel_fencing()
                self._fence_request = FenceRequest(command, self.name, engine.leader_key, self._feed)
                self._fence_request.open(self._links)
            case machine.PromoteRefused(reason):
                self._cancel_fencing()
                self._answer_promotion(encode_refused(reason))
            case machine.Left():
                if self._left is not None:
                    self._left()
            case _:
                raise AssertionError(f"nobody performs {command}")

    def _answer_promotion(self, answer: bytes) -> None:
        waiting, self._promoting = self._promoting, []
        for connection in waiting:
            connection.answered(answer)

    def _cancel_fencing(self) -> None:
        if self._fence_request is not None:
            self._fence_request.close()
            self._fence_request = None

    # Leading.

    def _append_epoch(self, epoch: int, event_ids: int) -> None:
        """Open an epoch. A node that takes over leaves room for ids that another leader may have given unseen."""
        engine = self._engine
        first = engine.writer.next_event_id
        reign = self._replica.settings.reign_epochs
        is_new_reign = first > 1 and epoch // reign != engine.state.epoch // reign
        if self._is_elected or self._has_followed or is_new_reign:
            self._engine.open_epoch(epoch, event_ids, self.name)
        self._events.append(machine.EpochAppended(epoch, first, self._engine.journal.last_event_id))

    def _flushed(self, through: int) -> int:
        """A group commit is on disk here; is it committed?"""
        self._feed(machine.Flushed(through))
        self._streams.tell_soon()
        return self._replica.commit_event_id

    def _committed(self, through: int) -> None:
        engine = self._engine
        if self._replica.leadership is None:
            self._showing.through = through
            return
        if engine.commit_event_id < self._lead_from - 1:
            engine.apply_through(min(through, self._lead_from - 1))
        engine.writer.committed(through)
        self._streams.tell_soon()

    def _to_follower(
        self, command: machine.SendState | machine.SendTruncate | machine.SendTooFar | machine.StreamAfter
    ) -> None:
        if (stream := self._streams.get(command.session)) is None:
            return
        match command:
            case machine.SendState(_, epoch, commit_event_id, in_sync, stamp_ms):
                stream.tell_state(epoch, commit_event_id, in_sync=in_sync, leader=self.name, stamp_ms=stamp_ms)
            case machine.SendTruncate(session, event_id, epoch):
                self._end_stream(session, stream.truncate_message(event_id, epoch))
            case machine.SendTooFar(session, oldest):
                self._end_stream(session, stream.too_far_message(oldest))
            case machine.StreamAfter(_, event_id):
                stream.begin_after(event_id)

    def _end_stream(self, session: int, last_words: bytes) -> None:
        stream = self._streams.pop(session, None)
        if stream is not None:
            stream.end(last_words)

    def _stream_heard(self, session: int) -> Callable[[int, int, int], None]:
        return lambda event_id, epoch, stamp: self._feed(machine.FollowerDurable(session, event_id, epoch, stamp))

    def _stream_gone(self, session: int) -> Callable[[], None]:
        def gone() -> None:
            self._streams.pop(session, None)
            self._engine.counters.followers -= 1
            self._feed(machine.FollowerGone(session))

        return gone

    # Following.

    def _connect(self, command: machine.Follow) -> None:
        self._has_followed = True
        self.when_overtaken()
        request = encode_follow(
            self.name.encode(),
            last_event_id=command.last_event_id,
            last_epoch=command.last_epoch,
            highest_epoch=command.highest_epoch,
            flags=FOLLOW_FLAG_STAMPS if self._is_elected else 0,
        )
        address = self._address_of(command.leader)
        if address is None:  # it is not registered, or we have not read it yet: asked again after reconnect_ms
            self._events.append(machine.StreamEnded(command.session))
            return
        self._link = LeaderLink(self, command.session, request, self._engine.leader_key)
        self._link.open(self._links, address)

    def _unfollow(self, session: int) -> None:
        if self._link is not None and self._link.session == session:
            self._link.close()
            self._link = None
        if self._fetch is not None:
            self._fetch.close()
            self._fetch = None
            self._events.append(machine.SnapshotFailed(session))

    def _to_leader(self, session: int, data: bytes) -> None:
        if self._link is not None and self._link.session == session:
            self._link.write(data)

    def leader_said(self, session: int, event: object) -> None:
        """One message of the leader's stream."""
        match event:
            case FramesSent():
                self._frames_came(session, event)
            case StateTold(epoch, commit_event_id, in_sync, leader, stamp_ms):
                self._feed(machine.StateHeard(session, epoch, commit_event_id, in_sync, leader, stamp_ms))
            case TruncateTold(event_id, epoch):
                self._feed(machine.TruncateTold(session, event_id, epoch))
            case TooFarBehind(oldest_event_id):
                self._feed(machine.TooFarTold(session, oldest_event_id))
            case Refused(text):
                log.warning("leader refused to be followed", extra={"reason": text})
                self.leader_lost(session, text)
            case _:
                pass  # a keep-alive

    def _frames_came(self, session: int, sent: FramesSent) -> None:
        try:
            copies = read_copies(sent.frames)
            event = arrival(session, copies, sent.commit_event_id, self._engine.state.epoch, sent.stamp_ms)
        except (ValueError, CorruptData) as error:
            # Spoilt on the way: ask again from where this journal really ends.
            if self._link is not None:
                self._link.close()
            self.leader_lost(session, f"damaged frames: {error}")
            return
        self._arrived = sent.frames, copies
        self._feed(event)
        self._arrived = b"", []

    def leader_lost(self, session: int, reason: str) -> None:
        """The stream is over."""
        if self._link is not None and self._link.session == session:
            self._link = None
        if not self._is_stopped:
            self.losses.note(reason)
            self._alarm = reason
            self._feed(machine.StreamEnded(session))

    def _append(self) -> None:
        """Write what arrived, exactly as it came, and make it durable."""
        try:
            self._engine.append_frames(*self._arrived)
        except (OSError, PixiuError) as error:
            log.error("cannot copy from the leader", extra={"reason": str(error)})
            if isinstance(error, OSError):
                self._engine.writer.write_failed(error, len(self._arrived[0]))
            self._events.append(machine.AppendFailed(log_state_of(self._engine)))
            return
        if self._engine.writer.poisoned is not None:
            # Nobody knows what the disk holds: say nothing more to the leader, and wait for a person.
            self.stop()
            return
        self._events.append(machine.Flushed(self._engine.journal.last_event_id))

    def _truncate(self, through: int) -> None:
        log.warning("cutting what the leader does not have", extra={"after_event_id": through})
        self._engine.truncate_after(through)
        self._events.append(machine.Truncated(log_state_of(self._engine)))

    def _fetch_snapshot(self, session: int, leader: str) -> None:
        """Copy everything, then start again from it."""
        log.warning("fetching a snapshot", extra={"leader": leader})
        if self._link is not None:
            self._link.close()
            self._link = None

        def done(error: str | None) -> None:
            self._fetch = None
            if error is None:
                self._restart()
                return
            log.error("snapshot failed", extra={"reason": error})
            self._feed(machine.SnapshotFailed(session))

        address = self._address_of(leader)
        if address is None:
            self._events.append(machine.SnapshotFailed(session))
            return
        self._fetch = SnapshotFetch(
            self._engine.files, done, new_prover(self._engine.leader_key),
            with_stores=self._is_elected,
        )  # fmt: skip
        self._fetch.open(self._links, address, CONNECT_TIMEOUT_MS)
        self._fetch.watch(self._engine.scheduler)
