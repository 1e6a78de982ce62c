"""What happened in the live rooms of a cluster, on its way from a broker to the log.

``pixiu pipeline`` makes its charts of rooms and its plans (``pixiu pipeline plan``) from these rows. A broker works
without a log: a record that the log does not take is dropped, which costs a gap in a chart.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError
from pixiu.model.partitions import SLICES, is_slice
from pixiu.node.processes.cluster_end import queue_key
from pixiu.node.tracing import Tracing
from pixiu.ports.log import MAIN
from pixiu.queue.client import Client

if TYPE_CHECKING:
    from pixiu.node.processes.cluster_end import ClusterEnd
    from pixiu.node.processes.options import RoleOptions
    from pixiu.roles.broker.broker import RoomRow

__all__ = ["RoomRowsLog"]

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
STOP_SECONDS = 2.0
WRITES_MAX = 8
"""Records that wait for the log; with more, new ones are dropped."""


class RoomRowsLog:
    """Sums up the rows of one broker and appends a record of them to the log, once a minute."""

    def __init__(self, end: ClusterEnd, options: RoleOptions, secrets_text: str) -> None:
        self._bind = options.bind
        self._client = Client(
            str(options.registry), key=queue_key(secrets_text, options.bind), pool=1, patience_s=PATIENCE_SECONDS
        )
        self._tracing = Tracing(end.clock, end.scheduler, self._write, node=end.boot & 1023, hop_sample=0)
        self._writes: set[asyncio.Task[None]] = set()
        self._is_refused = False

    def report(self, row: RoomRow) -> None:
        """Take what happened in one room, or in one slice of a big room, within about a second.

        Every message of a big room goes to all of its slices, so the first slice alone counts messages. The audience of
        a big room is estimated from each slice, as it is for clients.
        """
        if is_slice(row.number):
            is_first = row.number % SLICES == 0
            row = row._replace(
                messages=row.messages if is_first else 0, bytes=row.bytes if is_first else 0,
                members=row.members * SLICES, users=row.users * SLICES,
            )  # fmt: skip
        self._tracing.room(row)

    def change_key(self, secrets_text: str) -> None:
        """Use another secret for connections that are made from now on."""
        self._client.change_key(queue_key(secrets_text, self._bind))

    async def stop(self) -> None:
        """Write what is left, and wait a moment for the log to take it."""
        self._tracing.stop()
        if self._writes:
            await asyncio.wait(self._writes, timeout=STOP_SECONDS)
        await self._client.close()

    def _write(self, record: bytes) -> None:
        if len(self._writes) < WRITES_MAX:
            task = asyncio.get_running_loop().create_task(self._publish(record))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _publish(self, record: bytes) -> None:
        try:
            await self._client.publish(MAIN, record)
        except PixiuError as error:
            if not self._is_refused:
                log.warning("room_rows_dropped", extra={"reason": str(error)})
            self._is_refused = True
        else:
            self._is_refused = False
