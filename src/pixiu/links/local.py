"""Roles in one process: they pass each other the same objects, a turn later.

With ``is_strict`` every message goes through the codec on its way, so that what is tested in one process is what
crosses a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.machines.links.codec import decode
from pixiu.machines.links.packing import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.ports.scheduler import Scheduler

__all__ = ["LocalNetwork", "LocalWay"]


class LocalNetwork:
    """The roles of one process, by address."""

    def __init__(self, scheduler: Scheduler, *, is_strict: bool = False) -> None:
        self._scheduler = scheduler
        self._is_strict = is_strict
        self._ways: dict[str, LocalWay] = {}

    def way(self, boot: int) -> LocalWay:
        """A place in it."""
        way = LocalWay(self, boot, f"local:{boot:x}")
        self._ways[way.address] = way
        return way

    def remove(self, way: LocalWay) -> None:
        """A role is gone."""
        self._ways.pop(way.address, None)

    def carry(self, source: LocalWay, boot: int, address: str, messages: Sequence[Any]) -> None:
        """Hand messages over in a later turn, if the one that is meant is there."""
        target = self._ways.get(address)
        if target is None or target.boot != boot:
            return
        if self._is_strict:
            sent = [each for item in messages for each in ([item] if type(item) is tuple else encoded(item))]
            messages = [decode(*each) for each in sent]
        self._scheduler.soon(lambda: target.receive(source.boot, source.address, messages))


class LocalWay:
    """One role's way to the others."""

    def __init__(self, network: LocalNetwork, boot: int, address: str) -> None:
        self.boot = boot
        self.address = address
        self.is_full = False
        self.when_free: Callable[[], object] = lambda: None
        self.receive: Callable[[int, str, Sequence[Any]], object] = lambda _boot, _address, _messages: None
        self._network = network

    def send(self, boot: int, address: str, messages: Sequence[Any]) -> None:
        """Hand messages over."""
        self._network.carry(self, boot, address, messages)
