"""One connection of the queue's port gets a bounded share of each turn of the event loop."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.machines.queue_wire import commands as numbers
from pixiu.machines.queue_wire import messages as wire_messages
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message
from pixiu.node.stopped import open_store
from pixiu.queue.engine import Engine
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.connection import TURN_COST_MAX
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage import topics as topics_module
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.server import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

OK = b"\xc8" + bytes(9)


class Port:
    """A queue on a real socket, which counts what it does in each turn of its loop."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.turn = 0
        self.handled: Counter[int] = Counter()
        """Commands other than Pub, by turn."""
        self.address: tuple[str, int] = ("", 0)

    def count_turns(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.count_turns)

    def counting(self, handler: Callable[..., None]) -> Callable[..., None]:
        def handle(*args: Any) -> None:
            self.handled[self.turn] += 1
            handler(*args)

        return handle

    async def ask(self, data: bytes, answer_bytes: int) -> bytes:
        """Send requests on a connection of its own and read so many bytes of answers."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        answer = await reader.readexactly(answer_bytes)
        writer.close()
        return answer

    async def ask_lists(self, data: bytes, count: int) -> list[Any]:
        """Send requests that are answered with JSON."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        answers = []
        for _ in range(count):
            head = await reader.readexactly(10)
            assert head[:1] == b"\xc8"
            answers.append(json.loads(await reader.readexactly(int.from_bytes(head[2:6], "little"))))
        writer.close()
        return answers


@asynccontextmanager
async def port_at(path: Path, **queue: Any) -> AsyncIterator[Port]:
    settings = Settings(
        queue=QueueSettings(**queue), journal=JournalSettings(free_bytes_min=0, flush="none"), log=LogSettings(sample=0)
    )
    path.mkdir()
    scheduler = LoopScheduler(asyncio.get_running_loop())
    engine = Engine(settings, SystemFiles(path), open_store(path), SystemClock(), scheduler)
    engine.recover()
    engine.start()
    port = Port(engine)
    handlers = {command: port.counting(handler) for command, handler in HANDLERS.items()}
    server = QueueServer(engine, handlers, connections_max=10, end_writing=lambda transport: transport.write_eof())
    listener = await listen(server.connection, "127.0.0.1", 0)
    port.address = listener.sockets[0].getsockname()[:2]
    port.count_turns()
    await port.ask(wire.encode_create_topic(b"t"), len(OK))
    port.handled.clear()
    try:
        yield port
    finally:
        listener.close()
        server.close_all()
        engine.background.stop()
        scheduler.close()
        engine.stop()


def payload_of(count: int) -> bytes:
    return Message(b"x").encode() * count


def test_pipelined_requests_of_one_connection_are_spread_over_turns(tmp_path: Path) -> None:
    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            answers = await port.ask(wire.encode_alive() * 10_000, 10_000 * len(OK))
            assert answers == answers[: len(OK)] * 10_000
            assert sum(port.handled.values()) == 10_000
            assert max(port.handled.values()) <= TURN_COST_MAX + 1

    asyncio.run(run())


def test_topic_list_is_made_over_several_turns_and_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[int] = Counter()
    monkeypatch.setattr("pixiu.queue.server.commands.LISTED_AT_ONCE", 50)

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            names = [b"topic%04d" % each for each in range(130)]
            created = await port.ask(b"".join(map(wire.encode_create_topic, names)), len(names) * len(OK))
            assert created == OK * len(names)
            topic_from = topics_module.topic_from

            def counted(*args: Any) -> Any:
                made[port.turn] += 1
                return topic_from(*args)

            monkeypatch.setattr(topics_module, "topic_from", counted)
            for answer in await port.ask_lists(wire.encode_list() * 3, 3):
                assert [row["name"] for row in answer] == ["t", *(name.decode() for name in names)]
            assert sum(made.values()) >= 3 * len(names)
            assert max(made.values()) <= 2 * 50, "the end of one list and the beginning of the next"

    asyncio.run(run())


def test_publish_of_many_messages_waits_for_the_turn_after_the_one_before(tmp_path: Path) -> None:
    """A batch of the writer holds one such publish of a connection, however many are pipelined."""

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            batches: list[int] = []
            writer: Any = port.engine.writer
            number = writer._number

            def counted(operations: list[Any], batch: Any) -> None:
                batches.append(sum(len(each.messages) for each in operations))
                number(operations, batch)

            writer._number = counted
            count = 4 * TURN_COST_MAX + 4
            answers = await port.ask(wire.encode_pub(b"t", payload_of(count)) * 6, 6 * len(OK))
            assert answers == OK * 6
            assert batches == [count] * 6

    asyncio.run(run())


def test_delays_answer_counts_messages_of_a_bounded_number_of_bytes_per_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted_bytes: Counter[int] = Counter()

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            payload = payload_of(40_000)
            delay = wire.encode_delay(b"t", payload, delay_ms=600_000)
            assert await port.ask(delay * 8, 8 * len(OK)) == OK * 8

            def after(event_id: int, inner: Any = port.engine.state.delays.after) -> Any:
                for delayed in inner(event_id):
                    counted_bytes[port.turn] += len(delayed.payload)
                    yield delayed

            monkeypatch.setattr(port.engine.state.delays, "after", after)
            request = wire.encode_extension(numbers.DELAYS, pack("<qI", 0, 0))
            for answer in await port.ask_lists(request * 3, 3):
                assert [(row["count"], row["bytes"]) for row in answer] == [(40_000, len(payload))] * 8
            assert len(counted_bytes) >= 3 * 2
            assert max(counted_bytes.values()) <= 2 * 2**20 + len(payload)

    asyncio.run(run())


