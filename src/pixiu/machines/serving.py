"""Which of several replicas serves a partition: one lease, taken and renewed by compare-and-set.

Replicas apply the same log, so whoever serves next has nothing to copy and nothing to cut: there is no in-sync set, and
the control record holds the epoch and who serves. The lease is the queue's (``machines.replication.lease``): whoever
serves writes the record again every ``renew_ms``, and stops when ``lease_ms`` have passed since it asked for the last
renewal that was made; another may take over when it has seen one version of the record for ``takeover_ms``.

::

    WAITING ── nobody serves, or for too long the same version: swap ──▶ CLAIMING ── granted ──▶ SERVING
       ▲                                                                    │ refused              │
       └────────────────────────────────────────────────────────────────────┴── lease over, another epoch seen,
                                                                                 or handed over to one that can

A replica that is behind waits ``behind_ms`` longer than one that is not: the next one to serve is one that can.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pixiu.machines.replication import Control, ControlRefused, ControlSeen
from pixiu.machines.replication.lease import Lease

__all__ = ["ChangeRecord", "ReadRecord", "Serve", "Serving", "ServingCommand", "ServingRules", "ServingState", "Stop"]


class ServingState(Enum):
    """Where a replica stands."""

    WAITING = "waiting"
    CLAIMING = "claiming"
    SERVING = "serving"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ServingRules:
    """Times, in milliseconds."""

    lease_ms: int = 1_200
    renew_ms: int = 250
    behind_ms: int = 5_000

    @property
    def takeover_ms(self) -> int:
        """How long the record must have stood still for someone else to take over."""
        return self.lease_ms * 5 // 4 + 1


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the control record."""

    asked_ms: int


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """Set the control record, if it still has this version (0: there is none)."""

    expected_version: int
    control: Control
    asked_ms: int


@dataclass(frozen=True, slots=True)
class Serve:
    """This replica serves from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """It does so no more."""

    reason: str


ServingCommand = ReadRecord | ChangeRecord | Serve | Stop


class Serving:
    """One replica. Time is an argument; clocks of several replicas may differ by a quarter in speed."""

    def __init__(self, name: str, rules: ServingRules) -> None:
        self.name = name
        self.state = ServingState.WAITING
        self.epoch = 0
        """The newest that was seen; while serving, its own."""
        self.holder = ""
        """Who serves, as far as known."""
        self._rules = rules
        self._lease = Lease(rules)
        self._version = -1
        self._asked_ms = -(1 << 62)
        self._is_asked = False
        self._first_seen_ms: int | None = None

    def is_serving(self, now_ms: int) -> bool:
        """Whether it may go on at this moment, whatever has been heard since the last tick."""
        return self.state is ServingState.SERVING and self._lease.is_held(now_ms)

    def tick(self, now_ms: int, *, is_ready: bool) -> list[ServingCommand]:
        """Some time has passed. ``is_ready``: it has applied about as much as there is."""
        rules = self._rules
        if self.state is ServingState.LEFT:
            return []
        if self.state is ServingState.SERVING:
            if not self._lease.is_held(now_ms):
                return self._stop("its lease is over")
            if now_ms - self._asked_ms < rules.renew_ms:
                return []
            if self._is_asked and now_ms - self._asked_ms < 2 * rules.renew_ms:
                return []
            if self._is_asked:  # no answer: see how it stands before asking for more
                self._is_asked = False
                self._asked_ms = now_ms
                return [ReadRecord(now_ms)]
            return [self._ask(now_ms, Control(self.epoch, self.name, frozenset()))]
        if now_ms - self._asked_ms < rules.renew_ms:
            return []
        if self._may_claim(now_ms, is_ready=is_ready):
            self.state = ServingState.CLAIMING
            return [self._ask(now_ms, Control(self.epoch + 1, self.name, frozenset()))]
        self.state = ServingState.WAITING  # of a claim that was not answered nobody knows: look
        self._asked_ms = now_ms
        return [ReadRecord(now_ms)]

    def seen(self, now_ms: int, event: ControlSeen) -> list[ServingCommand]:
        """The record as it is, or as this replica has made it."""
        if self.state is ServingState.LEFT or event.version < self._version:
            return []
        control = event.control
        self._lease.seen(now_ms, event.version, is_answer=event.asked_ms is not None)
        self._version = event.version
        if self._first_seen_ms is None:
            self._first_seen_ms = now_ms
        state, before = self.state, self.epoch
        if control is not None:
            self.epoch, self.holder = control.epoch, control.leader
        is_ours = control is not None and control.leader == self.name
        if event.is_granted and event.asked_ms is not None and is_ours:
            return self._granted(now_ms, event.asked_ms)
        if state is ServingState.SERVING and (not is_ours or self.epoch != before):
            return self._stop("another replica serves")
        return []

    def _granted(self, now_ms: int, asked_ms: int) -> list[ServingCommand]:
        """A renewal, or the claim that was waited for. One that comes when it was given up begins nothing."""
        self._is_asked = False
        if self.state is ServingState.SERVING:
            self._lease.granted(asked_ms)
        elif self.state is ServingState.CLAIMING and asked_ms == self._asked_ms:
            self._lease.granted(asked_ms)
            if self._lease.is_held(now_ms):
                self.state = ServingState.SERVING
                return [Serve(self.epoch)]
            self.state = ServingState.WAITING
            self._lease.give_up()
        return []

    def refused(self, now_ms: int, event: ControlRefused) -> list[ServingCommand]:
        """A swap found another version: read it."""
        if self.state is ServingState.LEFT:
            return []
        self._is_asked = False
        if self.state is ServingState.CLAIMING:
            self.state = ServingState.WAITING
        self._asked_ms = now_ms
        return [ReadRecord(now_ms)]

    def leave(self, now_ms: int) -> list[ServingCommand]:
        """End in order: whoever waits may serve at once."""
        was_serving = self.is_serving(now_ms)
        self.state = ServingState.LEFT
        self._lease.give_up()
        if not was_serving:
            return []
        return [ChangeRecord(self._version, Control(self.epoch, "", frozenset()), now_ms)]

    def hand_over(self, now_ms: int, reason: str) -> list[ServingCommand]:
        """Serve no more, and stay: whoever is ready may serve at once, this one again when nobody else does."""
        if not self.is_serving(now_ms):
            return []
        self._first_seen_ms = self._asked_ms = now_ms
        change = ChangeRecord(self._version, Control(self.epoch, "", frozenset()), now_ms)
        return [change, *self._stop(reason)]

    def _ask(self, now_ms: int, control: Control) -> ChangeRecord:
        self._asked_ms = now_ms
        self._is_asked = True
        return ChangeRecord(self._version, control, now_ms)

    def _may_claim(self, now_ms: int, *, is_ready: bool) -> bool:
        if self._version < 0 or self.state is ServingState.CLAIMING or self._first_seen_ms is None:
            return False
        wait_ms = 0 if is_ready else self._rules.behind_ms
        if self.holder in ("", self.name):  # nobody, or an earlier life of this one
            return now_ms - self._first_seen_ms >= wait_ms
        return self._lease.unchanged_ms(now_ms) >= self._rules.takeover_ms + wait_ms

    def _stop(self, reason: str) -> list[ServingCommand]:
        self.state = ServingState.WAITING
        self._lease.give_up()
        self._is_asked = False
        return [Stop(reason)]
