"""`pixiu role router`: knows who is in which room at which gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.roles.router.router import Router

if TYPE_CHECKING:
    from pixiu.node.processes.rooms import RoleProcess


__all__ = ["RouterPart"]


class RouterPart:
    """The router of a role process."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._router = Router(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler,
            new_life=end.new_life, patience_ms=end.settings.dead_ms,
        )  # fmt: skip

    async def start(self) -> None:
        """Begin; registering included."""
        self._router.start()

    async def drain(self) -> None:
        """Tell the others, and give them time to see it."""
        self._router.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        """End."""
        self._router.replica.stop()

    def reasons(self) -> dict[str, str]:
        """Why it does not serve, by part."""
        life = self._router.replica.life
        return {} if life.takes_work else {"router": life.phase.value}

    def notes(self) -> dict[str, str]:
        """What is missing and does not keep it from serving."""
        return {}

    def says(self) -> dict[str, object]:
        """What else to print when it starts."""
        return {}
