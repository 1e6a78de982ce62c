"""What a log in Kafka is asked for through the queue's port when not all of it can be taken. With a real Kafka."""

from __future__ import annotations

import asyncio
import struct
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka import batch as batch_module
from pixiu.backends.kafka import log as log_module
from pixiu.backends.kafka import owner as owner_module
from pixiu.backends.kafka.served import behind as behind_module
from pixiu.backends.kafka.served.metrics import snapshot
from pixiu.config import KafkaSettings
from pixiu.machines.queue_wire import Message, pack
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.log_answers import decode_topic_rows
from pixiu.model.errors import Unavailable
from pixiu.ports.log import DEAD, MAIN
from pixiu.queue.client import Client
from tests.kafka import Driven, new_prefix
from tests.kafka_port import KEY, Port, all_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


async def connected(port: Port) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has shown the key."""
    reader, writer = await asyncio.open_connection(*port.address.rsplit(":", 1))
    writer.write(wire.encode_authorize(KEY.encode()))
    assert (await reader.readexactly(10))[:2] == struct.pack("<H", 200)
    return reader, writer


async def code_of_next(reader: asyncio.StreamReader) -> int:
    """Of an answer to a publish; what a refusal says is left aside."""
    code, size = struct.unpack("<HH6x", await reader.readexactly(10))
    if code == 400:
        await reader.readexactly(size)
    return int(code)


def publishes(count: int) -> bytes:
    """Requests of one message each."""
    return b"".join(wire.encode_pub(MAIN.encode(), pack([Message.of(b"%03d" % each)])) for each in range(count))


def test_of_many_publishes_the_refused_ones_are_told_so_and_no_others(open_port: Callable[..., Port]) -> None:
    """They come together, and the last are known to be too many before the first are written."""
    port = open_port(settings=KafkaSettings(pending_max=10))

    async def work() -> tuple[list[int], list[bytes]]:
        reader, writer = await connected(port)
        writer.write(publishes(30))
        async with asyncio.timeout(30):
            codes = [await code_of_next(reader) for _ in range(30)]
        writer.close()
        return codes, await all_of(port)

    codes, said = port.run(work())
    assert codes == [200] * 10 + [400] * 20
    assert said == [b"%03d" % each for each in range(10)]


def test_messages_of_one_request_are_taken_all_or_none(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than may wait, and than a batch has: no part of them is refused, or written without the rest."""
    monkeypatch.setattr(batch_module, "COUNT_MAX", 4)
    port = open_port(settings=KafkaSettings(pending_max=10))
    before = port.log.counters.batches

    async def work() -> tuple[range, list[bytes]]:
        async with Client(port.address, key=KEY) as client:
            event_ids = await client.publish_many(MAIN, [b"%d" % each for each in range(25)])
        return event_ids, await all_of(port)

    event_ids, said = port.run(work())
    assert event_ids == range(port.log.committed - 24, port.log.committed + 1)
    assert said == [b"%d" % each for each in range(25)]
    assert port.log.counters.batches == before + 1


def test_who_was_not_read_on_is_when_a_batch_that_was_given_up_is_decided(
    open_port: Callable[..., Port], kafka: KafkaServer
) -> None:
    port = open_port(settings=KafkaSettings(pending_max=20, append_timeout_ms=300))

    async def work() -> list[int]:
        reader, writer = await connected(port)
        kafka.freeze()
        try:
            writer.write(publishes(15))
            async with asyncio.timeout(30):
                codes = [await code_of_next(reader) for _ in range(15)]
        finally:
            kafka.thaw()
        writer.write(wire.encode_alive())
        async with asyncio.timeout(30):
            assert (await reader.readexactly(10))[:2] == struct.pack("<H", 201)
        writer.close()
        return codes

    assert port.run(work()) == [400] * 15


def test_a_flush_is_told_while_others_go_on_writing(open_port: Callable[..., Port]) -> None:
    port = open_port()
    flushed: list[bool] = []

    def again(_: object) -> None:
        if not flushed:
            port.log.publish(MAIN, b"more", again)

    again(None)
    port.log.when_flushed(lambda: flushed.append(True))
    port.until(lambda: bool(flushed), seconds=20)
    port.until(lambda: not port.log.is_busy)


def test_a_log_that_is_closed_while_it_is_claimed_stays_closed(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is over when it has fenced the other already."""
    driven = Driven(kafka.hosts, new_prefix())
    came, go_on = Event(), Event()
    state = driven.log._owner._state

    def held() -> Any:
        came.set()
        go_on.wait(30)
        return state()

    monkeypatch.setattr(driven.log._owner, "_state", held)
    opened: list[Any] = []
    driven.log.open(opened.append)
    driven.until(came.is_set)
    driven.log.close()
    go_on.set()
    driven.until(lambda: bool(opened))
    assert isinstance(opened[0], Unavailable) and not driven.log.is_owner
    assert isinstance(driven.log.refusal(b""), Unavailable)
    driven.close()


def test_readers_go_with_the_tenure_that_they_were_for(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind_module, "READ_COUNT", 5)
    port = open_port()

    async def say() -> None:
        async with Client(port.address, key=KEY) as client:
            await client.publish_many(MAIN, [b"%d" % each for each in range(30)])

    port.run(say())
    came: list[Any] = []
    port.served.read_behind(0, came.append)
    port.until(lambda: bool(came))
    assert isinstance(came[0], list) and len(port.served._behind._readers) == 1
    port.served.end()
    port.until(lambda: not port.served._behind._readers)


def test_a_page_of_no_rows_has_none(open_port: Callable[..., Port]) -> None:
    prefix = new_prefix()
    first = open_port(prefix)

    async def say() -> None:
        async with Client(first.address, key=KEY) as client:
            await client.publish(DEAD, b"letter")

    first.run(say())
    first.close()
    port = open_port(prefix)

    async def work() -> Any:
        async with Client(port.address, key=KEY) as client:
            request = wire.encode_read_topic(DEAD.encode(), after=0, limit=0)
            return decode_topic_rows(await client.ask(DEAD, request, "reading"))

    assert port.run(work()) == (0, [])


def test_the_lag_is_that_of_the_slowest_feed_also_while_nothing_is_written(open_port: Callable[..., Port]) -> None:
    port = open_port()

    async def work() -> None:
        async with Client(port.address, key=KEY) as client:
            await client.publish_many(MAIN, [b"%d" % each for each in range(30)])
            last = port.log.committed
            reader, writer = await connected(port)
            writer.write(wire.encode_feed(after=last))
            await reader.readexactly(10)
            behind = next(iter(port.served.feeds))
            behind.event_id = last - 7
            assert snapshot(port.served, 0)["pixiu_kafka_lag_events"] == 7
            behind.event_id = last
            assert snapshot(port.served, 0)["pixiu_kafka_lag_events"] == 0
            writer.close()

    port.run(work())


def test_an_owner_who_looks_at_a_dead_kafka_is_closed_soon(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "ANSWER_MS", 1e9)
    monkeypatch.setattr(log_module, "LOOK_MS", 50)
    driven = Driven(kafka.hosts, new_prefix())
    driven.open()
    kafka.freeze()
    try:
        driven.pass_ms(500)  # a look that had begun before is over
        driven.until(lambda: driven.log._is_looking)
        driven.log.close()
        is_over: list[object] = []
        driven.thread.offload(lambda: None, is_over.append)  # behind what it does
        driven.until(lambda: bool(is_over))
    finally:
        kafka.thaw()
    driven.close()
