"""A socket that speaks the queue's protocol one field at a time.

A test says what must come, to the byte; anything else, or nothing in time, is a failure that shows what came.
"""

import json
import socket
import time
from types import TracebackType
from typing import Any, Self

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    ACK_GO_ON,
    ALIVE_ANSWER,
    AUTHORIZE,
    OK,
    SUB_END,
    Block,
    Item,
    alive,
    append,
    block_of,
    create,
    delete,
    extension,
    from_i64,
    items_of,
    list_topics,
    message,
    pub,
    topic_info,
    u16,
)


class Closed(Exception):
    """The server closed the connection."""


class Raw:
    """A socket that reads exactly what a test says and fails loudly when something else comes."""

    def __init__(self, host: str, port: int, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_s = timeout_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close; the server sees the end at once."""
        self.socket.close()

    def send(self, raw: bytes) -> Self:
        """Send everything."""
        self.socket.sendall(raw)
        return self

    def show_key(self, queue: QueueProcess) -> Self:
        """Authorize with the key of the server's data directory."""
        self.extension(AUTHORIZE, part=queue.key.encode()).ok()
        return self

    def read_exact(self, count: int, timeout_s: float | None = None) -> bytes:
        """Read `count` bytes, or raise `Closed` or TimeoutError."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pieces = bytearray()
        while len(pieces) < count:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                piece = self.socket.recv(count - len(pieces))
            except TimeoutError:
                raise TimeoutError(f"wanted {count} bytes, have {bytes(pieces).hex(' ')!r}") from None
            except ConnectionError as error:
                raise Closed(str(error)) from None
            finally:
                self.socket.settimeout(self.timeout_s)
            if not piece:
                raise Closed(f"wanted {count} bytes, have {bytes(pieces).hex(' ')!r}")
            pieces += piece
        return bytes(pieces)

    def answer(self, timeout_s: float | None = None) -> tuple[int, bytes]:
        """The next header: its code, and bytes 2..9."""
        head = self.read_exact(10, timeout_s)
        return int.from_bytes(head[:2], "little"), head[2:]

    def ok(self, timeout_s: float | None = None) -> None:
        """Expect a plain 200: not a byte of it may differ."""
        got = self.read_exact(10, timeout_s)
        assert got == OK, self._explain(got)

    def ok_with_id(self) -> int:
        """Expect a 200 that carries an i64."""
        code, rest = self.answer()
        assert code == 200, self._explain(u16(code) + rest)
        return from_i64(rest)

    def alive(self, timeout_s: float | None = None) -> None:
        """Expect a 201."""
        got = self.read_exact(10, timeout_s)
        assert got == ALIVE_ANSWER, self._explain(got)

    def sub_end(self, timeout_s: float | None = None) -> None:
        """Expect a 255."""
        got = self.read_exact(10, timeout_s)
        assert got == SUB_END, self._explain(got)

    def error(self, timeout_s: float | None = None) -> str:
        """Expect a 400 and return its text."""
        code, rest = self.answer(timeout_s)
        assert code == 400, self._explain(u16(code) + rest)
        assert rest[2:] == bytes(6), rest.hex(" ")
        length = int.from_bytes(rest[:2], "little")
        assert 0 < length < 32768
        return self.read_exact(length).decode()

    def raw_json(self) -> bytes:
        """Expect a JSON answer and return its bytes."""
        code, rest = self.answer()
        assert code == 200, self._explain(u16(code) + rest)
        assert rest[4:] == bytes(4), rest.hex(" ")
        return self.read_exact(int.from_bytes(rest[:4], "little"))

    def json(self) -> Any:
        """Expect a JSON answer; an empty body is an empty list."""
        raw = self.raw_json()
        return json.loads(raw) if raw else []

    def push(self, timeout_s: float | None = None) -> list[Item]:
        """Expect one push; the acknowledgement is the caller's."""
        code, rest = self.answer(timeout_s)
        assert code == 200, self._explain(u16(code) + rest)
        assert rest[1] == 0
        assert rest[6:] == bytes(2)
        assert rest[0] >= 1
        return items_of(self.read_exact(int.from_bytes(rest[2:6], "little")), rest[0])

    def consume(self, count: int) -> list[Item]:
        """Read and ack pushes until `count` messages have come; more than that is an error."""
        items: list[Item] = []
        while len(items) < count:
            items += self.push()
            self.send(ACK_GO_ON)
        assert len(items) == count
        return items

    def block(self, timeout_s: float | None = None) -> Block:
        """Expect one replica block."""
        self.ok(timeout_s)
        return block_of(self.read_exact(int.from_bytes(self.read_exact(4), "little")))

    def blocks_until(self, event_id: int) -> list[Block]:
        """Replica blocks up to and including the one that holds this event id."""
        blocks = [self.block()]
        while blocks[-1].last_event_id < event_id:
            blocks.append(self.block())
        return blocks

    def closed(self, timeout_s: float | None = None) -> None:
        """Expect the connection to end without another byte."""
        try:
            got = self.read_exact(1, timeout_s)
        except Closed:
            return
        raise AssertionError(f"expected the connection to close, got {got.hex()}")

    def quiet(self, seconds: float = 0.05) -> None:
        """Expect nothing at all for a while."""
        try:
            got = self.read_exact(1, seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected silence, got {got.hex()}")

    def _explain(self, head: bytes) -> str:
        if head[:2] == u16(400):
            text = self.read_exact(int.from_bytes(head[2:4], "little"))
            return f"400 {text.decode(errors='replace')!r}"
        return head.hex(" ")

    # Whole exchanges, for the parts of a test that are not what it is about.

    def create(self, name: bytes, expire_at: int = 0) -> bytes:
        """Create a topic and return its name."""
        self.send(create(name, expire_at)).ok()
        return name

    def delete(self, name: bytes) -> None:
        """Delete a topic."""
        self.send(delete(name)).ok()

    def pub(self, name: bytes, *bodies: bytes) -> None:
        """Publish plain bodies, all in one Pub."""
        self.send(pub(name, b"".join(message(body) for body in bodies))).ok()

    def refused(self, raw: bytes) -> str:
        """Send a request that must be answered 400, check that the connection goes on, return the text."""
        self.send(raw)
        text = self.error()
        self.send(alive()).alive()
        return text

    def info(self, name: bytes) -> dict[str, Any]:
        """TopicInfo."""
        answer: dict[str, Any] = self.send(topic_info(name)).json()
        return answer

    def topics(self) -> list[str]:
        """The names that List shows."""
        return [str(topic["name"]) for topic in self.send(list_topics()).json()]

    def extension(self, command: int, name: bytes = b"", part: bytes = b"", *, flags: int = 0) -> Self:
        """Send an extension request."""
        return self.send(extension(command, name, part, flags=flags))

    def append(self, name: bytes, key: bytes, packed: bytes, unless_after: int = 0) -> tuple[int, int, bool]:
        """Append and return event id, message id and whether it was a repeat."""
        body = self.send(append(name, key, packed, unless_after)).raw_json()
        assert len(body) == 17
        assert body[16] in (0, 1)
        return from_i64(body[:8]), from_i64(body[8:16]), body[16] == 1
