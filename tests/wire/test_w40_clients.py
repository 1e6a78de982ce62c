"""W40: what smss's Go and Java clients send and how they read, down to their quirks.

The clients themselves are not in this repository; these two classes do what their sources do, where that
matters to a server: what they look at, what they ignore, and what they would misread.
"""

import itertools
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    alive,
    create,
    delay,
    delete,
    list_topics,
    message,
    now_ms,
    pub,
    sub,
    topic_info,
)
from tests.wire.fixtures import unique_name
from tests.wire.raw import Raw

NO_DATA_LIMIT_S = 35.0


class SmssError(Exception):
    """An answer that the client reports as an error."""


class GoClient:
    """The Go client: unsigned lengths; only the code of a simple answer counts."""

    error_length: ClassVar[str] = "<H"

    def __init__(self, queue: QueueProcess) -> None:
        self.raw = Raw(queue.host, queue.port)

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def simple(self, asked: bytes) -> None:
        """Send, read ten bytes, look at the code: 200 and 201 are success."""
        head = self.raw.send(asked).read_exact(10)
        if self.code(head) not in (200, 201):
            raise self.error(head)

    def code(self, head: bytes) -> int:
        """The code at 0."""
        return int(struct.unpack_from("<H", head)[0])

    def error(self, head: bytes) -> SmssError:
        """Read an error's text; its length is at 2."""
        length = int(struct.unpack_from(self.error_length, head, 2)[0])
        assert length >= 0, "a signed short would be negative"
        return SmssError(self.raw.read_exact(length).decode())

    def json(self, asked: bytes) -> Any:
        """Send and read a JSON answer; no body is no topics."""
        head = self.raw.send(asked).read_exact(10)
        if self.code(head) != 200:
            raise self.error(head)
        length = int(struct.unpack_from("<i", head, 2)[0])
        assert length >= 0
        return json.loads(self.raw.read_exact(length)) if length else []

    def create(self, name: str, expire_at: int = 0) -> None:
        """Create a topic."""
        self.simple(create(name.encode(), expire_at, trace=b"t-1"))

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.simple(delete(name.encode(), trace=b"t-2"))

    def publish(self, name: str, body: bytes, headers: dict[str, str]) -> None:
        """Publish one message; both clients send one per Pub."""
        self.simple(pub(name.encode(), self.pack(body, headers), trace=b"t-3"))

    def delay(self, name: str, body: bytes, delay_ms: int) -> None:
        """Publish one message later."""
        self.simple(delay(name.encode(), delay_ms, self.pack(body, {}), trace=b"t-4"))

    def pack(self, body: bytes, headers: dict[str, str]) -> bytes:
        """Pack a message; keys are unique and in order."""
        return message(body, [(key.encode(), value.encode()) for key, value in headers.items()])

    def alive(self) -> None:
        """The pool's health check."""
        self.simple(alive())

    def info(self, name: str) -> dict[str, Any]:
        """TopicInfo."""
        answer: dict[str, Any] = self.json(topic_info(name.encode(), trace=b"t-5"))
        return answer

    def topics(self) -> list[dict[str, Any]]:
        """List."""
        answer: list[dict[str, Any]] = self.json(list_topics(trace=b"t-6"))
        return answer

    def subscribe(
        self, name: str, event_id: int, who: str, batch: int, ack_timeout_ns: int = 10**10
    ) -> Iterator[list[tuple[int, int, dict[str, str], bytes]]]:
        """Batches of (time, event id, headers, body); asking for the next acks the one before."""
        asked = sub(name.encode(), event_id, who.encode(), batch=batch, ack_timeout_ns=ack_timeout_ns)
        self.raw.send(asked)
        while True:
            head = self.raw.read_exact(10, NO_DATA_LIMIT_S)
            match self.code(head):
                case 201:
                    continue
                case 255:
                    return
                case 200:
                    count, length = head[2], int(struct.unpack_from("<i", head, 4)[0])
                    assert count >= 1, "both clients crash on an empty batch"
                    yield self.unpack(self.raw.read_exact(length), count)
                    self.raw.send(b"\x00\x00")
                case _:
                    raise self.error(head)

    def unpack(self, body: bytes, count: int) -> list[tuple[int, int, dict[str, str], bytes]]:
        """Take a batch apart item by item, by the lengths in it."""
        messages = []
        position = 0
        for _ in range(count):
            written, event_id, _, _, content, headers = struct.unpack_from("<qqqqii", body, position)
            position += 40
            end = position + content
            found, position = self.unpack_headers(body, position, headers)
            messages.append((written, event_id, found, body[position:end]))
            position = end
        assert position == len(body)
        return messages

    def unpack_headers(self, body: bytes, position: int, count: int) -> tuple[dict[str, str], int]:
        """Read `count` headers."""
        found = {}
        for _ in range(count):
            key, position = self.unpack_text(body, position)
            value, position = self.unpack_text(body, position)
            found[key] = value
        return found, position

    def unpack_text(self, body: bytes, position: int) -> tuple[str, int]:
        """A length and as many bytes."""
        length = int(struct.unpack_from("<i", body, position)[0])
        assert length >= 0
        return body[position + 4 : position + 4 + length].decode(), position + 4 + length


