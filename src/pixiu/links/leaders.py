"""Which replica serves each shard: what the registry says, as it changes.

::

    <root>/<role>/partition_num              {"count": 2}
    <root>/<role>/partition<k>/leader        {"epoch": 7, "name": "shard-1-0", "hub": "10.0.0.7:9311", "boot": …}

A watch is a hint to read again, and the same is read every ``poll_ms``. Epochs never go back: what a late reading says
of an earlier one is not taken.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pixiu.links.member import COUNT_KEY
from pixiu.model.errors import PixiuError
from pixiu.model.partitions import check_count
from pixiu.ports.registry import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["Leader", "Leaders"]

log = logging.getLogger(__name__)

POLL_MS = 1_000


class Leader(NamedTuple):
    """The replica that serves a partition."""

    epoch: int
    name: str
    address: str
    boot: int = 0
    """Of its process: who is meant at that address."""


class Leaders:
    """Follows one role."""

    def __init__(
        self, registry: Registry, scheduler: Scheduler, root: str, role: str, *, poll_ms: int = POLL_MS
    ) -> None:
        self.role = role
        self.count = 0
        """Partitions that the role has; 0: nobody has said so yet."""
        self.is_read = False
        self.when_changed: Callable[[], object] = lambda: None
        self._version = -1
        self._leaders: dict[int, Leader] = {}
        self._registry = registry
        self._scheduler = scheduler
        self._folder = f"{root}/{role}"
        self._poll_ms = poll_ms
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Read, watch and poll."""
        self._registry.watch(self._folder, self.refresh)
        self._registry.when_session(lambda state: self.refresh() if state is SessionState.CONNECTED else None)
        self._poll()

    def stop(self) -> None:
        """No more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def of(self, partition: int) -> Leader | None:
        """Who serves a partition, as far as it is known."""
        return self._leaders.get(partition)

    def refresh(self) -> None:
        """Somebody knows better: read again."""
        if not self._is_stopped:
            self._registry.read(self._folder, self._found)

    def _poll(self) -> None:
        self.refresh()
        self._timer = self._scheduler.after(self._poll_ms, self._poll)

    def _found(self, found: Folder | PixiuError) -> None:
        if self._is_stopped or isinstance(found, PixiuError):
            return  # what is known stays, and is asked for again
        before = (self.is_read, self.count, dict(self._leaders))
        self.is_read = True
        for path, entry in found.items():
            if path == "partition_num":
                self._count_is(entry.data.get(COUNT_KEY), entry.version)
            else:
                self._leader_is(path, entry.data)
        if before != (self.is_read, self.count, self._leaders):
            self.when_changed()

    def _count_is(self, count: object, version: int) -> None:
        if version < self._version:
            return
        try:
            if not isinstance(count, int):
                raise ValueError(f"a count is a number, not {count!r}")
            check_count(count)
        except ValueError as error:
            log.error("a partition count makes no sense", extra={"role": self.role, "reason": str(error)})
        else:
            self.count, self._version = count, version

    def _leader_is(self, path: str, data: Mapping[str, object]) -> None:
        folder, _, last = path.rpartition("/")
        number = folder.removeprefix("partition")
        if last != "leader" or not number.isdecimal():
            return
        epoch, name, address = data.get("epoch"), data.get("name"), data.get("hub")
        if not (isinstance(epoch, int) and isinstance(name, str) and isinstance(address, str)):
            log.error("a leader's entry makes no sense", extra={"role": self.role, "path": path})
            return
        try:
            boot = int(str(data.get("boot", "0")), 16)
        except ValueError:
            boot = 0
        known = self._leaders.get(int(number))
        if known is None or epoch >= known.epoch:
            self._leaders[int(number)] = Leader(epoch, name, address, boot)
