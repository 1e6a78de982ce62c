"""The half of a replica that copies: one stream from the leader, what it appends, what it may show.

A session starts with Follow, which says where this journal ends. The leader's first heartbeat in it says that
the journals match up to there; only then are frames appended and durable event_ids reported, and both only for
that leader's epoch. Anything that does not fit (a gap, another epoch, silence) ends the session and starts the
next one: there is no repair in place, so there is one path to get right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from pixiu.machines.replication import events as e
from pixiu.machines.replication.events import Command, Control, Election, State
from pixiu.machines.replication.history import EpochStart, LogState, Point, common_point
from pixiu.machines.replication.lease import Promise

__all__ = ["NEVER_MS", "Following", "Stream"]

NEVER_MS = -(1 << 62)
NO_STAMP = -1


@dataclass(slots=True)
class Stream:
    """A follower's side of one Follow session. ``epoch`` is 0 until the leader has said that the journals match."""

    session: int
    leader: str
    heard_ms: int
    sent_ms: int = NEVER_MS
    epoch: int = 0
    commit_event_id: int = 0
    stamp_ms: int = NO_STAMP  # the newest that came, by the leader's clock
    echoed_ms: int = NO_STAMP  # the newest that was echoed


class Following(ABC):
    """What a follower does. ``Replica`` adds the control record and leading."""

    def __init__(self, name: str, settings: e.ReplicaSettings, log: LogState) -> None:
        self.name = name
        self.settings = settings
        self.log = log
        self.state = State.JOINING
        self.highest_epoch = log.tail_epoch
        # What was shown may have been written down late, but retention removes nothing that was not committed.
        self.commit_event_id = max(log.shown_event_id, log.oldest_event_id - 1)
        self.control: Control | None = None
        self._stream: Stream | None = None
        self._session = 0
        self._reconnect_at_ms = NEVER_MS
        self._changed_at_ms = NEVER_MS
        self._is_told_in_sync = False
        self._is_cutting = False
        self._is_abandoning = False
        self._alarm = ""
        self._promise = Promise()
        self._heard_ms = NEVER_MS  # of the leader that is followed, in any session

    @abstractmethod
    def _settle(self, now_ms: int) -> list[Command]:
        """Do what the control record asks of a node that does not lead."""

    @abstractmethod
    def _read_control(self, now_ms: int) -> list[Command]:
        """Ask for the control record."""

    @abstractmethod
    def _change_control(self, now_ms: int, control: Control, *, is_claim: bool = False) -> list[Command]:
        """Ask for this control record in place of the one last seen."""

    def _is_current(self, session: int) -> bool:
        return self._stream is not None and self._stream.session == session

    def _follow_leader(self, now_ms: int, leader: str, *, is_in_sync: bool) -> list[Command]:
        stream = self._stream
        if self.state is State.FULL_SYNC:
            if stream is None or stream.leader == leader or self._is_abandoning:
                return []
            self._is_abandoning = True
            return [e.Unfollow(stream.session)]
        self.state = State.IN_SYNC if is_in_sync else State.FOLLOWING
        commands: list[Command] = []
        if stream is not None:
            if stream.leader == leader and (not stream.epoch or stream.epoch >= self.highest_epoch):
                return []
            commands = self._end_stream()
            self._reconnect_at_ms = now_ms
        if now_ms < self._reconnect_at_ms:
            return commands
        return [*commands, self._open_stream(now_ms, leader)]

    def _open_stream(self, now_ms: int, leader: str) -> Command:
        self._session += 1
        self._stream = Stream(self._session, leader, now_ms)
        log = self.log
        return e.Follow(self._session, leader, log.tail_event_id, log.tail_epoch, self.highest_epoch)

    def _end_stream(self) -> list[Command]:
        stream, self._stream = self._stream, None
        return [] if stream is None else [e.Unfollow(stream.session)]

    def _restart_stream(self, now_ms: int, *, pause_ms: int) -> list[Command]:
        commands = self._end_stream()
        self._reconnect_at_ms = now_ms + pause_ms
        return commands + self._settle(now_ms)

    def _state_heard(self, now_ms: int, event: e.StateHeard) -> list[Command]:
        stream = self._stream
        if stream is None or stream.session != event.session or self.state is State.FULL_SYNC:
            return []
        stream.heard_ms = self._heard_ms = now_ms
        commands: list[Command] = []
        if stream.epoch == 0:
            if self.settings.election is Election.REGISTRY and event.leader != stream.leader:
                pause_ms = self.settings.reconnect_ms  # an address that belongs to another replica now
                return [*self._restart_stream(now_ms, pause_ms=pause_ms), *self._read_control(now_ms)]
            if event.epoch < self.highest_epoch:
                # Our Follow carried the higher epoch, so that leader has stopped; ask again who leads.
                pause_ms = self.settings.reconnect_ms
                return [*self._restart_stream(now_ms, pause_ms=pause_ms), *self._read_control(now_ms)]
            if self.log.tail_event_id and not self._is_epoch_credible(event.epoch):
                text = f"{self._incredible(event.epoch)}; to follow that leader, start with an empty data directory"
                return [*self._sound(text), *self._restart_stream(now_ms, pause_ms=self.settings.silence_ms)]
            if self._is_rival(event):
                text = f"{event.leader} leads in epoch {event.epoch}, which another leader opened: promote it again"
                return [*self._sound(text), *self._restart_stream(now_ms, pause_ms=self.settings.silence_ms)]
            self.highest_epoch = stream.epoch = event.epoch
            stream.stamp_ms = event.stamp_ms
            commands += self._send_durable(now_ms, stream)
        elif event.epoch != stream.epoch:
            return self._restart_stream(now_ms, pause_ms=0)
        elif event.stamp_ms > stream.stamp_ms:
            stream.stamp_ms = event.stamp_ms
            commands += self._send_durable(now_ms, stream)
        stream.commit_event_id = max(stream.commit_event_id, event.commit_event_id)
        commands += self._show(stream.commit_event_id)
        self._is_told_in_sync = event.in_sync
        if self.settings.election is Election.MANUAL:
            commands += self._note_leader(now_ms, event)
        return commands

    def _is_epoch_credible(self, epoch: int) -> bool:
        """Whether a peer may have seen this epoch. Bounded, so that no peer can use up the range of epochs."""
        return epoch <= self.highest_epoch + self.settings.epoch_step_max

    def _incredible(self, epoch: int) -> str:
        step = self.settings.epoch_step_max
        return f"epoch {epoch} is not believed: it is more than {step} above epoch {self.highest_epoch} of this node"

    def _is_rival(self, event: e.StateHeard) -> bool:
        """Without a registry two nodes can open one epoch; their journals must not be mixed."""
        control = self.control
        if self.settings.election is Election.REGISTRY or control is None or control.epoch != event.epoch:
            return False
        return control.leader not in ("", event.leader)

    def _note_leader(self, now_ms: int, event: e.StateHeard) -> list[Command]:
        """Manual: keep who leads, and whether we are in sync, where a restart finds it."""
        self.state = State.IN_SYNC if event.in_sync else State.FOLLOWING
        wanted = Control(
            event.epoch, event.leader, frozenset({event.leader, self.name} if event.in_sync else {event.leader})
        )
        if wanted == self.control or now_ms - self._changed_at_ms < self.settings.control_retry_ms:
            return []
        return self._change_control(now_ms, wanted)

    def _send_durable(self, now_ms: int, stream: Stream) -> list[Command]:
        """Report what is on disk, and echo the newest stamp. The first echo of a stamp is a promise not to claim."""
        stream.sent_ms = now_ms
        if stream.stamp_ms > stream.echoed_ms:
            stream.echoed_ms = stream.stamp_ms
            self._promise.make(now_ms, stream.epoch)
        return [e.SendDurable(stream.session, self.log.durable_event_id, stream.epoch, stream.stamp_ms)]

    def _frames_arrived(self, now_ms: int, event: e.FramesArrived) -> list[Command]:
        stream = self._stream
        if stream is None or stream.session != event.session or not stream.epoch:
            return []
        stream.heard_ms = self._heard_ms = now_ms
        commands: list[Command] = []
        stream.stamp_ms = max(stream.stamp_ms, event.stamp_ms)
        if stream.stamp_ms - stream.echoed_ms > self.settings.heartbeat_ms // 2:
            commands += self._send_durable(now_ms, stream)  # a newer one is echoed with what the flush brings
        log = self.log
        if event.through > log.tail_event_id and event.through >= event.first_event_id:
            if event.first_event_id != log.tail_event_id + 1 or not self._fits(event.epochs, stream):
                return commands + self._restart_stream(now_ms, pause_ms=0)
            self.log = replace(log, tail_event_id=event.through, epochs=log.epochs + event.epochs)
            commands.append(e.Append(event.first_event_id, event.through))
        stream.commit_event_id = max(stream.commit_event_id, event.commit_event_id)
        return commands + self._show(stream.commit_event_id)

    def _fits(self, epochs: tuple[EpochStart, ...], stream: Stream) -> bool:
        """Epochs only grow along a journal, and none is above its leader's."""
        before = self.log.tail_epoch
        for start in epochs:
            if not before < start.epoch <= stream.epoch:
                return False
            before = start.epoch
        return True

    def _truncate_told(self, now_ms: int, session: int, limit: Point) -> list[Command]:
        stream = self._stream
        if stream is None or stream.session != session or stream.epoch or self.state is State.FULL_SYNC:
            return []
        self._heard_ms = now_ms
        point = common_point(self.log, limit)
        if point.event_id < self.commit_event_id:
            text = f"the leader's journal ends at {point.event_id} where ours was shown through {self.commit_event_id}"
            return [*self._sound(text), *self._full_sync(now_ms)]
        if point.event_id < self.log.oldest_event_id - 1:
            return self._full_sync(now_ms)
        self._is_cutting = True
        self._reconnect_at_ms = now_ms
        return [*self._end_stream(), e.Truncate(point.event_id)]

    def _full_sync(self, now_ms: int) -> list[Command]:
        stream = self._stream
        if stream is None or stream.epoch or self.state is State.FULL_SYNC:
            return []
        if self._may_be_in_sync():
            # A new leader does not know yet how much is committed, and its snapshot may have less than this journal.
            pause_ms = self.settings.reconnect_ms
            return [*self._restart_stream(now_ms, pause_ms=pause_ms), *self._read_control(now_ms)]
        self.state = State.FULL_SYNC
        self._is_abandoning = False
        return [e.FetchSnapshot(stream.session, stream.leader)]

    def _may_be_in_sync(self) -> bool:
        """Registry: whether this node may have to hold everything committed. Then its leader lets it go first."""
        if self.settings.election is Election.MANUAL:
            return False
        return self.control is None or self.name in self.control.in_sync

    def _snapshot_ended(self, now_ms: int, *, pause_ms: int) -> list[Command]:
        self.state = State.FOLLOWING
        self._stream = None
        self._reconnect_at_ms = now_ms + pause_ms
        return self._settle(now_ms)

    def _follow_on(self, now_ms: int) -> list[Command]:
        """What a follower does as time passes."""
        stream = self._stream
        if stream is None or self.state is State.FULL_SYNC:
            return self._settle(now_ms)
        if now_ms - stream.heard_ms > self.settings.silence_ms:
            return self._restart_stream(now_ms, pause_ms=0)
        commands: list[Command] = []
        if stream.epoch and now_ms - stream.sent_ms >= self.settings.heartbeat_ms:
            commands += self._send_durable(now_ms, stream)
        return commands + self._settle(now_ms)

    def _copied(self, now_ms: int, through: int) -> list[Command]:
        """What was appended is on disk: say so, and show what is committed of it."""
        self.log = replace(self.log, durable_event_id=min(through, self.log.tail_event_id))
        stream = self._stream
        if stream is None or not stream.epoch:
            return []
        return [*self._send_durable(now_ms, stream), *self._show(stream.commit_event_id)]

    def _show(self, commit_event_id: int) -> list[Command]:
        """A follower shows what is committed, as far as it has it on disk."""
        through = min(commit_event_id, self.log.durable_event_id)
        if through <= self.commit_event_id:
            return []
        self.commit_event_id = through
        return [e.Committed(through)]

    def _sound(self, reason: str) -> list[Command]:
        if not reason or reason == self._alarm:
            return []
        self._alarm = reason
        return [e.Alarm(reason)]
