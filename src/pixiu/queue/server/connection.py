"""One connection of the queue's port: bytes in, commands out, answers in order.

The parser is incremental and copies nothing it does not keep; no field makes it allocate ahead of the bytes that
arrive. Publishing is by far the most frequent request, and a connection mostly repeats itself, so a request that begins
with the same bytes as the one before it (header, topic, sizes) is taken without looking at those bytes again.

Order of answers: publishes, appends and delays wait for the disk together, and their answers come in the order of the
requests. Any other command waits until those before it are answered, so it sees what they did.

Bound per turn: requests have a cost, which follows from their messages, bytes and answers. All connections together
have ``TURN_COST_MAX`` in a turn of the loop, and one has a share of it while others wait. Then the connection takes its
next request in a later turn, once its earlier requests are answered. Meanwhile the process serves chat users.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.messages import split_messages
from pixiu.machines.queue_wire.responses import encode_done, encode_refused
from pixiu.model.errors import PixiuError
from pixiu.queue.operations import Answer, Publish
from pixiu.queue.server import stray_http
from pixiu.queue.server.answers import OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.engine import Engine
    from pixiu.queue.operations import Change
    from pixiu.queue.server.server import QueueServer
    from pixiu.queue.storage.topics import Topic

log = logging.getLogger(__name__)

READ_AHEAD_BYTES_MAX = 1 * 2**20
"""How much a connection may send while its earlier commands wait to be answered."""

DRAIN_BYTES_MAX = 64 * 2**20
"""What is read and dropped of a client that was refused, so that it gets to read why before the connection ends."""

REQUEST_BYTES_PER_SECOND = 16 * 1024
"""A request that arrives more slowly than this, beyond ``request_timeout_ms``, is given up."""

PLAIN_BYTES_MAX = 4096
"""Payloads up to this take the short way through the writer."""

MESSAGES_MAX = 65_536
"""Messages in one publish."""

TURN_COST_MAX = 2000
"""Cost of the requests that are handled in one turn, of one connection or of all; a unit is about 10 µs of CPU."""

PARTIAL_BYTES_FREE = 64 * 1024
"""Bytes of an incomplete request that a connection may have, however many other connections have."""

MESSAGES_PER_COST = 4
"""Messages of one publish or delay that cost one unit."""

ANSWER_BYTES_PER_COST = 64
"""Bytes of an answer that cost one unit: most long answers are lists, and their cost is making the rows."""

PUBLISH_BYTES_PER_COST = 256
"""Bytes of publishes that begin like the one before them, and cost one unit."""

EXTENSION_OVERHEAD_BYTES = 1024
"""What an extension's part may have around a payload: numbers, a key, a name."""

PIPELINED = frozenset({wire.APPEND, wire.DELAY})
"""Commands that need not wait for the answers before them: the writer orders them."""

WITH_EIGHT_BYTES = frozenset({wire.CREATE_TOPIC, wire.REPLICA, wire.VALID_LIST})

_U32 = Struct("<I")
_HEADER = Struct("<BHI")


class Transport(Protocol):
    """What a connection needs of a socket."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...


class Stream(Protocol):
    """A mode in which the connection's bytes are not commands: subscribing, following."""

    def receive(self, data: bytes) -> None:
        """Bytes from the peer."""
        ...

    def close(self) -> None:
        """The connection is gone."""
        ...


class Request:
    """One whole command other than Pub."""

    __slots__ = ("command", "flags", "header", "name", "part")

    def __init__(self, command: int, header: bytes, name: bytes, part: bytes) -> None:
        self.command = command
        self.header = header
        self.name = name
        self.part = part
        self.flags = header[7]


