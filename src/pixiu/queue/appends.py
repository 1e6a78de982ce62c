"""Appending: numbered, and only once per key.

The writer numbers: a message id is given in the same step as the event id, and always above every earlier one. A key
that was appended behind the event that the caller has seen is a repeat, and gets the first answer. Whoever is on a
connection and whoever is in this process append through the same few lines.

Appends of this process that follow each other are one operation of the writer, ``AppendRun``: who appends while it
waits adds to it, and its messages are numbered and answered in one loop each.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, cast

from pixiu.machines.queue_wire.commands import BEHIND
from pixiu.model.errors import Conflict, PixiuError, Unavailable
from pixiu.ports.log import Appended
from pixiu.ports.scheduler import raise_apart
from pixiu.queue.batch import Numbered
from pixiu.queue.operations import Change
from pixiu.queue.storage.messages import body_of, key_digest, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.queue.batch import Batch
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.keys import Numbers
    from pixiu.queue.storage.topics import Topic

__all__ = ["AppendRun", "KeysAdded", "number", "refusal_text"]

_REFUSED_HEAD_BYTES = 10
_new = tuple.__new__


class KeysAdded:
    """The keys that a batch has added to the writer's memory: taken back when the batch is never written."""

    __slots__ = ("_engine", "rows")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rows: list[tuple[bytes, Numbers | None]] = []
        """Digest, and what was known under it before."""

    @classmethod
    def of(cls, engine: Engine, batch: Batch) -> KeysAdded:
        """Those of a batch."""
        added = batch.keys_added
        if added is None:
            added = batch.keys_added = cls(engine)
            batch.changes.on_undo(added.undo)
        return added

    def undo(self) -> None:
        """Newest first, since one key may be there twice."""
        keys = self._engine.keys
        for digest, before in reversed(self.rows):
            keys.forget(digest, before)
        # What was forgotten to make room for them may have been of the same batch, which never was.
        keys.floor = min(keys.floor, self._engine.journal.last_event_id)


class AppendRun(Change):
    """Appends of roles in this process to one topic, one behind the other."""

    __slots__ = ("_dones", "_engine", "_results", "_rows", "_topic_of", "name")

    def __init__(self, engine: Engine, name: str, topic_of: Callable[[str, int], Topic]) -> None:
        super().__init__(cast("Connection", self), self._number)
        self.name = name
        self._engine = engine
        self._topic_of = topic_of
        self._rows: list[tuple[bytes, bytes, int]] = []
        self._dones: list[tuple[int, Callable[[Sequence[Appended | PixiuError]], object]]] = []
        """Who is told so many of the results, one behind the other."""
        self._results: Sequence[Appended | PixiuError] = ()

    def add(
        self,
        contents: Sequence[bytes],
        keys: Sequence[bytes],
        unless_after: int,
        done: Callable[[Sequence[Appended | PixiuError]], object],
    ) -> None:
        """Some more."""
        self._rows.extend(zip(contents, keys, repeat(unless_after)))
        self._dones.append((len(contents), done))

    def _number(self, batch: Batch) -> bytes:
        try:
            topic = self._topic_of(self.name, batch.now_ms)
        except PixiuError as error:
            self._results = [error] * len(self._rows)
        else:
            self._results = number_all(self._engine, batch, topic, self._rows)
        return b""

    def answered(self, data: bytes) -> None:
        """Committed (no bytes), or all of it refused with a text.

        It refers to itself, so whatever it holds would stay until the collector comes: it lets go of all.
        """
        dones, results = self._dones, self._results
        if data:
            results = [Unavailable(refusal_text(data))] * len(self._rows)
        self._dones, self._rows, self._results = [], [], ()
        at = 0
        for count, done in dones:
            try:
                done(results[at : at + count])
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                raise_apart(self._engine.scheduler.soon, error)
            at += count

    def pause(self) -> bool:
        """Roles bound what they have under way themselves."""
        return False


def number(
    engine: Engine, batch: Batch, topic: Topic, headers: int, content: bytes, *, key: bytes, unless_after: int
) -> Appended:
    """Give a message its numbers within a batch, or find the append that it repeats."""
    digest = key_digest(key) if key else b""
    (result,) = _number_each(engine, batch, topic, headers, ((content, key, unless_after),), (digest,))
    if isinstance(result, PixiuError):
        raise result
    return result


def number_all(
    engine: Engine, batch: Batch, topic: Topic, rows: Sequence[tuple[bytes, bytes, int]]
) -> Sequence[Appended | PixiuError]:
    """Give messages without headers their numbers, one behind the other.

    ``rows`` are content, key, and behind which event the key must not have been appended. One that cannot be numbered
    does not keep the others.
    """
    contents, keys, after = zip(*rows, strict=True)
    digests = [key_digest(key) if key else b"" for key in keys]
    if len(rows) > 1 and engine.keys.has_none(digests, min(after)):  # the frequent case, and worth it for many
        return _number_new(engine, batch, topic, contents, keys, digests)
    return _number_each(engine, batch, topic, 0, rows, digests)


def _number_new(
    engine: Engine, batch: Batch, topic: Topic, contents: Sequence[bytes], keys: Sequence[bytes], digests: list[bytes]
) -> list[Appended]:
    """Messages under keys that are known to be new: without a look at each."""
    count, first = len(contents), batch.upcoming_event_id
    event_ids, message_ids = range(first, first + count), engine.snowflakes.next_all(batch.now_ms, count)
    messages = list(map(numbered, repeat(0), contents, message_ids, keys))
    engine.keys.add_all(digests, first, message_ids)
    KeysAdded.of(engine, batch).rows.extend(zip(digests, repeat(None)))
    batch.append(topic, Numbered(messages, message_ids, list(keys), digests, list(contents)))
    engine.state.last_message_id = message_ids[-1]
    return list(map(_new, repeat(Appended), zip(event_ids, message_ids, repeat(False))))


def _number_each(
    engine: Engine,
    batch: Batch,
    topic: Topic,
    headers: int,
    rows: Sequence[tuple[bytes, bytes, int]],
    digests: Sequence[bytes],
) -> list[Appended | PixiuError]:
    """Messages of any kind, one by one."""
    now_ms, next_id, event_id = batch.now_ms, engine.snowflakes.next, batch.upcoming_event_id
    find, remember, note = engine.keys.find, engine.keys.add, KeysAdded.of(engine, batch).rows.append
    results: list[Appended | PixiuError] = []
    messages, message_ids, used, used_digests, bodies = added = Numbered([], [], [], [], [])
    for (content, key, unless_after), digest in zip(rows, digests, strict=True):
        if key:
            try:
                before = find(digest, unless_after)
            except LookupError as error:
                results.append(Conflict(f"{BEHIND}: {error}"))
                continue
            except (PixiuError, OSError) as error:
                results.append(error if isinstance(error, PixiuError) else Unavailable(str(error)))
                continue
            if before is not None:
                results.append(Appended(before.event_id, before.message_id, True))
                continue
        message_id = next_id(now_ms)
        message = numbered(headers, content, message_id, key)
        messages.append(message)
        message_ids.append(message_id)
        used.append(key)
        used_digests.append(digest)
        bodies.append(body_of(message) if headers else content)
        if key:
            note((digest, remember(digest, event_id, message_id)))
        results.append(_new(Appended, (event_id, message_id, False)))
        event_id += 1
    if messages:
        batch.append(topic, added)
        engine.state.last_message_id = message_ids[-1]
    return results


def refusal_text(data: bytes) -> str:
    """The text of a refusal made for the wire."""
    return data[_REFUSED_HEAD_BYTES:].decode(errors="replace")
