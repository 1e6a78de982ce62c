"""What connections ask of a log in Kafka, and its answers to each of them in the order of its requests.

Kafka's batches answer in order, but a repeat, a refusal or a page that was read answers when it can: each request has a
place in the line of its connection, and is answered when those before it are.

Whoever is refused before anything was taken may ask again elsewhere. Of what was taken, and then not known to be
written, nobody knows: the answer says so (``FATE_UNKNOWN``), and a client repeats what has a key.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.responses import encode_append_answer, encode_done, encode_refused
from pixiu.model.errors import LocalProtocolError, NotFound, Overloaded, PixiuError, TooLarge, Unavailable
from pixiu.queue.operations import NOBODYS, Answer, Publish
from pixiu.queue.server.answers import OK
from pixiu.queue.storage.messages import body_of, split_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.backends.kafka.log import KafkaLog
    from pixiu.backends.kafka.served.served import ServedLog
    from pixiu.ports.log import Appended
    from pixiu.queue.operations import Change, PlainPublish
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.topics import Topic

__all__ = ["KafkaIntake", "refusal_of"]

PAUSE_PART = 2
"""Connections are read no further when this part of what may wait for Kafka does: the rest is for what they sent."""
LOOK_MS = 100
"""While connections wait to be read on, it is looked so often whether there is room."""


class _Place:
    """One answer that is owed."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: bytes | None = None