class JavaClient(GoClient):
    """The Java client: signed lengths, and every code but 200 and 201 is an error with its length at 2."""

    error_length = "<h"

    def unpack_headers(self, body: bytes, position: int, count: int) -> tuple[dict[str, str], int]:
        """As the original: a header with an empty key loses its value, and the rest is read askew."""
        found = {}
        for _ in range(count):
            key, position = self.unpack_text(body, position)
            if not key:
                continue
            value, position = self.unpack_text(body, position)
            found[key] = value
        return found, position


@pytest.fixture(params=[GoClient, JavaClient], ids=["go", "java"])
def client(request: pytest.FixtureRequest, server: QueueProcess) -> Iterator[GoClient]:
    """A client of either kind on the shared server."""
    made: GoClient = request.param(server)
    yield made
    made.close()


@contextmanager
def another(client: GoClient, queue: QueueProcess) -> Iterator[GoClient]:
    """A second client of the same kind."""
    made = type(client)(queue)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.feature("W40")
def test_w40_create_info_list_delete(client: GoClient) -> None:
    name, expire_at = unique_name().decode(), now_ms() + 3_600_000
    client.create(name, expire_at)
    info = client.info(name)
    assert info["expireAt"] == expire_at
    assert info in client.topics()
    with pytest.raises(SmssError, match="topic exist"):
        client.create(name)
    client.delete(name)
    with pytest.raises(SmssError, match="topic not exist"):
        client.delete(name)
    with pytest.raises(SmssError, match="topic not exist"):
        client.info(name)
    assert name not in [topic["name"] for topic in client.topics()]
    client.alive()


@pytest.mark.feature("W40")
def test_w40_publish_and_subscribe(client: GoClient, server: QueueProcess) -> None:
    name = unique_name().decode()
    client.create(name)
    headers = {"traceId": "abc", "键": "值", "empty": ""}
    for number in range(12):
        client.publish(name, b"body %d" % number, headers)
    with another(client, server) as subscriber:
        batches = subscriber.subscribe(name, 0, "g1", 5)
        received = list(itertools.chain(next(batches), next(batches), next(batches)))
        assert [(found, body) for _, _, found, body in received] == [
            (headers, b"body %d" % number) for number in range(12)
        ]
    with another(client, server) as subscriber:
        resumed = next(subscriber.subscribe(name, received[6][1], "g1", 255))
        assert [event_id for _, event_id, _, _ in resumed] == [each[1] for each in received[7:]]


@pytest.mark.feature("W40")
def test_w40_the_end_of_a_topic_ends_the_subscription(client: GoClient, server: QueueProcess) -> None:
    name = unique_name().decode()
    client.create(name)
    client.publish(name, b"only one", {})
    with another(client, server) as subscriber:
        batches = subscriber.subscribe(name, 0, "g1", 5)
        assert len(next(batches)) == 1
        client.delete(name)
        assert list(batches) == []


@pytest.mark.feature("W40")
def test_w40_a_locked_subscriber_takes_its_turn(client: GoClient, server: QueueProcess) -> None:
    """The clients hold a lock elsewhere; the server's refusal of the second name is their backstop."""
    name = unique_name().decode()
    client.create(name)
    for number in range(4):
        client.publish(name, b"%d" % number, {})
    with another(client, server) as active, another(client, server) as standby:
        first = next(active.subscribe(name, 0, "g1", 2))
        with pytest.raises(SmssError, match="g1 regiester exist"):
            next(standby.subscribe(name, 0, "g1", 2))
        active.close()
        while True:
            with another(client, server) as again:
                try:
                    taken = next(again.subscribe(name, first[-1][1], "g1", 2))
                except SmssError:
                    continue
                break
        assert [body for _, _, _, body in taken] == [b"2", b"3"]


@pytest.mark.feature("W40")
def test_w40_the_pool_checks_a_connection_whenever_it_likes(client: GoClient) -> None:
    name = unique_name().decode()
    client.alive()
    client.create(name)
    client.alive()
    with pytest.raises(SmssError):
        client.create("bad name")
    client.alive()
    client.publish(name, b"body", {})
    client.alive()


@pytest.mark.feature("W40")
def test_w40_a_delayed_message_is_refused_with_a_reason_or_accepted(client: GoClient) -> None:
    name = unique_name().decode()
    client.create(name)
    with pytest.raises(SmssError, match="delay time must be more than 1 second"):
        client.delay(name, b"too soon", 999)
    client.delay(name, b"in a week", 7 * 86_400_000)
    client.delete(name)


@pytest.mark.feature("W40")
def test_w40_a_client_that_terminates_without_ack_just_closes(client: GoClient, server: QueueProcess) -> None:
    name = unique_name().decode()
    client.create(name)
    client.publish(name, b"again", {})
    for number in range(3):
        with another(client, server) as subscriber:
            assert next(subscriber.subscribe(name, 0, f"g{number}", 1))[0][3] == b"again"
