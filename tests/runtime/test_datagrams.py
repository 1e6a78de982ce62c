"""Links over real sockets: datagrams, streams for what is too large, strangers and rubbish on both."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pixiu.links.bulk import PENDING_BYTES_MAX, Bulk
from pixiu.links.endpoint import Endpoint
from pixiu.links.wire import WireWay
from pixiu.machines.links.messages import (
    FROM_GATEWAY,
    AskRoutes,
    Beat,
    BeatBack,
    Routes,
    StreamKey,
    Taken,
    Talk,
)
from pixiu.machines.links.news import NewsRules, NewsSource
from pixiu.machines.links.sealing import Secrets
from pixiu.machines.routes import RouteRow
from pixiu.machines.scheduling import Priority
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datagrams import UdpSocket
from pixiu.runtime.links import TcpLinks
from pixiu.runtime.local_links import LocalLink
from pixiu.runtime.scheduler import LoopScheduler

SECRET = Secrets([b"the secret of this test"])


class End:
    """One process's sockets and endpoint, in this process."""

    def __init__(self, boot: int, secrets: Secrets = SECRET) -> None:
        loop = asyncio.get_running_loop()
        self.scheduler = LoopScheduler(loop)
        self.links = TcpLinks(loop)
        clock = SystemClock()
        self.bulk = Bulk(secrets, boot, self.links, clock, self.scheduler, lambda: os.urandom(16))
        self.way = WireWay(secrets, boot, clock, self.bulk)
        self.udp = UdpSocket(loop, self.way.datagram)
        self.way.datagrams = self.udp
        self.endpoint = Endpoint(boot, self.way, clock, self.scheduler)
        self.boot = boot

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: LocalLink(self.bulk.accept()), "127.0.0.1", 0)
        self.port = self.udp.bind("127.0.0.1", self.server.sockets[0].getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"

    async def close(self) -> None:
        self.endpoint.stop()
        self.bulk.close()
        self.links.close()
        self.udp.close()
        self.server.close()
        await asyncio.sleep(0)
        self.scheduler.close()


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    one, other = End(1), End(2)
    for end in (one, other):
        await end.listen()
    one.endpoint.know(2, other.address)
    yield one, other
    for end in (one, other):
        await end.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def talk(number: int, size: int) -> Talk:
    return Talk(0, 1, number, 1, 0, Priority.CHAT, is_reliable=False, body=bytes([number % 251]) * size)


async def test_many_messages_in_few_datagrams_and_answers_to_where_they_came_from(ends: tuple[End, End]) -> None:
    one, other = ends
    came: list[Any] = []
    backs: list[BeatBack] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message))
    one.endpoint.on(BeatBack, lambda _boot, back: backs.append(back))
    sent = [talk(number, 50) for number in range(500)]
    for each in sent:
        one.endpoint.send(2, each, Priority.CHAT)
    one.endpoint.send(2, Beat(9), Priority.BULK)
    await eventually(lambda: len(backs) == 1)
    assert came == sent
    assert backs[0].number == 9, "the other end has never been told where this one is"
    assert other.way.datagrams_in < 60


async def test_what_no_datagram_holds_takes_a_stream_and_nothing_overtakes_it(ends: tuple[End, End]) -> None:
    one, other = ends
    came: list[int] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message.message_id))
    backs: list[int] = []
    one.endpoint.on(Taken, lambda _boot, message: backs.append(len(message.message_ids)))
    for number in range(60):
        one.endpoint.send(2, talk(number, 100_000 if number == 10 else 20), Priority.CHAT)
        await asyncio.sleep(0.001)
    await eventually(lambda: len(came) == 60)
    assert came == list(range(60))
    other.endpoint.send(1, Taken(range(100_000)))
    await eventually(lambda: sum(backs) == 100_000)
    assert len(one.bulk) == 1 and len(other.bulk) == 1, "one stream, used in both directions"


async def test_the_first_word_may_be_a_large_one(ends: tuple[End, End]) -> None:
    one, other = ends
    came: list[Any] = []
    other.endpoint.on(Talk, lambda boot, message: other.endpoint.send(boot, Taken((message.message_id,))))
    one.endpoint.on(Taken, lambda _boot, message: came.append(message))
    one.endpoint.send(2, talk(7, 50_000), Priority.CHAT)
    await eventually(lambda: came == [Taken((7,))])