class KafkaIntake:
    """Stands where the queue's writer stands."""

    def __init__(self, served: ServedLog) -> None:
        self._served = served
        self._lines: dict[Connection, deque[_Place]] = {}
        self._paused: list[Connection] = []
        self._is_looking = False
        self.plain = NOBODYS
        """Nobody adds to it: Kafka's batches gather what comes together."""

    # What a connection hands over.

    def submit(self, operation: PlainPublish | Publish | Change | Answer, size: int) -> None:
        """Take an operation; its connection is told the answer once."""
        if type(operation) is Answer:
            self._place(operation.connection)(operation.data)
        elif type(operation) is Publish:
            self._publish(operation.connection, operation.topic, operation.messages, ask=operation.ask)
        elif isinstance(operation, tuple):
            connection, _, topic, messages = operation
            self._publish_each(topic, messages, self._place(connection))
            self._look(connection)
        else:
            raise LocalProtocolError("a change of the journal is not for a log in Kafka")

    def submit_plain(self, connection: Connection, topic: Topic, message: bytes, size: int) -> None:
        """Take a request with one small message."""
        self._publish(connection, topic, [message], ask=False)

    def pause(self, connection: Connection) -> None:
        """Do not read from this one until there is room."""
        if connection.pause():
            self._paused.append(connection)
            self._look_later()

    # What handlers ask for.

    def expect(self, connection: Connection, *, block: bool = False) -> Callable[[bytes], object]:
        """A place in the line: whoever has it answers once. With ``block`` later commands wait for that."""
        if block:
            connection.block()
        else:
            connection.expect()
        return self._place(connection)

    def append(self, connection: Connection, topic: Topic, message: bytes, key: bytes, unless_after: int) -> None:
        """Append a numbered record, once per key."""
        answer = self.expect(connection)

        def done(result: Appended | PixiuError) -> None:
            if isinstance(result, PixiuError):
                answer(refusal_of(result, is_taken=True))
            else:
                answer(encode_append_answer(result.event_id, result.message_id, repeat=result.is_repeat))

        taken = self._taken(message)
        if isinstance(taken, bytes):
            answer(taken)
            return
        log, body = taken
        log.append(topic.name.decode(), body, done, key=key, unless_after=unless_after)
        self._look(connection)

    def schedule(self, connection: Connection, topic: Topic, message: bytes, due: int) -> None:
        """Publish one message at a time."""
        answer = self.expect(connection)
        taken = self._taken(message)
        if isinstance(taken, bytes):
            answer(taken)
            return
        log, body = taken
        log.schedule(topic.name.decode(), body, due, partial(_answer_event_id, answer))

    # Publishing.

    def _publish(self, connection: Connection, topic: Topic, messages: Sequence[bytes], *, ask: bool) -> None:
        self._publish_to(topic, messages, self._place(connection), ask=ask)
        self._look(connection)

    def _publish_each(self, topic: Topic, messages: Sequence[bytes], answer: Callable[[bytes], object]) -> None:
        """Requests of one message each; what is refused at once is not answered before what is on its way."""
        answers, left = [b""] * len(messages), len(messages)

        def answered(index: int, data: bytes) -> None:
            nonlocal left
            answers[index] = data
            left -= 1
            if not left:
                answer(b"".join(answers))

        for index, message in enumerate(messages):
            self._publish_to(topic, [message], partial(answered, index), ask=False)

    def _publish_to(
        self, topic: Topic, messages: Sequence[bytes], answer: Callable[[bytes], object], *, ask: bool
    ) -> None:
        """One request: all of its messages or none."""
        bodies: list[bytes] = []
        for message in messages:
            taken = self._taken(message)
            if isinstance(taken, bytes):
                answer(taken)
                return
            log, body = taken
            bodies.append(body)

        def done(result: int | PixiuError) -> None:
            if isinstance(result, PixiuError):
                answer(refusal_of(result, is_taken=True))
            else:
                answer(encode_done(result) if ask else OK)

        log.publish_all(topic.name.decode(), bodies, done)

    def _taken(self, message: bytes) -> tuple[KafkaLog, bytes] | bytes:
        """The log that takes it and its body; or why it is not taken, as an answer."""
        log = self._served.log
        if log is None or not self._served.is_leader:
            return encode_refused(wire.LEADER_PUBLISHES)
        headers, _ = split_head(message)
        if headers:
            return encode_refused(f"{wire.IN_KAFKA}: a message has no headers of its own there")
        refusal = log.refusal(message)
        return refusal_of(refusal, is_taken=False) if refusal is not None else (log, body_of(message))

    # Answers.

    def _place(self, connection: Connection) -> Callable[[bytes], object]:
        place = _Place()
        self._lines.setdefault(connection, deque()).append(place)
        return partial(self._answered, connection, place)

    def _answered(self, connection: Connection, place: _Place, data: bytes) -> None:
        place.data = data
        line = self._lines[connection]
        while line and (ready := line[0].data) is not None:
            line.popleft()
            if not line:
                self._lines.pop(connection, None)
            connection.answered(ready)
        self._go_on()

    # How much may wait.

    def _look(self, connection: Connection) -> None:
        if self._is_full:
            self.pause(connection)

    def _go_on(self) -> None:
        if self._paused and not self._is_full:
            paused, self._paused = self._paused, []
            for connection in paused:
                connection.resume()

    def _look_later(self) -> None:
        """Room may come without an answer: of a batch that was given up everyone was told before it is decided."""
        if not self._is_looking:
            self._is_looking = True
            self._served.scheduler.after(LOOK_MS, self._looked)

    def _looked(self) -> None:
        self._is_looking = False
        self._go_on()
        if self._paused:
            self._look_later()

    @property
    def _is_full(self) -> bool:
        log = self._served.log
        return log is not None and log.sending.is_full(PAUSE_PART)


def refusal_of(error: PixiuError, *, is_taken: bool) -> bytes:
    """What a client is told, in the words that it knows the kinds of errors by."""
    if isinstance(error, Overloaded):
        text = f"{wire.OVERLOADED}: {error}"
    elif isinstance(error, TooLarge):
        text = wire.PAYLOAD_TOO_LARGE
    elif isinstance(error, NotFound):
        text = wire.TOPIC_NOT_EXIST
    elif isinstance(error, Unavailable):
        text = f"{wire.KAFKA_SILENT}: {error}" + (f"; {wire.FATE_UNKNOWN}" if is_taken else "")
    else:
        text = str(error)  # a conflict says itself that the caller is behind
    return encode_refused(text)


def _answer_event_id(answer: Callable[[bytes], object], result: int | PixiuError) -> None:
    answer(refusal_of(result, is_taken=True) if isinstance(result, PixiuError) else encode_done(result))