class Connection:
    """One client, or follower. Used as the protocol object of the event loop's transport."""

    __slots__ = (
        "_buffered",
        "_cost",
        "_drain_left",
        "_engine",
        "_has_eof",
        "_is_blocked",
        "_is_closing",
        "_is_held",
        "_is_paused",
        "_need",
        "_outstanding",
        "_partial_since_us",
        "_parts",
        "_plain_bytes",
        "_prefix",
        "_prefix_bytes",
        "_request_bytes",
        "_server",
        "_skip",
        "_spent",
        "_stream",
        "_submit",
        "_topic",
        "_writer",
        "blocked_since_us",
        "can_write",
        "challenge",
        "is_heard",
        "is_node",
        "last_seen_us",
        "transport",
        "wake_stream",
    )  # fmt: skip

    def __init__(self, engine: Engine, server: QueueServer) -> None:
        self._engine = engine
        self._server = server
        self._writer = engine.writer
        self._submit = engine.writer.submit
        self.transport: Transport | None = None
        self._parts: list[bytes] = []
        self._buffered = 0
        self._need = 0
        self._cost = 0
        """Of the requests since this connection last waited for a turn of the loop."""
        self._spent = 0
        """The part of ``_cost`` that the server has counted."""
        self._outstanding = 0
        self._is_blocked = False
        self._is_closing = False
        self._is_held = False
        """Blocked or closing: something is to be done once everything is answered."""
        self._drain_left = 0
        """How many bytes are still to be read and dropped; 0 unless it was refused and ends."""
        self._partial_since_us = 0
        """Since when a request is incomplete, as far as the server has looked; 0: not looked yet."""
        self._has_eof = False
        self._is_paused = False
        self._stream: Stream | None = None
        self.is_node = False
        """Has it shown the node's key?"""
        self.challenge = b""
        """What it was told to prove its key with; good for one proof."""
        self.can_write = True
        self.blocked_since_us = 0
        self.wake_stream: Callable[[], object] | None = None
        """Called when the socket takes bytes again."""
        self.is_heard = True
        self.last_seen_us = 0
        # The request before this one, if it was a plain publish: what it began with, and how long it was.
        self._prefix: bytes | None = None
        self._prefix_bytes = 0
        self._topic: Topic | None = None
        self._skip = 0
        self._request_bytes = 0
        self._plain_bytes = 0
        """The same, while a read may be one such request and nothing else; 0 in a stream or behind a part of one."""

    # What the event loop calls.

    def connection_made(self, transport: Transport) -> None:
        """A client is here."""
        self.transport = transport
        self._server.opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """It is gone: whatever it held is free."""
        self._is_closing = self._is_held = True
        self.transport = None
        self._drop_parts()
        self._server.closed(self)
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()

    def eof_received(self) -> bool:
        """The peer will send no more. True keeps the way back open, for answers that still wait."""
        if self._stream is not None or not (self._outstanding or self._is_blocked):
            return False
        self._has_eof = self._is_held = True
        return True

    def pause_writing(self) -> None:
        """The socket is full: what this client asks next has to wait until it takes its answers."""
        self.can_write = False
        self.blocked_since_us = self._engine.clock.monotonic_us()
        if self._stream is None:
            self.pause()

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self.can_write = True
        self.resume()
        if self._parts and not self._is_blocked and self._buffered >= self._need:
            self._parse_parts()
        if self.wake_stream is not None:
            self.wake_stream()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        self.is_heard = True
        size = len(data)
        if size == self._plain_bytes and not self._is_held and data[: self._prefix_bytes] == self._prefix:
            plain = self._writer.plain
            if plain.topic is self._topic:
                self._outstanding += 1
                plain.messages.append(data[self._skip :])
                plain.connections.append(self)
                plain.room = room = plain.room - size
                if room < 0:
                    self._writer.pause(self)
                return
        if self._stream is not None:
            self._stream.receive(data)
        elif not self._parts and not self._is_held:
            self._parse(data)
        elif self._parts or self._is_blocked:
            self._parts.append(data)
            self._plain_bytes = 0
            self._buffered += size
            self._server.buffered_bytes += size
            if self._is_blocked or not self.can_write:
                if self._buffered > self._read_ahead_max:
                    self.pause()
            elif self._buffered >= self._need:
                self._parse_parts()
            elif self._buffered > PARTIAL_BYTES_FREE and self._server.is_full:
                self._refuse_partial()
        elif self._drain_left:
            self._drain_left -= size
            if self._drain_left <= 0:
                self.abort()

    # Parsing.

    def _parse_parts(self) -> None:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._drop_parts()
        self._parse(data)

    def _drop_parts(self) -> None:
        self._parts.clear()
        self._server.buffered_bytes -= self._buffered
        self._buffered = 0

    @property
    def _read_ahead_max(self) -> int:
        return PARTIAL_BYTES_FREE if self._server.is_full else READ_AHEAD_BYTES_MAX

    def _refuse_partial(self) -> None:
        most = self._engine.settings.partial_bytes_max
        self.refuse_and_close(
            f"{wire.REQUEST_INCOMPLETE}, and the incomplete requests of all connections have {most} bytes already "
            "(queue.partial_bytes_max): try again later"
        )

    def _keep(self, data: bytes, position: int, need: int) -> None:
        """Not enough for the next request: keep the rest until ``need`` bytes are there."""
        rest = data[position:] if position else data
        if rest:
            self._parts.append(rest)
            self._buffered = len(rest)
            self._server.buffered_bytes += len(rest)
            self._plain_bytes = 0
        self._need = need
        self._partial_since_us = 0

    def _parse(self, data: bytes) -> None:
        """Take every whole request out of ``data``, as far as this turn of the loop allows it."""
        self._parse_in_turn(data)
        if self._cost > self._spent:
            self._server.spend(self._cost - self._spent)
            self._spent = self._cost

    def _parse_in_turn(self, data: bytes) -> None:
        position = 0
        size = len(data)
        most = self._spent + self._server.turn_share
        while position < size and not self._is_closing:
            if self._cost > most:
                self._wait_for_turn()
                self._keep(data, position, 0)
                return
            prefix = self._prefix
            if prefix is not None and data.startswith(prefix, position):
                taken = self._take_same(data, position, size)
                if taken is not None:
                    if taken == position:
                        self._keep(data, position, self._request_bytes)
                        return
                    position = taken
                    continue
            result = self._take_any(data, position, size)
            if result < 0:
                self._keep(data, position, -result)
                return
            position = result
            if self._is_blocked or not self.can_write:
                self._keep(data, position, 0)
                return
            if self._stream is not None:
                if position < size:
                    self._stream.receive(data[position:])
                return

    def _take_same(self, data: bytes, position: int, size: int) -> int | None:
        """Publishes that begin like the last one. Returns where they end, or None if the topic is no more."""
        topic = self._topic
        if topic is None or topic.is_deleted:
            self._prefix = None
            return None
        prefix, skip, length = self._prefix, self._skip, self._request_bytes
        assert prefix is not None
        messages: list[bytes] = []
        end = position + length
        while end <= size and data.startswith(prefix, position):
            messages.append(data[position + skip : end])
            position = end
            end += length
        self._plain_bytes = length
        if len(messages) == 1:
            self._outstanding += 1
            self._writer.submit_plain(self, topic, messages[0], length)
        elif messages:
            self._outstanding += 1
            self._cost += len(messages) * length // PUBLISH_BYTES_PER_COST
            self._submit((self, OK * len(messages), topic, messages), len(messages) * length)
        return position

    def _take_any(self, data: bytes, position: int, size: int) -> int:
        """One request of any kind. Returns where it ends, or minus the bytes that it needs from ``position``."""
        self._cost += 1
        if data[position] in stray_http.FIRST_BYTES and stray_http.is_http(data, position):
            self.refuse_and_close(stray_http.answer(self._server.http_address))
            return size
        if size - position < 20:
            return -20
        header: tuple[int, int, int] = _HEADER.unpack_from(data, position)
        command, name_bytes, number = header
        name_at = position + 20
        part_at = name_at + name_bytes + data[position + 19]
        if command == wire.PUB:
            return self._take_publish(data, position, part_at, number, name_bytes)
        if self._outstanding and command not in PIPELINED:
            self._is_blocked = self._is_held = True
            return position
        if size < part_at:
            return position - part_at
        part_bytes = self._part_bytes(command, data, position, part_at, number)
        if part_bytes < 0:
            return position - part_at + part_bytes
        end = part_at + part_bytes
        overhead = 8 if command == wire.DELAY else EXTENSION_OVERHEAD_BYTES
        if part_bytes > self._engine.settings.payload_bytes_max + overhead:
            self.refuse_and_close(wire.PAYLOAD_TOO_LARGE)
            return size
        if size < end:
            return position - end
        self._dispatch(
            Request(command, data[position:name_at], data[name_at : name_at + name_bytes], data[part_at:end])
        )
        return end

    def _part_bytes(self, command: int, data: bytes, position: int, part_at: int, number: int) -> int:
        """Size of a command's own part, or minus the bytes of it that must be there to know."""
        if command == wire.SUB:
            fixed = 20 if data[position + 4] == 1 else 12
            if len(data) < part_at + fixed:
                return -fixed
            name_bytes: int = _U32.unpack_from(data, part_at + fixed - 4)[0]
            if name_bytes > self._engine.settings.subscriber_name_bytes_max:
                self.refuse_and_close("subscriber name is too long")
                return 0
            return fixed + name_bytes
        if command == wire.DELAY:
            return 8 + number
        if command >= wire.EXTENSION_FIRST:
            return number if command <= wire.EXTENSION_LAST else 0
        return 8 if command in WITH_EIGHT_BYTES else 0

    def _take_publish(self, data: bytes, position: int, part_at: int, payload_bytes: int, name_bytes: int) -> int:
        end = part_at + payload_bytes
        if payload_bytes > self._engine.settings.payload_bytes_max:
            self.refuse_and_close(wire.PAYLOAD_TOO_LARGE)
            return len(data)
        if len(data) < end:
            return position - end
        payload = data[part_at:end]
        ask = data[position + 7] == wire.FLAG_WANT_EVENT_ID
        if payload_bytes <= 8:
            self.answer(encode_refused(wire.PAYLOAD_TOO_SMALL))
            return end
        messages = split_messages(payload, count_max=MESSAGES_MAX)
        if messages is None or len(messages) > MESSAGES_MAX:
            self.answer(encode_refused(wire.BAD_PUB_PAYLOAD if messages is None else wire.TOO_MANY_MESSAGES))
            return end
        self._cost += len(messages) // MESSAGES_PER_COST
        name = data[position + 20 : position + 20 + name_bytes]
        elsewhere = self._engine.publish_elsewhere
        if elsewhere is not None:
            self.block()
            elsewhere(name, messages, self.is_node, lambda result: self.answered(_published(result, ask=ask)))
            return end
        try:
            topic = self._engine.topic_to_publish(name, self.is_node)
        except PixiuError as error:
            self.answer(encode_refused(str(error)))
            return end
        self._outstanding += 1
        if len(messages) > 1 or ask or payload_bytes > PLAIN_BYTES_MAX:
            self._submit(Publish(self, topic, messages, ask=ask), end - position)
            return end
        if payload[4:8] == b"\0\0\0\0":
            self._prefix = data[position : part_at + 8]
            self._prefix_bytes = len(self._prefix)
            self._topic = topic
            self._skip = part_at - position
            self._plain_bytes = self._request_bytes = end - position
        self._writer.submit_plain(self, topic, payload, end - position)
        return end

    def _dispatch(self, request: Request) -> None:
        if self._is_closing:
            return
        handler = self._server.handlers.get(request.command)
        if handler is None:
            self.answer(encode_refused(wire.DONT_SUPPORT_ACTION))
            return
        try:
            handler(self._engine, self, request)
        except PixiuError as error:
            self._engine.counters.refused += 1
            self.answer(encode_refused(str(error)))

    def _wait_for_turn(self) -> None:
        """Take the next request in a later turn of the loop, once those before it are answered."""
        self._server.spend(self._cost - self._spent)
        self._cost = self._spent = 0
        self.block()
        self._server.in_turn(self._turn_came)

    def _turn_came(self) -> None:
        self._outstanding -= 1
        if self.transport is not None and not self._outstanding:
            self._settle_or_abort()

    # What handlers and the writer use.

    def charge(self, cost: int) -> None:
        """Add to the cost of this connection's requests, see ``TURN_COST_MAX``."""
        self._cost += cost

    def in_turn(self, call: Callable[[], object]) -> None:
        """Continue a request in a later turn: what it has cost so far counts in this one."""
        self._server.spend(self._cost - self._spent)
        self._spent = self._cost
        self._server.in_turn(call)

    def submit(self, change: Change, *, block: bool = False) -> None:
        """Hand a change to the writer; with ``block`` later commands wait for its answer."""
        self._outstanding += 1
        if block:
            self._is_blocked = self._is_held = True
        self._submit(change, change.size)

    def answer(self, data: bytes) -> None:
        """Answer a request that needs no disk, behind those that do."""
        self._cost += len(data) // ANSWER_BYTES_PER_COST
        if self._outstanding:
            self._outstanding += 1
            self._submit(Answer(self, data), 0)
        else:
            self.write(data)

    def answered(self, data: bytes) -> None:
        """The writer's answer to one operation."""
        self._outstanding -= 1
        transport = self.transport
        if transport is not None:
            transport.write(data)
            if self._is_held and not self._outstanding:
                self._settle_or_abort()

    def _settle_or_abort(self) -> None:
        try:
            self._settled()
        except Exception:
            self.abort()  # as the loop does when ``data_received`` fails: the state of its requests is unknown
            raise

    def _settled(self) -> None:
        """Everything is answered: go on with what had to wait, or close as announced."""
        if self._is_closing:
            self._end_writing() if self._drain_left else self.close()
            return
        self._is_blocked = False
        self._is_held = self._has_eof
        self.resume()
        if self._parts:
            self._parse_parts()
        if self._has_eof and not self._outstanding and not self._is_blocked and self._stream is None:
            self.close()

    def block(self) -> None:
        """Take no further command until ``answered`` has been called once for this."""
        self._outstanding += 1
        self._is_blocked = self._is_held = True

    def expect(self) -> None:
        """``answered`` will be called once for this, behind what was asked before."""
        self._outstanding += 1

    def write(self, data: bytes) -> None:
        """Send bytes, unless the client is gone."""
        if self.transport is not None:
            self.transport.write(data)

    def begin_stream(self, stream: Stream) -> None:
        """From now on the peer's bytes go to ``stream``."""
        self._stream = stream
        self._plain_bytes = 0

    def stream_ended(self, last_words: bytes, leftover: bytes) -> None:
        """The stream is over; the connection takes commands again, beginning with what it did not use."""
        self._stream = None
        self.wake_stream = None
        self.write(last_words)
        if leftover and self.transport is not None:
            self._parse(leftover)

    def refuse_and_close(self, text: str | bytes) -> None:
        """Refuse a request whose end is not known, and end the connection; bytes are the answer as it is.

        What the client still sends is read and dropped, up to a bound: closing with unread bytes would reset the
        connection, and the client could lose the answer.
        """
        self._is_closing = self._is_held = True
        self._drain_left = DRAIN_BYTES_MAX
        self._drop_parts()
        self.answer(text if isinstance(text, bytes) else encode_refused(text))
        if not self._outstanding:
            self._end_writing()

    def _end_writing(self) -> None:
        """Tell the client that no answer follows, and wait until it closes or sends too much."""
        if self.transport is not None:
            self._partial_since_us = 0
            self.resume()
            self._server.end_writing(self.transport)

    def close(self) -> None:
        """Close once everything written so far is sent."""
        self._is_closing = self._is_held = True
        if self.transport is not None:
            self.transport.close()

    def pause(self) -> bool:
        """Stop reading from this client. False if it was stopped already."""
        if self._is_paused or self.transport is None:
            return False
        self._is_paused = True
        self.transport.pause_reading()
        return True

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            if self.transport is not None:
                self.transport.resume_reading()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._is_closing = self._is_held = True
        if self.transport is not None:
            self._server.reset_on_close(self.transport)
            self.transport.abort()

    def is_stalled(self, now_us: int) -> bool:
        """Has it taken no byte for too long? Followers, who are sent much, get more patience."""
        settings = self._engine.settings
        timeout_ms = settings.write_timeout_ms if self.wake_stream is None else settings.replica_write_timeout_ms
        return not self.can_write and now_us - self.blocked_since_us > timeout_ms * 1000

    def is_late(self, now_us: int) -> bool:
        """Whether a request that has begun to arrive is overdue, or a client that was refused does not close."""
        is_partial = self._parts and self._buffered < self._need and self.can_write and not self._is_blocked
        if self._is_paused or not (is_partial or self._drain_left):
            self._partial_since_us = 0
            return False
        if not self._partial_since_us:
            self._partial_since_us = now_us
        timeout_us = self._engine.settings.request_timeout_ms * 1000
        waited_us = now_us - self._partial_since_us
        if self._drain_left:
            return waited_us > timeout_us and not self._outstanding
        silent_us = now_us - max(self.last_seen_us, self._partial_since_us)
        allowed_us = timeout_us + self._buffered * 1_000_000 // REQUEST_BYTES_PER_SECOND
        return silent_us > timeout_us or waited_us > allowed_us

    def give_up(self) -> None:
        """End a connection that is late."""
        if self._drain_left:
            self.abort()
        else:
            came = f"{self._buffered} of at least {self._need} bytes"
            timeout_ms = self._engine.settings.request_timeout_ms
            self.refuse_and_close(
                f"{wire.REQUEST_INCOMPLETE}: {came} within {timeout_ms} ms (queue.request_timeout_ms)"
            )

    @property
    def is_idle(self) -> bool:
        """In the command loop, with nothing to answer?"""
        return self._stream is None and not self._outstanding


def _published(result: int | PixiuError, *, ask: bool) -> bytes:
    if isinstance(result, PixiuError):
        return encode_refused(str(result))
    return encode_done(result) if ask else OK
