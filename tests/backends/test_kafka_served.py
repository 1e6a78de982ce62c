"""The log in Kafka behind the queue's port, with a real Kafka: the log's contract over the wire, feeds, refusals."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka import log as log_module
from pixiu.backends.kafka.served.behind import READERS_MAX
from pixiu.backends.kafka.served.metrics import METRICS, snapshot
from pixiu.backends.queue_log import RemoteLog
from pixiu.backends.queue_log import log as remote_module
from pixiu.config import KafkaSettings
from pixiu.machines.queue_wire import Message, pack
from pixiu.machines.queue_wire import requests as wire
from pixiu.model.errors import Conflict, NotAllowed, NotFound, RequestError, Unavailable
from pixiu.ports.log import DEAD, MAIN, NOTIFY, SCHEDULE, TASKS
from pixiu.queue.client import Client
from tests.contracts.log import LogContract
from tests.kafka import new_prefix
from tests.kafka_port import KEY, Port, all_of
from tests.remote_logs import arrived, read_all, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.log import Log
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


class TestServedKafka(LogContract):
    """As the roles of a cluster have it: ``RemoteLog`` at the port of whoever owns the log."""

    @pytest.fixture(autouse=True)
    def server(self, kafka: KafkaServer) -> None:
        self.hosts, self.prefix = kafka.hosts, new_prefix()

    def start(self) -> Log:
        self.port = Port(self.hosts, self.prefix)

        async def connected() -> RemoteLog:
            self.client = Client(self.port.address, key=KEY)
            log = RemoteLog(self.client)
            await log.open()
            log.follow(0, lambda: None)
            return log

        self.remote: RemoteLog = self.port.run(connected())
        log: Log = self.port.within(self.remote)
        return log

    def restart(self) -> Log:
        self.stop()
        return self.start()

    def stop(self) -> None:
        async def closed() -> None:
            await self.remote.close()
            await self.client.close()

        self.port.run(closed())
        self.port.close()

    def until(self, condition: Callable[[], bool]) -> None:
        self.port.until(condition)

    def pass_ms(self, milliseconds: float) -> None:
        self.port.pass_ms(milliseconds)

    def now_ms(self) -> int:
        return self.port.clock.now_ms()


def test_many_feeds_at_many_places_get_everything_once(open_port: Callable[..., Port]) -> None:
    """More of them than there are readers, most of them behind what memory has."""
    prefix = new_prefix()
    first = open_port(prefix)

    async def say(port: Port, begin: int) -> None:
        async with Client(port.address, key=KEY) as client:
            for number in range(begin, begin + 300, 3):
                await client.publish_many(MAIN, [b"%d " % each + b"." * 300 for each in range(number, number + 3)])
            await client.append(MAIN, b"appended", key=f"k{begin}")

    first.run(say(first, 0))
    first.close()
    port = open_port(prefix, tail_bytes_max=20_000)

    async def follow(after: int, end: int) -> list[int]:
        async with Client(port.address, key=KEY) as client:
            log = RemoteLog(client)
            log.follow(after, lambda: None)
            await arrived(log, end)
            records = read_all(log, after)
            await log.close()
        return [record.event_id for record in records]

    async def work() -> None:
        end = port.log.committed
        places = [end * part // (2 * READERS_MAX) for part in range(2 * READERS_MAX)]
        async with asyncio.TaskGroup() as group:
            talk = group.create_task(say(port, 300))
            feeds = [group.create_task(follow(place, end + 300)) for place in places]
        assert talk.done()
        whole = await follow(0, port.log.committed)
        assert len(whole) == 602, "a claim and a new claim are no messages"
        for place, feed in zip(places, feeds, strict=True):
            got = feed.result()
            assert got == [each for each in whole if place < each <= got[-1]]

    port.run(work())
    assert port.log.counters.read_back > 0


def test_a_batch_that_was_given_up_leaves_no_hole_in_a_feed(open_port: Callable[..., Port]) -> None:
    port = open_port()

    async def work() -> None:
        async with Client(port.address, key=KEY) as client:
            log = RemoteLog(client)
            await log.open()
            log.follow(0, lambda: None)
            await client.publish(MAIN, b"before")
            port.log._event_id += 5  # as after a batch that Kafka has not taken
            last = await client.publish(MAIN, b"after")
            await arrived(log, last)
            assert [record.payload for record in read_all(log)] == [b"before", b"after"]
            again = RemoteLog(client)
            again.follow(0, lambda: None)
            await arrived(again, last)
            assert [record.payload for record in read_all(again)] == [b"before", b"after"]
            for each in (log, again):
                await each.close()

    port.run(work())


def test_positions_and_what_waits_are_there_for_the_next_owner(open_port: Callable[..., Port]) -> None:
    prefix = new_prefix()
    first = open_port(prefix)

    async def told(port: Port) -> tuple[dict[str, int], list[int]]:
        async with Client(port.address, key=KEY) as client:
            places = {each.subscriber: each.event_id for each in await client.positions(TASKS)}
            return places, [each.event_id for each in await client.delays()]

    async def work() -> int:
        async with Client(first.address, key=KEY) as client:
            log = RemoteLog(client)
            await log.open()
            for name, event_id in (("a", 5), ("b", 7), ("a", 9), ("c", 1)):
                await client.set_position(TASKS, name, event_id)
            await client.set_position(TASKS, "c", -1)
            await client.set_position(NOTIFY, "a", 3)
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            log.schedule(SCHEDULE, b"later", first.clock.now_ms() + 3_600_000, done.set_result)
            other: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            log.schedule(SCHEDULE, b"never", first.clock.now_ms() + 3_600_000, other.set_result)
            await client.cancel_delay(await other)
            with pytest.raises(NotFound):
                await client.cancel_delay(await other)
            return int(await done)

    waiting = first.run(work())
    assert first.run(told(first)) == ({"a": 9, "b": 7}, [waiting])
    first.close()
    second = open_port(prefix)
    assert second.run(told(second)) == ({"a": 9, "b": 7}, [waiting])


def test_pages_of_a_topic_are_read_from_kafka_and_from_memory(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "PAGE", 7)
    prefix = new_prefix()
    first = open_port(prefix)

    async def say(port: Port, begin: int) -> None:
        async with Client(port.address, key=KEY) as client:
            for number in range(begin, begin + 50):
                await client.publish(DEAD, b"letter %d" % number)
                await client.publish(NOTIFY, b"task %d" % number)

    first.run(say(first, 0))
    first.close()
    port = open_port(prefix)

    async def work() -> None:
        await say(port, 50)
        async with Client(port.address, key=KEY) as client:
            log = RemoteLog(client)
            log.follow(port.log.committed - 1, lambda: None)
            await arrived(log, port.log.committed)
            assert await read_topic(log, DEAD, 0, 30) == [b"letter %d" % number for number in range(100)]
            assert await read_topic(log, NOTIFY, 0, 13) == [b"task %d" % number for number in range(100)]
            with pytest.raises(NotAllowed, match="read it with Feed"):
                await client.ask(MAIN, wire.encode_read_topic(MAIN.encode(), after=0, limit=7), "reading")
            await log.close()

    port.run(work())


def test_answers_come_in_the_order_of_the_requests(open_port: Callable[..., Port]) -> None:
    """A repeat and a refusal are known at once, and wait for what was asked before them."""
    port = open_port()
    topic, message = MAIN.encode(), pack([Message.of(b"said")])

    async def work() -> list[tuple[int, int]]:
        async with Client(port.address, key=KEY) as client:
            first = await client.append(MAIN, b"said", key="k")
            reader, writer = await asyncio.open_connection(*port.address.rsplit(":", 1))
            writer.write(wire.encode_authorize(KEY.encode()))
            assert (await reader.readexactly(10))[:2] == struct.pack("<H", 200)
            ask = wire.encode_pub(topic, message, want_event_id=True)
            repeat = wire.encode_append(topic, message, key=b"k", unless_after=0)
            wrong = wire.encode_pub(b"pixiu.nothing", message, want_event_id=True)
            writer.write((ask + repeat + wrong) * 20 + wire.encode_alive())
            answers: list[tuple[int, int]] = []
            for _ in range(20):
                answers.append(struct.unpack("<Hq", await reader.readexactly(10)))
                code, size = struct.unpack("<HI4x", await reader.readexactly(10))
                event_id, _, is_repeat = struct.unpack("<qqB", await reader.readexactly(size))
                assert (code, event_id, is_repeat) == (200, first.event_id, 1)
                code, size = struct.unpack("<HH6x", await reader.readexactly(10))
                assert (code, await reader.readexactly(size)) == (400, b"topic not exist")
            assert (await reader.readexactly(10))[:2] == struct.pack("<H", 201)
            writer.close()
            return answers

    answers = port.run(work())
    assert [code for code, _ in answers] == [200] * 20
    event_ids = [event_id for _, event_id in answers]
    assert event_ids == sorted(set(event_ids))


def test_more_than_may_wait_for_kafka_waits_with_whoever_sends_it(
    open_port: Callable[..., Port], kafka: KafkaServer
) -> None:
    """Kafka stands still: connections are read no further, and nobody is refused."""
    port = open_port(settings=KafkaSettings(pending_max=10_000))
    count, ask = 20_000, wire.encode_pub(MAIN.encode(), pack([Message.of(b"x" * 40)]), want_event_id=True)
    most = 0

    async def work() -> list[int]:
        nonlocal most
        reader, writer = await asyncio.open_connection(*port.address.rsplit(":", 1))
        writer.write(wire.encode_authorize(KEY.encode()))
        await reader.readexactly(10)
        kafka.freeze()
        try:
            writer.write(ask * count)
            async with asyncio.timeout(1):
                while True:
                    most = max(most, port.log.sending.pending_count)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        finally:
            kafka.thaw()
        answers = await reader.readexactly(10 * count)
        writer.close()
        return [event_id for code, event_id in struct.iter_unpack("<Hq", answers) if code == 200]

    event_ids = port.run(work())
    assert len(event_ids) == count and event_ids == sorted(event_ids)
    assert 5_000 <= most < 10_000


def test_positions_are_not_read_again_and_again(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that looks whether it still is reads what is new in ``state``, and finds another claim in it."""
    monkeypatch.setattr(log_module, "LOOK_MS", 50)
    prefix = new_prefix()
    port = open_port(prefix)
    read: list[int] = []
    state = port.log._owner._state

    def counted(begin: int = 0) -> Any:
        read.append(begin)
        return state(begin)

    monkeypatch.setattr(port.log._owner, "_state", counted)

    async def note() -> None:
        async with Client(port.address, key=KEY) as client:
            for number in range(50):
                await client.set_position(TASKS, "carrier", number)
                await asyncio.sleep(0.02)

    port.run(note())
    assert read and min(read) > 0 and read == sorted(read)
    second = open_port(prefix, name="two")
    port.until(lambda: not port.log.is_owner)
    assert second.log.positions == {(TASKS, b"carrier"): 49}


