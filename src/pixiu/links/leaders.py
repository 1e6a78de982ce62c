"""Which replica leads each shard: what the registry says, as it changes.

::

    <root>/<role>/partition_num              {"count": 2}
    <root>/<role>/partition<k>/leader        {"epoch": 7, "name": "shard-1-0", "hub": "10.0.0.7:9311", "boot": …}

A watch is a hint to read again, and the registry is read every ``poll_ms`` anyway. Epochs never go back: a reading that
names an earlier epoch than a reading before it is stale, and is ignored.

What the registry said last can be kept elsewhere (``LeaderMemory``). It is used if the registry has not been read
``poll_ms`` after the start. It may be out of date, so the first reading replaces it, whatever the epochs. A leader that
has changed since then does no harm: the address belongs to a process that does not lead, or to another process, and
both refuse the connection.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pixiu.links.member import COUNT_KEY
from pixiu.model.errors import PixiuError
from pixiu.model.partitions import check_count
from pixiu.ports.registry import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["KnownLeaders", "Leader", "LeaderMemory", "Leaders"]

log = logging.getLogger(__name__)

POLL_MS = 1_000


class Leader(NamedTuple):
    """The replica that leads a shard."""

    epoch: int
    name: str
    address: str
    boot: int = 0
    """The boot id of its process: another process at that address is not meant."""


@dataclass(frozen=True, slots=True)
class KnownLeaders:
    """What the registry said last."""

    count: int
    leaders: Mapping[int, Leader]


class LeaderMemory(Protocol):
    """Keeps the leaders beyond the life of a process."""

    def recall(self) -> KnownLeaders | None:
        """What was kept last; None if nothing was, or if it cannot be read."""
        ...

    def keep(self, known: KnownLeaders) -> None:
        """Replace what is kept. Raises nothing."""
        ...


class Leaders:
    """Follows the leaders of one role."""

    def __init__(
        self,
        registry: Registry,
        scheduler: Scheduler,
        root: str,
        role: str,
        *,
        poll_ms: int = POLL_MS,
        memory: LeaderMemory | None = None,
    ) -> None:
        self.role = role
        self.count = 0
        """How many shards there are; 0: the registry has no number."""
        self.is_read = False
        """Has the registry been read?"""
        self.when_changed: Callable[[], object] = lambda: None
        self._version = -1
        self._leaders: dict[int, Leader] = {}
        self._recalled: set[int] = set()
        """Shards whose leader is from the memory, not from the registry."""
        self._has_recalled = False
        self._registry = registry
        self._scheduler = scheduler
        self._folder = f"{root}/{role}"
        self._poll_ms = poll_ms
        self._memory = memory
        self._timer: Timer | None = None
        self._is_reading = self._reads_again = False
        self._is_stopped = False

    def start(self) -> None:
        """Read, watch and poll."""
        self._registry.watch(self._folder, self.refresh)
        self._registry.when_session(lambda state: self.refresh() if state is SessionState.CONNECTED else None)
        self.refresh()
        self._timer = self._scheduler.after(self._poll_ms, self._poll)

    def stop(self) -> None:
        """Read nothing more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def is_known(self) -> bool:
        """Are the shards known, from the registry or from the memory?"""
        return self.is_read or self._has_recalled

    def of(self, shard: int) -> Leader | None:
        """The leader of a shard, as far as it is known."""
        return self._leaders.get(shard)

    def refresh(self) -> None:
        """Read the registry now, or after the reading under way: a registry that is away gets one request at most."""
        if self._is_reading:
            self._reads_again = True
        elif not self._is_stopped:
            self._is_reading = True
            self._registry.read(self._folder, self._answered)

    def _poll(self) -> None:
        if not self.is_known:
            self._recall()
        self.refresh()
        self._timer = self._scheduler.after(self._poll_ms, self._poll)

    def _recall(self) -> None:
        known = None if self._memory is None else self._memory.recall()
        if known is None:
            return
        log.warning("registry_not_read", extra={"role": self.role, "leaders_from": "an earlier reading"})
        self._has_recalled = True
        self.count, self._leaders = known.count, dict(known.leaders)
        self._recalled = set(known.leaders)
        self.when_changed()

    def _answered(self, found: Folder | PixiuError) -> None:
        self._is_reading = False
        reads_again, self._reads_again = self._reads_again, False
        if self._is_stopped:
            return
        if not isinstance(found, PixiuError):  # otherwise what is known stays, and the next poll reads again
            self._found(found)
            if reads_again:
                self.refresh()

    def _found(self, found: Folder) -> None:
        before = (self.is_read, self.count, dict(self._leaders))
        self.is_read = True
        for path, entry in found.items():
            if path == "partition_num":
                self._count_is(entry.data.get(COUNT_KEY), entry.version)
            else:
                self._leader_is(path, entry.data)
        if before != (self.is_read, self.count, self._leaders):
            if self._memory is not None and self.count:
                self._memory.keep(KnownLeaders(self.count, dict(self._leaders)))
            self.when_changed()

    def _count_is(self, count: object, version: int) -> None:
        if version < self._version:
            return
        try:
            if not isinstance(count, int):
                raise ValueError(f"a count is a number, not {count!r}")
            check_count(count)
        except ValueError as error:
            log.error("bad_partition_count", extra={"role": self.role, "reason": str(error)})
        else:
            self.count, self._version = count, version

    def _leader_is(self, path: str, data: Mapping[str, object]) -> None:
        folder, _, last = path.rpartition("/")
        number = folder.removeprefix("partition")
        if last != "leader" or not number.isdecimal():
            return
        epoch, name, address = data.get("epoch"), data.get("name"), data.get("hub")
        if not (isinstance(epoch, int) and isinstance(name, str) and isinstance(address, str)):
            log.error("bad_leader_entry", extra={"role": self.role, "path": path})
            return
        try:
            boot = int(str(data.get("boot", "0")), 16)
        except ValueError:
            boot = 0
        shard = int(number)
        known = self._leaders.get(shard)
        if known is None or shard in self._recalled or epoch >= known.epoch:
            self._recalled.discard(shard)
            self._leaders[shard] = Leader(epoch, name, address, boot)
