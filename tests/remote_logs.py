"""Reading a log over the network as the roles of a cluster do, for tests."""

import asyncio

from pixiu.backends.queue_log import RemoteLog
from pixiu.model.errors import Unavailable
from pixiu.ports.log import LogRecord

__all__ = ["arrived", "read_all", "read_topic"]

SECONDS_MAX = 30


async def arrived(log: RemoteLog, event_id: int) -> None:
    """Wait until an event is committed, as this end of the log knows it."""
    async with asyncio.timeout(SECONDS_MAX):
        while log.committed < event_id:
            await asyncio.sleep(0.002)


def read_all(log: RemoteLog, after: int = 0) -> list[LogRecord]:
    """Read as the carrier does."""
    found: list[LogRecord] = []
    while after < log.committed:
        committed = log.committed
        records = log.read(after, 100)
        found += records
        after = records[-1].event_id if records else committed
    return found


async def read_topic(log: RemoteLog, topic: str, after: int, limit: int) -> list[bytes]:
    """As tasks do: a page may be on its way."""
    found: list[bytes] = []
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                records = log.topic(topic, after, limit)
            except Unavailable:
                await asyncio.sleep(0.01)
                continue
            found += [each.payload for each in records]
            if len(records) < limit:
                return found
            after = records[-1].event_id
