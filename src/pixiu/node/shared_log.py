"""Which log in Kafka is a shard's: noted in the registry, so that no replica serves from another one.

::

    /pubsub/shard/partition0/log   {"cluster_id": "…", "topic_id": "…"}

The first replica creates the topics and writes the note. A replica whose ``engines.log`` leads to another log does not
follow and never serves.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError, Conflict, CorruptData, PixiuError, Unavailable
from pixiu.node.logs import look_at_kafka, make_kafka_log
from pixiu.ports.registry import Write
from pixiu.queue.replication.control import CONTROL
from pixiu.runtime.log_note import read_note

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.backends.kafka.topics import Identity
    from pixiu.config import Settings
    from pixiu.ports.registry import Folder, Registry

__all__ = ["check_kind_of_log", "find_shared_log"]

LOG = "log"


async def check_kind_of_log(registry: Registry, folder: str, *, is_kafka: bool) -> None:
    """Raise ``ConfigError`` if the replicas of the shard have the other kind of log: its events have other numbers."""
    found = await _read(registry, folder)
    control = found.get(CONTROL)
    if is_kafka and control is not None and control.data.get("in_sync"):
        raise ConfigError(
            f"the replicas of this shard copy the log from each other ({folder}/{CONTROL} in the registry), and a log "
            "in Kafka has other events: start this replica without engines.log, or use another registry path"
        )
    if not is_kafka and LOG in found:
        raise ConfigError(
            f"the log of this shard is in Kafka ({folder}/{LOG} in the registry): start this replica with the "
            "engines.log of the others, or use another registry path"
        )


async def find_shared_log(
    registry: Registry, folder: str, settings: Settings, root: Path, is_stopped: Callable[[], bool]
) -> Identity:
    """The shard's log in Kafka, created if there is none.

    Raises ``CorruptData`` if this replica's settings, or its stores, are of another log, and ``Unavailable`` while
    Kafka or the registry does not answer.
    """
    loop, path = asyncio.get_running_loop(), f"{folder}/{LOG}"
    while True:
        noted = (await _read(registry, path)).get("")
        row = None if noted is None else {key: str(value) for key, value in noted.data.items()}
        found = await loop.run_in_executor(None, look_at_kafka, settings, read_note(root), is_stopped)
        if row is not None:
            if found is None or found._asdict() != row:
                raise CorruptData(
                    f"{settings.engines.log} is not the log of this shard: it has topic id "
                    f"{'none' if found is None else found.topic_id}, and {path} in the registry names "
                    f"{row.get('topic_id')} in cluster {row.get('cluster_id')}. Set engines.log as the other replicas "
                    "have it"
                )
            return found
        if found is None:
            found = await loop.run_in_executor(None, make_kafka_log, settings)
        await _write(registry, Write(path, found._asdict(), -1))


async def _read(registry: Registry, path: str) -> Folder:
    answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
    registry.read(path, lambda found: None if answer.done() else answer.set_result(found))
    found = await answer
    if isinstance(found, PixiuError):
        raise found
    return found


async def _write(registry: Registry, write: Write) -> None:
    """Write it unless another replica has written it meanwhile."""
    answer: asyncio.Future[int | PixiuError] = asyncio.get_running_loop().create_future()
    registry.write(write, lambda result: None if answer.done() else answer.set_result(result))
    result = await answer
    if isinstance(result, PixiuError) and not isinstance(result, Conflict):
        raise Unavailable(f"{write.path} was not written to the registry: {result}")