def test_delays_page_ends_at_its_byte_limit_and_the_next_page_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.queue.server.commands.PAGE_BYTES_MAX", 1_000)

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            delay = wire.encode_delay(b"t", payload_of(60), delay_ms=600_000)
            await port.ask(delay * 5, 5 * len(OK))
            sizes, after = [], 0
            while True:
                request = wire.encode_extension(numbers.DELAYS, pack("<qI", after, 100))
                (page,) = await port.ask_lists(request, 1)
                sizes.append(len(page))
                if not page:
                    break
                after = page[-1]["event_id"]
            assert sizes == [2, 2, 1, 0]

    asyncio.run(run())


@pytest.mark.parametrize("count", [1, 2, 500])
def test_message_count_equals_the_number_of_split_messages(count: int) -> None:
    payload = b"".join(Message.of(f"body {each}", {"h": "v"} if each % 2 else None).encode() for each in range(count))
    assert wire_messages.count_messages(payload) == count == len(wire_messages.split_messages(payload) or [])


def test_pipelined_requests_of_many_connections_share_a_turn(tmp_path: Path) -> None:
    """A hundred connections, each with a turn's worth of requests, must not make one turn a hundred times as long."""

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            answers = await asyncio.gather(
                *(port.ask(wire.encode_alive() * 5_000, 5_000 * len(OK)) for _ in range(8)),
            )
            assert {len(each) for each in answers} == {5_000 * len(OK)}
            assert max(port.handled.values()) <= TURN_COST_MAX + 1

    asyncio.run(run())


def test_connection_with_one_request_waits_for_few_turns_of_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            busy = [asyncio.create_task(port.ask(wire.encode_alive() * 20_000, 20_000 * len(OK))) for _ in range(8)]
            await asyncio.sleep(0)
            while sum(port.handled.values()) < 4_000:
                await asyncio.sleep(0)
            before = port.turn
            await port.ask(wire.encode_alive(), len(OK))
            assert not any(each.done() for each in busy)
            assert port.turn - before < 40
            await asyncio.gather(*busy)

    asyncio.run(run())


def test_status_of_a_topic_costs_what_it_takes_to_count_its_messages(tmp_path: Path) -> None:
    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            await port.ask(wire.encode_pub(b"t", payload_of(60_000)), len(OK))
            port.handled.clear()
            for status in await port.ask_lists(wire.encode_status(topic=b"t") * 20, 20):
                assert status["messages"] == 60_000
            assert sum(port.handled.values()) == 20
            assert max(port.handled.values()) == 1

    asyncio.run(run())


def test_positions_are_listed_over_several_turns_and_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.queue.server.commands.POSITIONS_AT_ONCE", 50)
    pages: Counter[int] = Counter()

    async def run() -> None:
        async with port_at(tmp_path / "data") as port:
            names = [b"reader%04d" % each for each in range(0, 440, 2)]
            requests = [wire.encode_set_position(b"t", name, event_id=7) for name in names]
            assert await port.ask(b"".join(requests), len(names) * len(OK)) == OK * len(names)
            await port.ask(wire.encode_pub(b"t", payload_of(1)), len(OK))
            live = [b"a", b"reader0003", b"reader0004", b"z"]
            writers = []
            for name in live:
                _, writer = await asyncio.open_connection(*port.address)
                writer.write(wire.encode_subscribe(b"t", name, remember=True))
                writers.append(writer)
            while port.engine.counters.subscribers < len(live):
                await asyncio.sleep(0.01)
            page = port.engine.state.positions.page

            def counted(*args: Any) -> Any:
                pages[port.turn] += 1
                return page(*args)

            monkeypatch.setattr(port.engine.state.positions, "page", counted)
            (rows,) = await port.ask_lists(wire.encode_positions(b"t"), 1)
            expected = {name.decode(): 7 for name in names} | {"a": 0, "reader0003": 0, "z": 0}
            assert {row["subscriber"]: row["event_id"] for row in rows} == expected
            assert [row["subscriber"] for row in rows] == sorted(expected)
            assert [row["subscriber"] for row in rows if row["live"]] == [name.decode() for name in live]
            assert len(pages) == 5 and max(pages.values()) == 1
            for writer in writers:
                writer.close()

    asyncio.run(run())


def test_incomplete_requests_of_all_connections_have_a_bound_in_bytes(tmp_path: Path) -> None:
    """A client needs no key to send half a request, and each may have 16 MiB."""

    async def run() -> None:
        async with port_at(tmp_path / "data", partial_bytes_max=1_500_000) as port:
            request = wire.encode_pub(b"t", Message(b"x" * 600_000).encode())
            small = wire.encode_pub(b"t", Message(b"y" * 30_000).encode())
            halves = []
            for _ in range(3):
                reader, writer = await asyncio.open_connection(*port.address)
                writer.write(request[:-1])
                halves.append((reader, writer))
            refused = []

            async def look() -> None:
                for reader, _ in halves:
                    try:
                        refused.append(await asyncio.wait_for(reader.read(300), 0.3))
                    except TimeoutError:
                        continue

            while not refused:
                await look()
            assert len(refused) == 1 and b"queue.partial_bytes_max" in refused[0]
            assert await port.ask(small, len(OK)) == OK, "a small request is served all the same"
            for _, writer in halves:
                writer.write(request[-1:])
            answers = [await asyncio.wait_for(reader.read(300), 5) for reader, _ in halves]
            assert answers.count(OK) == 2
            for _, writer in halves:
                writer.close()
            assert await port.ask(request, len(OK)) == OK

    asyncio.run(run())
