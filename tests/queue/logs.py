"""Records for tests of the storage, made by the writer's own batches."""

import random

from pixiu.machines.queue_wire.messages import Message
from pixiu.queue.batch import Batch
from pixiu.queue.storage.journal import Journal
from pixiu.queue.storage.topics import Topic
from pixiu.testing.disk import SimulatedDisk

TOPIC = Topic(b"t", 1, 5, 0)


def message(text: str, size: int = 0) -> bytes:
    """One message."""
    return Message(text.encode().ljust(size, b".")).encode()


def new_disk(seed: int = 1) -> SimulatedDisk:
    """An empty disk."""
    return SimulatedDisk(random.Random(seed))


def add(journal: Journal, *texts: str, flush: bool = True, now_ms: int = 1000) -> int:
    """Append one publish of several messages. Returns its first event id."""
    next_event_id = journal.last_event_id + 1
    batch = Batch(
        next_event_id=next_event_id,
        position=journal.begin(next_event_id),
        epoch=1,
        flushed_through=journal.flushed_through,
        now_ms=now_ms,
    )
    event_id = batch.publish(TOPIC, [message(text) for text in texts])
    batch.close_run()
    journal.append(batch.frames(), batch.entries(), batch.last_event_id)
    if flush:
        journal.flush()
    return event_id
