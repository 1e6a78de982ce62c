"""`pixiu role relay`: passes what is said in big clusters on to gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.roles.relay.room_metrics import METRICS as RELAY
from pixiu.roles.relay.room_metrics import snapshot as relay_snapshot
from pixiu.roles.relay.rooms import ClusterRelay

if TYPE_CHECKING:
    from pixiu.node.processes.rooms import RoleProcess


__all__ = ["RelayPart"]


class RelayPart:
    """The relay of a role process."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._relay = ClusterRelay(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler, process.options.settings.rooms,
            new_life=end.new_life, patience_ms=end.settings.dead_ms,
        )  # fmt: skip
        process.metrics.add(RELAY, lambda: relay_snapshot(self._relay))

    async def start(self) -> None:
        """Begin; registering included."""
        self._relay.start()

    async def drain(self) -> None:
        """Tell the others, and give them time to see it."""
        self._relay.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        """End."""
        self._relay.stop()
        self._relay.replica.stop()

    def reasons(self) -> dict[str, str]:
        """Why it does not serve, by part."""
        life = self._relay.replica.life
        return {} if life.takes_work else {"relay": life.phase.value}

    def notes(self) -> dict[str, str]:
        """What is missing and does not keep it from serving."""
        return {}

    def says(self) -> dict[str, object]:
        """What else to print when it starts."""
        return {}
