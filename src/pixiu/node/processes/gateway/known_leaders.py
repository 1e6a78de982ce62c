"""The leaders of a cluster's shards in a small file, for a gateway that starts while the registry cannot be read."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from pixiu.links.leaders import KnownLeaders, Leader
from pixiu.model.partitions import check_count
from pixiu.runtime.files import write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.config.registry import RegistryAddress
    from pixiu.node.processes.options import RoleOptions

__all__ = ["LeaderFile", "leader_file"]

log = logging.getLogger(__name__)


def leader_file(options: RoleOptions) -> LeaderFile | None:
    """The file of a gateway. A gateway on a random port has none: the next process would not find it."""
    return LeaderFile(options.data, options.port, options.registry) if options.port else None


class LeaderFile:
    """``LeaderMemory`` in the data directory of a gateway.

    Several gateways may share a data directory, so the file is named after the gateway's port. The file also names the
    registry: what was read from another registry is not used.
    """

    def __init__(self, folder: Path, port: int, registry: RegistryAddress) -> None:
        self._path = folder / f"leaders-{port}"
        self._registry = str(registry)
        self._wanted = ""
        self._writing: asyncio.Task[None] | None = None

    def recall(self) -> KnownLeaders | None:
        """Read the file. None if there is none, if it is of another registry, or if it is damaged."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["registry"] != self._registry:
                return None
            count = int(found["count"])
            check_count(count)
            leaders = {
                int(shard): Leader(int(row["epoch"]), str(row["name"]), str(row["hub"]), int(str(row["boot"]), 16))
                for shard, row in found["leaders"].items()
            }
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("leader_file_unreadable", extra={"path": str(self._path), "reason": repr(error)})
            return None
        return KnownLeaders(count, leaders)

    def keep(self, known: KnownLeaders) -> None:
        """Replace the file, in a thread. Of several changes in a row the last one is written."""
        leaders = {
            str(shard): {"epoch": each.epoch, "name": each.name, "hub": each.address, "boot": f"{each.boot:x}"}
            for shard, each in sorted(known.leaders.items())
        }
        self._wanted = json.dumps({"registry": self._registry, "count": known.count, "leaders": leaders}) + "\n"
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Wait until the last change is written."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while self._wanted:
            text, self._wanted = self._wanted, ""
            try:
                await asyncio.to_thread(write_durably, self._path, text, mode=0o600)
            except OSError as error:
                log.warning("leader_file_not_written", extra={"path": str(self._path), "reason": str(error)})
        self._writing = None
