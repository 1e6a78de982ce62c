"""`pixiu role proxy`: publishes to the rooms of a cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.view import PeerState
from pixiu.roles.proxy.rooms import RoomProxy

if TYPE_CHECKING:
    from pixiu.node.processes.rooms import RoleProcess


__all__ = ["ProxyPart"]

log = logging.getLogger(__name__)

START_MS = 30_000
"""How long a proxy waits for a broker in every partition before it says that one is missing, and goes on waiting."""


class ProxyPart:
    """The proxy of a role process."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._proxy = RoomProxy(end.endpoint, end.directory, end.scheduler, end.bigs)
        self._proxy.when_ready = self._ready

    async def start(self) -> None:
        """Begin; registering included."""
        self._process.end.bigs.start()
        self._proxy.start()
        self._process.end.scheduler.after(START_MS, self._look)

    async def drain(self) -> None:
        """Tell the others, and give them time to see it."""
        self._process.say(PeerState.DRAINING)
        await self._process.wait_drained()

    async def stop(self) -> None:
        """End."""

    def reasons(self) -> dict[str, str]:
        """Why it does not serve, by part."""
        return {} if self._proxy.is_complete else {"brokers": "a partition of the brokers has no running process"}

    def notes(self) -> dict[str, str]:
        """What is missing and does not keep it from serving."""
        return {}

    def says(self) -> dict[str, object]:
        """What else to print when it starts."""
        return {}

    def _ready(self) -> None:
        self._process.say(PeerState.RUNNING)
        self._process.member.register()

    def _look(self) -> None:
        if not self._process.member.path:
            log.warning("a partition of the brokers has no running process; this proxy waits for one")
