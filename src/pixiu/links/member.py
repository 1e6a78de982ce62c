"""A process's own entry in the registry: made once, kept true, made again after a lost session, removed at the end.

The entry says what others need to know: name, role, partition, replica, address, state and boot id. The boot id is the
same for as long as the process lives; the replica number is new after a lost session.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.view import PeerState
from pixiu.model.errors import Conflict, NotFound, PixiuError
from pixiu.ports.registry import SessionState, Write, sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler

__all__ = ["CLEAN_AT", "COUNT_KEY", "SLOTS", "Member", "Slot", "count_path", "ensure_count", "folder_of"]

log = logging.getLogger(__name__)

RETRY_MS = 500
SLOTS = 1_024
"""Ids have room for so many who give them at the same time."""
COUNT_KEY = "count"
"""In the node of a role's partition count."""
CLEAN_AT = "clean_at"
"""Beside it: until when its last doubling lasts, in milliseconds since 1970."""


def folder_of(root: str, role: str, partition: int) -> str:
    """Where the instances of a role and partition are."""
    return f"{root}/{role}/partition{partition}"


def count_path(root: str, role: str) -> str:
    """Where a role's partition count is."""
    return f"{root}/{role}/partition_num"


def ensure_count(
    registry: Registry, scheduler: Scheduler, root: str, role: str, count: int, done: Callable[[], object]
) -> None:
    """Write a role's first partition count; one that is there already stays. Tried until it is known."""

    def answered(result: int | PixiuError) -> None:
        if isinstance(result, PixiuError) and not isinstance(result, Conflict):
            scheduler.after(RETRY_MS, attempt)
        else:
            done()

    def attempt() -> None:
        registry.write(Write(count_path(root, role), {COUNT_KEY: count}, -1), answered)

    attempt()