async def test_strangers_and_rubbish_are_refused(ends: tuple[End, End]) -> None:
    _, other = ends
    stranger = End(3, Secrets([b"another secret altogether"]))
    await stranger.listen()
    stranger.endpoint.know(2, other.address)
    came: list[Any] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message))
    stranger.endpoint.send(2, talk(1, 10), Priority.CHAT)
    stranger.endpoint.flush()
    stranger.endpoint.send(2, talk(1, 10_000), Priority.CHAT)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.sendto(b"rubbish", ("127.0.0.1", other.port))
        raw.sendto(b"", ("127.0.0.1", other.port))
        await eventually(lambda: other.way.refused == {"unauthentic": 1, "malformed": 2})
    reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b"x" * 100)
    while await reader.read(1000):
        pass
    writer.close()
    await eventually(lambda: len(other.bulk._unproved) == 0)
    assert came == [] and len(other.bulk) == 0
    await stranger.close()


async def test_a_secret_changes_while_messages_pass(ends: tuple[End, End]) -> None:
    one, other = ends
    came: list[int] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message.message_id))
    old, new = b"the secret of this test", b"the secret of tomorrow"
    steps = [
        (one, [old, new]),
        (other, [old, new]),
        (one, [new, old]),
        (other, [new, old]),
        (one, [new]),
        (other, [new]),
    ]
    for number, (end, secrets) in enumerate(steps):
        end.way.change_secrets(Secrets(secrets))
        one.endpoint.send(2, talk(number, 10), Priority.CHAT)
        await eventually(lambda number=number: len(came) == number + 1)  # type: ignore[misc]
    assert other.way.refused == {}


async def test_nobody_there_is_no_error(ends: tuple[End, End]) -> None:
    one, other = ends
    one.endpoint.know(2, "127.0.0.1:9")
    one.endpoint.know(4, "no address at all")
    for boot in (2, 4):
        for _ in range(3):
            one.endpoint.send(boot, talk(1, 10), Priority.CHAT)
            one.endpoint.send(boot, talk(1, 10_000), Priority.CHAT)
            await asyncio.sleep(0.01)
    one.endpoint.know(2, other.address)
    await eventually(lambda: len(one.bulk) == 0)


async def test_a_snapshot_larger_than_a_frame_of_a_stream_arrives_whole(ends: tuple[End, End]) -> None:
    one, other = ends
    key = StreamKey(FROM_GATEWAY, 0, 1)
    rows = [RouteRow(number, "a room of some people", 7, number, 1, number, is_in=True) for number in range(100_000)]
    pages = NewsSource(key, 1, NewsRules()).pages(AskRoutes(key, 3), rows, [(1, 9)])
    came: list[RouteRow] = []
    other.endpoint.on(Routes, lambda _boot, page: came.extend(page.rows))
    for page in pages:
        one.endpoint.send(2, page)
    await eventually(lambda: len(came) == len(rows))
    assert came == rows
    assert one.way.lost == 0


async def test_what_is_sent_at_once_is_taken_whole_or_not_at_all(ends: tuple[End, End]) -> None:
    one, other = ends
    came: list[int] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message.message_id))
    for number in range(6):
        one.endpoint.send(2, talk(number, PENDING_BYTES_MAX // 5), Priority.CHAT)
    one.endpoint.flush()
    one.endpoint.send(2, talk(6, 100_000), Priority.CHAT)
    one.endpoint.flush()
    assert one.way.lost == 1, "more than the bound waits by then"
    await eventually(lambda: len(came) == 6)
    one.endpoint.send(2, talk(7, 100_000), Priority.CHAT)
    await eventually(lambda: came == [*range(6), 7])


async def test_a_stream_that_nobody_uses_is_closed(ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.links.bulk.PROVE_MS", 20)
    monkeypatch.setattr("pixiu.links.bulk.IDLE_MS", 60)
    one, other = ends
    came: list[int] = []
    other.endpoint.on(Talk, lambda _boot, message: came.append(message.message_id))
    one.endpoint.send(2, talk(1, 10_000), Priority.CHAT)
    await eventually(lambda: came == [1])
    await eventually(lambda: len(one.bulk) == 0 and len(other.bulk) == 0)
    one.endpoint.send(2, talk(2, 10_000), Priority.CHAT)
    await eventually(lambda: came == [1, 2])


async def test_of_two_streams_made_at_once_both_end_with_the_process(ends: tuple[End, End]) -> None:
    one, other = ends
    other.endpoint.know(1, one.address)
    came: list[int] = []
    for end in ends:
        end.endpoint.on(Talk, lambda _boot, message: came.append(message.message_id))
    one.endpoint.send(2, talk(1, 10_000), Priority.CHAT)
    other.endpoint.send(1, talk(2, 10_000), Priority.CHAT)
    await eventually(lambda: sorted(came) == [1, 2])
    connections = [connection for end in ends for connection in (*end.bulk._ends.values(), *end.bulk._only_read)]
    assert len(connections) == 4, "each has called the other"
    one.bulk.close()
    await eventually(lambda: all(each.is_over for each in connections))
