"""``pixiu role shard``: one replica of a shard, as a process.

It runs the node that ``pixiu serve`` runs. Which replica leads the log and serves is decided through the registry, and
clients connect to the gateways of the cluster.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pixiu.links.member import ensure_count
from pixiu.node.logs import is_kafka
from pixiu.node.processes.cluster_end import needed_queue_keys, open_session
from pixiu.node.processes.cluster_secrets import SecretsFile, queue_keys
from pixiu.node.processes.elected import Elected
from pixiu.node.serving import run_node
from pixiu.node.shared_log import check_kind_of_log
from pixiu.queue.replication.control import SHARD, partition_folder
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.config.registry import RegistryAddress
    from pixiu.node.serving import Running

__all__ = ["SHARD_DEFAULTS", "run_shard"]

SHARD_DEFAULTS: dict[str, object] = {
    "replication.acknowledge": "in-sync",
    "replication.heartbeat_ms": 250,
    "replication.in_sync_timeout_ms": 1_250,
    "replication.reconnect_ms": 200,
}
"""Defaults of a replica among others: it waits for its followers, and soon notices that one is gone. Settings of the
user stand above these."""


def run_shard(
    settings: Settings,
    registry: RegistryAddress,
    *,
    shard: int,
    hub_port: int,
    data: Path,
    secrets: str,
    secret_file: Path | None = None,
    on_ready: Callable[[Running], None],
) -> int:
    """Run one replica until SIGTERM or SIGINT. Returns the exit code. ``secrets`` is the text of ``secret_file``."""
    keys = needed_queue_keys(secrets, settings.queue.host)

    @asynccontextmanager
    async def meet() -> AsyncIterator[Elected]:
        loop = asyncio.get_running_loop()
        session = await open_session(registry)
        counted: asyncio.Future[None] = loop.create_future()
        ensure_count(
            session, LoopScheduler(loop), registry.root, SHARD, 1,
            lambda: None if counted.done() else counted.set_result(None),
        )  # fmt: skip
        await counted
        folder = partition_folder(registry.root, shard)
        try:
            await check_kind_of_log(session, folder, is_kafka=is_kafka(settings))
        except BaseException:
            await loop.run_in_executor(None, session.close)
            raise
        elected = Elected(
            session, folder, keys, place=str(registry), secrets=secrets, hub_port=hub_port, shard=shard,
        )  # fmt: skip

        def changed(text: str) -> None:
            elected.keys, elected.secrets = queue_keys(text, settings.queue.host), text
            for call in elected.keys_changed:
                call(elected.keys)
            for change in elected.secrets_changed:
                change(text)

        file = None
        if secret_file is not None:
            file = SecretsFile(secret_file, secrets, loop, changed)
        try:
            yield elected
        finally:
            if file is not None:
                file.close()
            await loop.run_in_executor(None, session.close)

    return run_node(
        settings, data=data, dev=False, http=True, follow=None, follow_event=0, on_ready=on_ready, meet=meet
    )
