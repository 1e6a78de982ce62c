"""Appending: numbered, and only once per key.

The writer numbers: a message id is given in the same step as the event id, and always above every earlier one. A key
that was appended behind the event that the caller has seen is a repeat, and gets the first answer. Whoever is on a
connection and whoever is in this process append through the same few lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import BEHIND
from pixiu.model.errors import Conflict
from pixiu.ports.log import Appended
from pixiu.queue.keys import Numbers
from pixiu.queue.messages import body_of, key_digest, numbered

if TYPE_CHECKING:
    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.topics import Topic

__all__ = ["KeysAdded", "number"]


class KeysAdded:
    """The keys that a batch has added to the writer's memory: taken back when the batch is never written."""

    __slots__ = ("_engine", "_rows")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows: list[tuple[bytes, Numbers | None]] = []

    def add(self, digest: bytes, before: Numbers | None) -> None:
        """One more."""
        self._rows.append((digest, before))

    def undo(self) -> None:
        """Newest first, since one key may be there twice."""
        keys = self._engine.keys
        for digest, before in reversed(self._rows):
            keys.forget(digest, before)
        # What was forgotten to make room for them may have been of the same batch, which never was.
        keys.floor = min(keys.floor, self._engine.journal.last_event_id)


def number(
    engine: Engine, batch: Batch, topic: Topic, headers: int, content: bytes, *, key: bytes, unless_after: int
) -> Appended:
    """Give a message its numbers within a batch, or find the append that it repeats."""
    digest = key_digest(key) if key else b""
    try:
        before = engine.keys.find(digest, unless_after)
    except LookupError as error:
        raise Conflict(f"{BEHIND}: {error}") from None
    if before is not None:
        return Appended(before.event_id, before.message_id, True)
    message_id = engine.snowflakes.next(batch.now_ms)
    message = numbered(headers, content, message_id, key)
    body = body_of(message) if headers else content
    event_id = batch.append(topic, message, message_id, key, digest, body)
    engine.state.last_message_id = message_id
    if digest:
        added = batch.keys_added
        if added is None:
            added = batch.keys_added = KeysAdded(engine)
            batch.changes.on_undo(added.undo)
        added.add(digest, engine.keys.add(digest, Numbers(event_id, message_id)))
    return Appended(event_id, message_id, False)
