"""Which replica of a shard serves where the log is in Kafka: a lease in the registry.

The replicas of such a shard do not copy the log from each other, so ``queue.replication`` has nothing to elect. The
replica that holds the lease opens the log, and Kafka then refuses everything that an earlier owner still sends. So the
lease decides who serves, and Kafka's fence keeps the log whole even if two replicas believe that they hold it.

``RegistryLease`` has the interface of ``queue.replication.driver.Replication`` as far as a shard needs it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.replication import ControlRefused, ControlSeen
from pixiu.machines.serving import ChangeRecord, ReadRecord, Serve, Serving, ServingRules, Stop
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.queue import ReplicationSettings
    from pixiu.machines.replication import Event
    from pixiu.machines.serving import ServingCommand
    from pixiu.ports.clock import Clock
    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.replication.control import ControlSource

__all__ = ["RegistryLease"]

log = logging.getLogger(__name__)

TICKS_PER_RENEWAL = 5
BEHIND_MS = 2_000
"""A replica that is not ready waits so much longer before it takes the lease."""
NOT_READY_MS = 15_000
"""A leader that is not ready for so long hands the lease over, if another replica is ready."""
ANNOUNCE_MS = 2_000
"""How often the leader makes sure that the registry shows clients its address."""


class RegistryLease:
    """Takes, renews and hands over the lease of one replica."""

    def __init__(
        self,
        settings: ReplicationSettings,
        control: ControlSource,
        registry: Registry,
        folder: str,
        clock: Clock,
        scheduler: Scheduler,
        *,
        name: str,
    ) -> None:
        """``folder`` is the shard's in the registry, where replicas show whether they are ready."""
        self.name = name
        self.when_leading: Callable[[int], object] = lambda _epoch: None
        """Called with the epoch in which this replica leads."""
        self.when_leading_ended: Callable[[str], object] = lambda _reason: None
        """Called with the reason when this replica stops leading."""
        self.why_not_ready: Callable[[], list[str]] = list
        """Returns why this replica should not serve; empty if it can."""
        rules = ServingRules(lease_ms=settings.lease_ms, renew_ms=settings.renew_ms, behind_ms=BEHIND_MS)
        self._serving = Serving(name, rules)
        self._tick_ms = rules.renew_ms / TICKS_PER_RENEWAL
        self._control = control
        self._registry = registry
        self._folder = folder
        self._clock = clock
        self._scheduler = scheduler
        self._announced_ms = 0
        self._not_ready_since: int | None = None
        self._left: Callable[[], object] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Register this replica, and take the lease when it is free."""
        self._control.start(self._told)
        self._tick()

    def holds_lease(self) -> bool:
        """Does this replica lead at this moment, so that no other does?"""
        return not self._is_stopped and self._serving.is_serving(self._now_ms())

    @property
    def leader_name(self) -> str:
        """The last known leader, or the empty string."""
        return self._serving.holder

    def step_down(self) -> None:
        """Hand the lease over, if another replica is ready."""
        if self.holds_lease():
            self._registry.read(self._folder, self._step_down_before_others)

    def _step_down_before_others(self, folder: Folder | PixiuError) -> None:
        if isinstance(folder, PixiuError) or self._is_stopped:
            return
        places = [entry.data for name, entry in folder.items() if name.isdecimal()]
        if any(place.get("state") == "Running" and place.get("name") != self.name for place in places):
            self._perform(self._serving.hand_over(self._now_ms(), "another replica is ready"))

    def leave(self, done: Callable[[], object]) -> None:
        """Hand the lease over for good, then call ``done``."""
        self._left = done
        self._control.stands("Draining")
        commands = self._serving.leave(self._now_ms())
        if commands:
            self._perform(commands)
        else:
            self._scheduler.soon(done)

    def stop(self) -> None:
        """Remove this replica from the registry."""
        self._is_stopped = True
        self._control.stop()

    # The machine.

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def _tick(self) -> None:
        if self._is_stopped or self._left is not None:
            return
        problems, now_ms = self.why_not_ready(), self._now_ms()
        self._perform(self._serving.tick(now_ms, is_ready=not problems))
        self._control.stands("Init" if problems else "Running")
        is_leading = self._serving.is_serving(now_ms)
        if is_leading and now_ms - self._announced_ms >= ANNOUNCE_MS:
            self._announce()
        if not is_leading or not problems:
            self._not_ready_since = None
        elif self._not_ready_since is None:
            self._not_ready_since = now_ms
        elif now_ms - self._not_ready_since >= NOT_READY_MS:
            log.warning("lease_handed_over", extra={"reason": "; ".join(problems)})
            self._not_ready_since = now_ms
            self.step_down()
        self._scheduler.after(self._tick_ms, self._tick)

    def _announce(self) -> None:
        self._announced_ms = self._now_ms()
        self._control.leads(self._serving.epoch)

    def _told(self, event: Event) -> None:
        # A lost session changes nothing: the lease does not depend on it.
        if isinstance(event, ControlSeen):
            self._perform(self._serving.seen(self._now_ms(), event))
        elif isinstance(event, ControlRefused):
            self._perform(self._serving.refused(self._now_ms(), event))
        if self._left is not None and not self._is_stopped and isinstance(event, ControlSeen | ControlRefused):
            self._left()

    def _perform(self, commands: list[ServingCommand]) -> None:
        for command in commands:
            match command:
                case ReadRecord(asked_ms):
                    self._control.read(asked_ms)
                case ChangeRecord(expected_version, record, asked_ms):
                    self._control.change(expected_version, record, asked_ms)
                case Serve(epoch):
                    log.info("lease_taken", extra={"replica": self.name, "epoch": epoch})
                    self._announce()
                    self.when_leading(epoch)
                case Stop(reason):
                    log.warning("lease_lost", extra={"replica": self.name, "reason": reason})
                    self.when_leading_ended(reason)
