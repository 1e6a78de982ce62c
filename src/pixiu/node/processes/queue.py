"""The queue as a role of a cluster: a node that registers, elects, leads or follows.

It is the queue that ``pixiu queue serve`` runs; only who leads is told by the registry instead of the operator.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pixiu.node.processes.cluster_end import needed_queue_keys, open_session
from pixiu.node.processes.cluster_secrets import SecretsFile, queue_keys
from pixiu.node.processes.elected import Elected
from pixiu.node.serving import run_node
from pixiu.queue.replication.control import partition_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pixiu.config import Settings
    from pixiu.config.registry import RegistryAddress
    from pixiu.node.serving import Running

__all__ = ["QUEUE_ROLE_DEFAULTS", "run_queue_role"]

QUEUE_ROLE_DEFAULTS: dict[str, object] = {
    "replication.acknowledge": "in-sync",
    "replication.heartbeat_ms": 250,
    "replication.in_sync_timeout_ms": 1_250,
    "replication.reconnect_ms": 200,
}
"""What a queue among others has in place of the defaults: it waits for its followers, and soon notices that one is
gone. Whatever the user sets stands above these."""


def run_queue_role(
    settings: Settings,
    registry: RegistryAddress,
    *,
    partition: int,
    data: Path,
    secrets: str,
    secret_file: Path | None = None,
    http: bool,
    on_ready: Callable[[Running], None],
) -> int:
    """Run one replica until SIGTERM or SIGINT. Returns the exit code. ``secrets`` is the text of ``secret_file``."""
    keys = needed_queue_keys(secrets, settings.queue.host)

    @asynccontextmanager
    async def meet() -> AsyncIterator[Elected]:
        session = await open_session(registry)
        elected = Elected(session, partition_folder(registry.root, partition), keys, place=str(registry))

        def changed(text: str) -> None:
            elected.keys = queue_keys(text, settings.queue.host)
            for call in elected.keys_changed:
                call(elected.keys)

        file = None
        if secret_file is not None:
            file = SecretsFile(secret_file, secrets, asyncio.get_running_loop(), changed)
        try:
            yield elected
        finally:
            if file is not None:
                file.close()
            await asyncio.get_running_loop().run_in_executor(None, session.close)

    return run_node(
        settings, data=data, dev=False, http=http, follow=None, follow_event=0, on_ready=on_ready, meet=meet
    )
