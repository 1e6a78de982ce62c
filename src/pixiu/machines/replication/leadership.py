"""What a leader knows of its followers during one epoch: who holds what, who is in sync, what is committed.

The in-sync set may be changed only through the control record, and an answer can be lost. From the moment a
change is proposed until the record's version moves, the leader cannot know which of the two sets is in force,
so a commit needs **every** member of both (``required``). This is what makes it safe that any in-sync member
may take over: it holds all that was ever committed, whichever set it was elected from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pixiu.machines.replication.events import Acknowledge, Control, Election, ReplicaSettings
from pixiu.machines.replication.lease import Grants

__all__ = ["Leadership", "Progress"]

UNKNOWN = -1  # a follower that has not yet said, in this session, what it holds


@dataclass(slots=True)
class Progress:
    """One follower. ``target`` is a past end of our own journal: reaching it means having been caught up then."""

    session: int | None
    heard_ms: int
    moved_ms: int
    caught_up_ms: int | None
    target: int
    target_ms: int
    durable: int = UNKNOWN


class Leadership:
    """One node's leading, from the record that opens its epoch to its end."""

    grants_type: ClassVar[type[Grants]] = Grants

    def __init__(
        self, name: str, settings: ReplicaSettings, *, epoch: int, control: Control, now_ms: int, durable: int
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.settings = settings
        self.control = control
        self.grants = self.grants_type(settings.lease_ms)
        self.proposed_ms: int | None = None
        self._proposed: frozenset[str] = frozenset()
        self._admitting: frozenset[str] = frozenset()
        self._sessions: dict[int, str] = {}
        # A member of the set we start with has in_sync_timeout_ms to find us.
        self.followers = {
            member: Progress(None, now_ms, now_ms, now_ms, durable, now_ms)
            for member in sorted(control.in_sync - {name})
        }

    @property
    def required(self) -> frozenset[str]:
        """Who must hold a record before it is committed."""
        return self.control.in_sync | self._proposed | self._admitting

    @property
    def sessions(self) -> dict[int, str]:
        """The followers whose journals match ours, by session."""
        return self._sessions

    @property
    def has_enough_members(self) -> bool:
        """Whether the in-sync set is as large as writes demand."""
        return self.settings.acknowledge is Acknowledge.LOCAL or len(self.control.in_sync) >= self.settings.min_isr

    @property
    def is_alone(self) -> bool:
        """Whether the last control record read lists this replica as the only one in sync."""
        return self.control.in_sync == {self.name}

    def is_granted(self, now_ms: int) -> bool:
        """Whether everyone who may be able to claim has promised not to."""
        return self.grants.is_held(now_ms, self.required - {self.name})

    def granted(self, session: int, stamp_ms: int, *, now_ms: int) -> None:
        """A follower echoed a stamp."""
        name = self._sessions.get(session)
        if name is not None:
            self.grants.note(name, stamp_ms, now_ms=now_ms)

    def committable(self, durable: int) -> int:
        """Through which event_id records are committed, given what is durable here; UNKNOWN if none are."""
        if self.settings.acknowledge is Acknowledge.LOCAL:
            return durable
        if not self.has_enough_members:
            return UNKNOWN
        for member in self.required:
            if member != self.name:
                progress = self.followers.get(member)
                durable = min(durable, progress.durable if progress else UNKNOWN)
        return durable

    def needed_after(self, durable: int) -> int:
        """Retention must keep everything after this event_id for the in-sync members."""
        held = [self.followers[name].durable for name in sorted(self.required) if name in self.followers]
        return max(0, min([durable, *held]))

    def welcome(self, session: int, name: str, *, now_ms: int, durable: int) -> int | None:
        """Start a session with a follower whose journal matches. Return the one it replaces."""
        before = self.followers.get(name)
        replaced = before.session if before else None
        if replaced is not None:
            self._sessions.pop(replaced, None)
        # What it held is asked again. How long it has been behind is kept: connecting anew is not progress.
        caught_up_ms = before.caught_up_ms if before and name in self.control.in_sync else None
        self.followers[name] = Progress(session, now_ms, now_ms, caught_up_ms, durable, now_ms)
        self._sessions[session] = name
        return replaced

    def forget(self, name: str) -> None:
        """A follower is about to cut or replace its journal: what it said of it holds no longer."""
        progress = self.followers.get(name)
        if progress is not None:
            progress.durable = UNKNOWN

    def leave(self, session: int) -> None:
        """A session ended."""
        name = self._sessions.pop(session, None)
        if name is None:
            return
        self.followers[name].session = None
        self._admitting -= {name}
        if name not in self.required:
            del self.followers[name]

    def note_durable(self, session: int, event_id: int, *, now_ms: int, durable: int) -> bool:
        """A follower says what it holds. Return whether that may change anything."""
        name = self._sessions.get(session)
        if name is None:
            return False
        progress = self.followers[name]
        progress.heard_ms = now_ms
        if event_id > progress.durable or event_id >= durable:
            progress.moved_ms = now_ms
        progress.durable = max(progress.durable, event_id)
        if progress.durable >= progress.target:
            progress.caught_up_ms = progress.target_ms
            progress.target, progress.target_ms = durable, now_ms
        return True

    def stuck(self, *, now_ms: int, durable: int) -> list[int]:
        """Sessions that are silent, or have something to do and do nothing."""
        limit_ms = self.settings.in_sync_timeout_ms
        found = []
        for session, name in self._sessions.items():
            progress = self.followers[name]
            is_behind = progress.durable < durable
            if now_ms - progress.heard_ms > limit_ms or (is_behind and now_ms - progress.moved_ms > limit_ms):
                found.append(session)
        return found

    def propose(self, *, now_ms: int, commit_event_id: int) -> frozenset[str] | None:
        """The in-sync set to ask for now, or None while there is nothing to ask.

        A newcomer that is caught up first becomes required; once it holds everything committed it is proposed.
        So it can join under load, and whoever elects from the new set elects from nodes that have it all.
        """
        keep = {name for name in self.control.in_sync if name == self.name or not self._is_late(name, now_ms)}
        ready = frozenset(name for name in self._sessions.values() if self._is_ready(name, now_ms))
        self._admitting = ready - self.control.in_sync
        admitted = {name for name in self._admitting if self.followers[name].durable >= commit_event_id}
        wanted = frozenset(keep | admitted)
        if self.proposed_ms is None:
            if wanted == self.control.in_sync:
                return None
        elif now_ms - self.proposed_ms < self.settings.control_retry_ms:
            return None
        # An unanswered proposal is followed by another even if nothing is wanted any more: only a new
        # version of the record says which set holds.
        self.proposed_ms = now_ms
        self._proposed |= wanted
        return wanted

    def control_seen(self, control: Control) -> None:
        """The record has a new version, and it is still ours: older proposals are decided."""
        self.control = control
        self.proposed_ms = None
        self._proposed = frozenset()
        for name in [n for n, p in self.followers.items() if p.session is None and n not in self.required]:
            del self.followers[name]

    def _is_late(self, name: str, now_ms: int) -> bool:
        progress = self.followers.get(name)
        if progress is None or progress.caught_up_ms is None:
            return True
        return now_ms - progress.caught_up_ms > self.settings.in_sync_timeout_ms

    def _is_ready(self, name: str, now_ms: int) -> bool:
        progress = self.followers[name]
        if self.settings.election is Election.REGISTRY and not self.grants.is_granted_by(name, now_ms):
            return False  # as a member it would end the lease; it may also be of a release that grants none
        return (
            progress.caught_up_ms is not None
            and progress.durable >= 0
            and now_ms - progress.caught_up_ms <= self.settings.in_sync_timeout_ms // 2
        )
