"""`pixiu role broker`: fans out what is said in its rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.node.processes.cluster_end import read_secrets
from pixiu.node.processes.room_rows import RoomRowsLog
from pixiu.roles.broker.cluster import ClusterBroker
from pixiu.roles.broker.hot import HotRooms
from pixiu.roles.broker.metrics import METRICS as BROKER
from pixiu.roles.broker.metrics import snapshot as broker_snapshot
from pixiu.runtime.admin import Response

if TYPE_CHECKING:
    from pixiu.node.processes.rooms import RoleProcess
    from pixiu.roles.broker.broker import RoomRow


__all__ = ["BrokerPart"]

HOT_ROOMS = 50


class BrokerPart:
    """The broker of a role process."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        end = process.end
        self._hot = HotRooms(end.clock)
        process.routes["/hot.json"] = lambda _request: Response.json(
            200, [room._asdict() for room in self._hot.top(HOT_ROOMS)]
        )
        options = process.options
        self._rows = RoomRowsLog(end, options, read_secrets(options.secret_file))
        end.when_secrets_changed.append(self._rows.change_key)
        self._broker = ClusterBroker(
            end.endpoint, end.directory, process.member, end.clock, end.scheduler, options.settings.rooms,
            node_id=end.boot & 1023, bigs=end.bigs, lasts_ms=end.settings.grace_ms + end.settings.poll_ms,
            by_relay=end.settings.room_path == "relay", report=self._report,
        )  # fmt: skip
        process.metrics.add(BROKER, lambda: broker_snapshot(self._broker.broker))

    async def start(self) -> None:
        """Begin; registering included."""
        self._process.end.bigs.start()
        self._broker.start()

    async def drain(self) -> None:
        """Tell the others, and give them time to see it."""
        self._broker.replica.drain()
        await self._process.wait_drained()

    async def stop(self) -> None:
        """End."""
        self._broker.stop()
        self._broker.replica.stop()
        await self._rows.stop()

    def _report(self, row: RoomRow) -> None:
        self._hot.report(row)
        self._rows.report(row)

    def reasons(self) -> dict[str, str]:
        """Why it does not serve, by part."""
        life = self._broker.replica.life
        return {} if life.takes_work else {"broker": life.phase.value}

    def notes(self) -> dict[str, str]:
        """What is missing and does not keep it from serving."""
        return {}

    def says(self) -> dict[str, object]:
        """What else to print when it starts."""
        return {}
