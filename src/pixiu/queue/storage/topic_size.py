"""How much a topic holds: bytes at once, messages where they are counted quickly.

A topic's log has no count of its messages, so they are counted by walking over it. That is done in the loop, so only up
to a size that takes it a few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.queue.storage.topic_items import items_of

if TYPE_CHECKING:
    from pixiu.ports.files import Files
    from pixiu.queue.storage.topic_log import TopicLog

__all__ = ["COUNTED_BYTES_MAX", "size_of_topic"]

COUNTED_BYTES_MAX = 4 * 2**20


def size_of_topic(files: Files, logs: TopicLog) -> dict[str, int | None]:
    """``messages`` (None: too many to count here), ``bytes`` and ``last_event_id``."""
    total = logs.total_size
    count = None
    if total <= COUNTED_BYTES_MAX:
        count = sum(_messages(files, logs.path(number), logs.size_of(number)) for number in logs.numbers)
    return {"messages": count, "bytes": total, "last_event_id": logs.last_event_id}


def _messages(files: Files, path: str, size: int) -> int:
    file = files.open(path)
    try:
        data = file.read(0, size)
    finally:
        file.close()
    return sum(1 for _ in items_of(data))
