"""A lease in the registry, held or waited for: the machine ``Serving`` with its hands.

Carriers have one per partition, and whoever owns a log in Kafka. What happens then is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import ControlRefused, ControlSeen
from pixiu.machines.serving import ChangeRecord, ReadRecord, Serve, Serving, Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.replication import Event
    from pixiu.machines.serving import ServingCommand, ServingRules
    from pixiu.ports.clock import Clock
    from pixiu.queue.replication.control import ControlSource

__all__ = ["TICKS_PER_RENEWAL", "HeldLease"]

TICKS_PER_RENEWAL = 5


class HeldLease:
    """One replica's end of it. ``granted`` is told the epoch, ``lost`` why."""

    def __init__(
        self,
        name: str,
        rules: ServingRules,
        control: ControlSource,
        clock: Clock,
        *,
        granted: Callable[[int], object],
        lost: Callable[[str], object],
    ) -> None:
        self.serving = Serving(name, rules)
        self.tick_ms = rules.renew_ms / TICKS_PER_RENEWAL
        """``tick`` is to be called this often."""
        self._control = control
        self._clock = clock
        self._granted = granted
        self._lost = lost

    @property
    def is_held(self) -> bool:
        """At this moment."""
        return self.serving.is_serving(self._now_ms())

    def start(self) -> None:
        """Take a place among the others."""
        self._control.start(self._told)

    def tick(self, *, is_ready: bool) -> None:
        """Some time has passed. Who is not ready lets others go first."""
        self._perform(self.serving.tick(self._now_ms(), is_ready=is_ready))

    def hand_over(self, reason: str) -> None:
        """Let another have it, and stay."""
        self._perform(self.serving.hand_over(self._now_ms(), reason))

    def leave(self) -> None:
        """Let another have it, and go."""
        self._perform(self.serving.leave(self._now_ms()))

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def _told(self, event: Event) -> None:
        if isinstance(event, ControlSeen):
            self._perform(self.serving.seen(self._now_ms(), event))
        elif isinstance(event, ControlRefused):
            self._perform(self.serving.refused(self._now_ms(), event))
        # A lost session is nothing: the lease does not depend on it.

    def _perform(self, commands: list[ServingCommand]) -> None:
        for command in commands:
            match command:
                case ReadRecord(asked_ms):
                    self._control.read(asked_ms)
                case ChangeRecord(expected_version, record, asked_ms):
                    self._control.change(expected_version, record, asked_ms)
                case Serve(epoch):
                    self._granted(epoch)
                case Stop(reason):
                    self._lost(reason)
