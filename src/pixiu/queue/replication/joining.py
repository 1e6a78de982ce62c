"""A log that was led alone comes under a registry: while it runs, or when it is started there.

While it runs, its leader goes on in the epoch that it has. The control record is made by compare-and-set on "there is
none", names this node, and has nobody else in its in-sync set; so until this leader takes a follower in, nobody but
itself can claim, and it does not matter when exactly the registry began to count. No write waits for any of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pixiu.machines import replication as machine
from pixiu.machines.replication import Control, ControlRefused, ControlSeen, State
from pixiu.model.errors import ConfigError
from pixiu.queue.replication.control import read_control

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.queue import ReplicationSettings
    from pixiu.machines.replication import Replica
    from pixiu.ports.scheduler import Timer
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.control import ControlSource

__all__ = [
    "Join",
    "among_others",
    "led_alone",
    "machine_settings",
    "own_record",
    "takeover_ms_of",
    "tick_ms_of",
    "why_not_join",
]

TICKS_PER_HEARTBEAT = 4
TICKS_PER_RENEWAL = 3
AGAIN_MS = 250
"""Between two attempts, while the registry does not answer."""


class Join:
    """Asks for the control record until it is granted, or there is one already."""

    def __init__(
        self,
        control: ControlSource,
        engine: Engine,
        wanted: Callable[[], Control | None],
        done: Callable[[ControlSeen | None, str], object],
    ) -> None:
        """``wanted`` is the record of a leader of its own log, and None if this node is not one any more.

        ``done`` is told what was granted, or why nothing was.
        """
        self._control = control
        self._engine = engine
        self._wanted = wanted
        self._done = done
        self._is_over = False
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin."""
        self._control.start(self._told)
        self._ask()

    def stop(self) -> None:
        """Give it up."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        return self._engine.clock.monotonic_us() // 1000

    def _ask(self) -> None:
        if not self._is_over:
            self._control.read(self._now_ms())
            self._timer = self._engine.scheduler.after(AGAIN_MS, self._ask)

    def _told(self, event: machine.Event) -> None:
        if self._is_over or not isinstance(event, ControlSeen | ControlRefused):
            return  # a lost session is asked for again
        wanted = self._wanted()
        if wanted is None:
            self._end("this node does not lead a log of its own")
        elif isinstance(event, ControlSeen) and event.is_granted:
            self.stop()
            self._done(event, "")
        elif isinstance(event, ControlSeen):
            found = event.control
            if found is None or (found.leader, found.epoch) == (wanted.leader, wanted.epoch):
                self._control.change(event.version, wanted, self._now_ms())
            else:
                self._end(
                    f"the registry has a log there already: {found.leader or 'nobody'} led it, epoch {found.epoch}"
                )

    def _end(self, reason: str) -> None:
        self.stop()
        self._done(None, reason)


def own_record(replica: Replica) -> Control | None:
    """The record of a node that leads a log of its own."""
    if replica.state is not State.LEADING:
        return None
    return Control(replica.epoch, replica.name, frozenset({replica.name}))


def why_not_join(state: State, *, has_joined: bool, has_followers: bool) -> str:
    """Why a node cannot bring its log to a registry now; empty if it can."""
    if has_joined:
        return "this node has joined a registry, or is about to"
    if state is not State.LEADING:
        return f"this node does not lead: it is {state.value}"
    if has_followers:
        return "this node has followers that it was given by hand: stop them, and start them again as replicas"
    return ""


def led_alone(engine: Engine, names: frozenset[str]) -> int:
    """The epoch in which this node led a log of its own, under one of these names; 0 if it did not, or only copied.

    A log that no epoch was ever opened in was written by a program that has Pixiu inside.
    """
    if engine.journal.last_event_id == 0:
        return 0
    found = read_control(engine.files)
    if found is None:
        return 1 if engine.state.epoch == 0 else 0
    return found[1].epoch if found[1].leader in names else 0


def among_others(settings: ReplicationSettings) -> ReplicationSettings:
    """What holds for a leader of its own log once it has joined: it waits for its followers, and soon misses one."""
    longest_ms = takeover_ms_of(settings) - settings.renew_ms
    return replace(
        settings,
        acknowledge="in-sync",
        heartbeat_ms=min(settings.heartbeat_ms, 250, longest_ms // 5),
        in_sync_timeout_ms=min(settings.in_sync_timeout_ms, 1_250, longest_ms),
        reconnect_ms=min(settings.reconnect_ms, 200),
    )


def takeover_ms_of(settings: ReplicationSettings) -> int:
    """How long a promise of a follower holds. A quarter longer than the lease: so much clocks may differ in speed."""
    return -(-settings.lease_ms * 5 // 4)


def tick_ms_of(settings: ReplicationSettings, *, is_elected: bool) -> float:
    """How often the machine is told that time passes."""
    tick_ms = settings.heartbeat_ms / TICKS_PER_HEARTBEAT
    return min(tick_ms, settings.renew_ms / TICKS_PER_RENEWAL) if is_elected else tick_ms


def machine_settings(settings: ReplicationSettings, *, is_elected: bool) -> machine.ReplicaSettings:
    """The machine's settings. Raises ``ConfigError`` for times that contradict each other under a registry."""
    takeover_ms = takeover_ms_of(settings)
    if is_elected and settings.in_sync_timeout_ms + settings.renew_ms > takeover_ms:
        raise ConfigError(
            f"replication.in_sync_timeout_ms ({settings.in_sync_timeout_ms}) and renew_ms ({settings.renew_ms}) are "
            f"together longer than 1.25 x lease_ms ({takeover_ms}): a follower that its leader cannot reach would "
            "replace it before the leader can let it go. Shorten in_sync_timeout_ms, or lengthen lease_ms"
        )
    return machine.ReplicaSettings(
        election=machine.Election.REGISTRY if is_elected else machine.Election.MANUAL,
        acknowledge=machine.Acknowledge(settings.acknowledge),
        min_isr=settings.min_isr,
        heartbeat_ms=settings.heartbeat_ms,
        in_sync_timeout_ms=settings.in_sync_timeout_ms,
        silence_ms=max(5 * settings.heartbeat_ms, 3000),
        reconnect_ms=settings.reconnect_ms,
        control_poll_ms=settings.renew_ms,
        control_retry_ms=max(2 * settings.renew_ms, 500) if is_elected else 2_000,
        lease_ms=settings.lease_ms,
        takeover_ms=takeover_ms,
        stagger_ms=settings.renew_ms,
        replicas=settings.replicas,
    )