def test_what_only_a_journal_can_do_is_refused_with_what_to_do(open_port: Callable[..., Port]) -> None:
    port = open_port()

    async def work() -> None:
        async with Client(port.address, key=KEY) as client:
            for asked in (
                client.create_topic("mine"), client.delete_topic("mine"), client.promote(),
                anext(client.subscribe(MAIN, name="me")), client.delay(MAIN, b"x", after=2_000),
            ):  # fmt: skip
                with pytest.raises(NotAllowed, match=r"in Kafka: .+"):
                    await asked
            with pytest.raises(Conflict):
                await client.create_topic(MAIN)
            with pytest.raises(NotFound):
                await client.publish("mine", b"x")
            with pytest.raises(NotAllowed, match="headers"):
                await client.publish(MAIN, b"x", headers={"a": "b"})
            with pytest.raises(RequestError, match="size of a topic"):
                await client.topic_size(MAIN)
            said = await client.hello()
            assert (said.role, said.epoch, said.commit_event_id) == ("leader", 1, port.log.committed)
            assert (await client.status())["log"].startswith("kafka://")
            assert await client.topics() == [] and (await client.topic_info(TASKS)).name == TASKS
            await client.flush()
        async with Client(port.address) as stranger:
            for call in (stranger.publish(MAIN, b"x"), stranger.append(MAIN, b"x", key="k"), stranger.positions(MAIN)):
                with pytest.raises(NotAllowed):
                    await call

    port.run(work())
    assert {metric.name for metric in METRICS} == snapshot(port.served, 0).keys()


def test_a_fenced_owner_takes_nothing_and_sends_clients_away(open_port: Callable[..., Port]) -> None:
    prefix = new_prefix()
    first = open_port(prefix)

    async def say(port: Port, text: bytes, patience_s: float = 0.0) -> int:
        async with Client(port.address, key=KEY, patience_s=patience_s) as client:
            return await client.publish(MAIN, text)

    first.run(say(first, b"by the first"))
    second = open_port(prefix, name="two")
    with pytest.raises(Unavailable):
        first.run(say(first, b"by one who does not own it any more"))
    first.until(lambda: not first.served.is_leader)
    with pytest.raises(Unavailable, match="just master"):
        first.run(say(first, b"nor now"))
    second.run(say(second, b"by the second"))
    assert second.run(all_of(second)) == [b"by the first", b"by the second"]