class Member:
    """One entry. ``registered`` is told the replica number, each time that it is a new one."""

    def __init__(
        self,
        registry: Registry,
        scheduler: Scheduler,
        root: str,
        *,
        role: str,
        partition: int,
        boot: int,
        address: str,
        name: str = "",
        more: Mapping[str, object] | None = None,
    ) -> None:
        """``name`` is what people call it, for good; without one it is called by its number.

        ``more`` is what else others should know, such as where clients connect.
        """
        self.role = role
        self.partition = partition
        self.state = PeerState.INIT
        self.path = ""
        self.registered: Callable[[int], object] = lambda _replica: None
        self.session_lost: Callable[[], object] = lambda: None
        self._registry = registry
        self._scheduler = scheduler
        self._folder = folder_of(root, role, partition)
        self._boot = boot
        self._address = address
        self._name = name
        self._more = dict(more or {})
        self._is_wanted = False
        self._is_asked = False
        self._is_left = False
        registry.when_session(self._session)

    @property
    def replica(self) -> int | None:
        """Its number, while it is registered."""
        return sequence_of(self.path) if self.path else None

    @property
    def name(self) -> str:
        """What people call it."""
        return self._name or f"{self.role}-{self.partition}" + ("" if self.replica is None else f"-{self.replica}")

    def register(self) -> None:
        """Make the entry, in the present state."""
        self._is_wanted = True
        self._ask()

    def set_state(self, state: PeerState) -> None:
        """Tell everyone. Before it is registered, it is registered as that."""
        self.state = state
        if self.path:
            self._write(self.path)

    def tell(self, **more: object) -> None:
        """Something else that others should know."""
        self._more.update(more)
        if self.path:
            self._write(self.path)

    def leave(self, done: Callable[[], object]) -> None:
        """Remove the entry; ``done`` in any case."""
        self._is_wanted, self._is_left = False, True
        path, self.path = self.path, ""
        if path:
            self._registry.remove(path, lambda _result: done())
        else:
            done()

    # Steps.

    def _data(self) -> dict[str, object]:
        return {
            "name": self.name, "role": self.role, "partition": self.partition, "replica": self.replica,
            "address": self._address, "state": self.state.value, "boot": f"{self._boot:x}", **self._more,
        }  # fmt: skip

    def _ask(self) -> None:
        if self._is_wanted and not self._is_asked and not self.path:
            self._is_asked = True
            self._registry.register(self._folder, self._data(), self._answered)

    def _answered(self, result: str | PixiuError) -> None:
        self._is_asked = False
        if isinstance(result, PixiuError):
            log.warning("could not register", extra={"role": self.role, "reason": str(result)})
            self._scheduler.after(RETRY_MS, self._ask)
        elif not self._is_wanted:
            self._registry.remove(result, lambda _result: None)
        else:
            self.path = result
            log.info("registered", extra={"path": result, "state": self.state.value})
            self._write(result)  # with its name and number
            self.registered(sequence_of(result))

    def _write(self, path: str) -> None:
        def written(result: int | PixiuError) -> None:
            if not isinstance(result, PixiuError) or path != self.path:
                return
            if isinstance(result, NotFound):  # somebody removed it, or the session is lost and we do not know yet
                self._lost()
            else:
                self._scheduler.after(RETRY_MS, lambda: self._write(path) if path == self.path else None)

        # Only what is there is changed: an entry that went with its session must not come back without one.
        self._registry.read(path, lambda found: self._replace(path, found, written))

    def _replace(self, path: str, found: object, written: Callable[[int | PixiuError], object]) -> None:
        if isinstance(found, PixiuError):
            written(found)
            return
        entry = found.get("") if isinstance(found, dict) else None
        if entry is None:
            written(NotFound(f"{path} is gone"))
        elif path == self.path:
            token = {"token": entry.data["token"]} if "token" in entry.data else {}
            self._registry.write(Write(path, {**self._data(), **token}, entry.version), written)

    def _session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._lost()
        elif state is SessionState.CONNECTED:
            self._ask()

    def _lost(self) -> None:
        if self.path:
            log.warning("the registration is lost", extra={"path": self.path})
            self.path = ""
            self.session_lost()
            self._scheduler.after(RETRY_MS, self._ask)


class Slot:
    """A number below ``SLOTS`` that nobody else has while this session lives: part of the ids that a process gives."""

    def __init__(self, registry: Registry, scheduler: Scheduler, root: str, claimed: Callable[[int], object]) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._folder = f"{root}/slots"
        self._claimed = claimed
        self._path = ""
        registry.when_session(self._session)

    def claim(self) -> None:
        """Ask for one; ``claimed`` is told, again after a lost session."""
        self._registry.register(self._folder, {}, self._registered)

    def _registered(self, path: str | PixiuError) -> None:
        if isinstance(path, PixiuError):
            self._scheduler.after(RETRY_MS, self.claim)
            return
        self._path = path
        self._read(path)

    def _read(self, path: str) -> None:
        if path == self._path:
            self._registry.read(self._folder, lambda found: self._look(path, found))

    def _look(self, path: str, found: Folder | PixiuError) -> None:
        """The first one who came keeps a slot; who finds it taken comes again, under the next number."""
        if path != self._path:
            return  # it went with its session, and another is claimed
        if isinstance(found, PixiuError):
            self._scheduler.after(RETRY_MS, lambda: self._read(path))
            return
        mine, numbers = sequence_of(path), {int(name) for name in found if name.isdecimal()}
        if mine not in numbers:  # the session ended before we heard that we have it
            self._path = ""
            self.claim()
        elif any(number < mine and number % SLOTS == mine % SLOTS for number in numbers):
            self._path = ""
            self._registry.remove(path, lambda _result: self.claim())
        else:
            self._claimed(mine % SLOTS)

    def _session(self, state: SessionState) -> None:
        if state is SessionState.LOST and self._path:
            self._path = ""
            self._scheduler.after(RETRY_MS, self.claim)
