"""The clients against a real queue in its own process."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pixiu.model.errors import Conflict, NotAllowed, NotFound, RequestError, Unavailable
from pixiu.queue.client import (
    BlockingClient,
    Client,
    FateUnknown,
    create_topic_once,
    delay_once,
    delete_topic_once,
    fetch_once,
    publish_many_once,
    publish_once,
    topics_once,
)
from tests.servers import QueueProcess, free_port, wait_for


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path_factory.mktemp("queue") / "data") as queue:
        yield queue


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:100]


async def is_taken(client: Client, topic: str, name: str) -> bool:
    """Is the name of a subscriber taken? Asking for it, at a position that is not there, tells."""
    try:
        await anext(client.subscribe(topic, name=name, after=2**62))
    except Conflict:
        return True
    except NotFound:
        return False
    raise AssertionError("there is no such message")


class TestClient:
    async def test_what_is_published_is_delivered_in_order(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            sent = [await client.publish(topic, b"one", headers={"k": "v"})]
            sent += await client.publish_many(topic, ["two", "three"])
            sent += await asyncio.gather(*(client.publish(topic, f"{number}") for number in range(200)))
            assert sent == sorted(sent)
            got = []
            async for delivery in client.subscribe(topic, name="g1", batch=50):
                got.append(delivery)
                if len(got) == len(sent):
                    break
        assert [delivery.event_id for delivery in got] == sent
        assert [delivery.text for delivery in got] == ["one", "two", "three", *map(str, range(200))]
        assert got[0].headers == {"k": b"v"}

    async def test_topics_come_and_go(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            event_id = await client.create_topic(topic, lifetime=timedelta(hours=1))
            info = await client.topic_info(topic)
            assert (info.name, info.create_event_id) == (topic, event_id)
            assert info.expires_at_ms - info.created_at_ms == pytest.approx(3_600_000, abs=5_000)
            assert info in await client.topics()
            assert info in await client.topics(only_valid=True)
            with pytest.raises(Conflict):
                await client.create_topic(topic)
            await client.delete_topic(topic)
            for work in (client.topic_info(topic), client.delete_topic(topic)):
                with pytest.raises(NotFound):
                    await work
            with pytest.raises(NotFound):
                await client.publish(topic, b"x")
            with pytest.raises(NotFound):
                await anext(client.subscribe(topic))
            with pytest.raises(RequestError):
                await client.create_topic("a b")

    async def test_a_deleted_topic_ends_the_loop(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            await client.publish(topic, b"x")
            subscription = client.subscribe(topic)
            seen = []
            async for delivery in subscription:
                seen.append(delivery.text)
                await client.delete_topic(topic)
            assert seen == ["x"]
            assert subscription.has_ended

    async def test_an_append_with_a_key_is_stored_once(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            first = await client.append(topic, b"x", key="k1")
            again = await client.append(topic, b"other", key="k1")
            second = await client.append(topic, b"y", key="k2")
            assert (again.event_id, again.message_id, again.repeat) == (
                first.event_id,
                first.message_id,
                True,
            )
            assert not second.repeat
            assert second.message_id > first.message_id
            subscription = client.subscribe(topic)
            got = [await anext(subscription) for _ in range(2)]
        assert [(d.text, d.message_id, d.key) for d in got] == [
            ("x", first.message_id, b"k1"),
            ("y", second.message_id, b"k2"),
        ]

    async def test_delays_are_listed_cancelled_and_fired(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            fires = await client.delay(topic, b"fires", after=1000)
            stays = await client.delay(topic, b"stays", after=timedelta(hours=1))
            listed = {delayed.event_id: delayed for delayed in await client.delays()}
            assert listed[fires].topic == listed[stays].topic == topic
            assert listed[fires].due_ms < listed[stays].due_ms
            await client.cancel_delay(stays)
            with pytest.raises(NotFound):
                await client.cancel_delay(stays)
            assert (await anext(client.subscribe(topic))).body == b"fires"
            assert not {fires, stays} & {delayed.event_id for delayed in await client.delays()}

    async def test_a_name_is_held_by_one_and_taken_over_when_asked(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            await client.publish_many(topic, [b"1", b"2"])
            holder = client.subscribe(topic, name="g1", batch=1)
            assert (await anext(holder)).body == b"1"
            with pytest.raises(Conflict, match="in use"):
                await anext(client.subscribe(topic, name="g1"))
            waiting = asyncio.ensure_future(anext(client.subscribe(topic, name="g1", batch=1, take_over=True)))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            holder.close()
            assert (await waiting).body == b"1"

    async def test_positions_are_remembered(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            ids = await client.publish_many(topic, [b"%d" % number for number in range(10)])
            async with client.subscribe(topic, name="g1", from_stored=True, remember=True, batch=4) as first:
                for _ in range(6):
                    await anext(first)
                await first.finish()
            assert [(p.subscriber, p.event_id, p.live) for p in await client.positions(topic)] == [
                ("g1", ids[5], False)
            ]
            async with client.subscribe(topic, name="g1", from_stored=True) as second:
                assert (await anext(second)).event_id == ids[6]
            await client.set_position(topic, "g1", ids[8])
            async with client.subscribe(topic, name="g1", from_stored=True) as third:
                assert (await anext(third)).event_id == ids[9]
            await client.set_position(topic, "g1", -1)
            assert await client.positions(topic) == []

    async def test_from_now_and_from_a_time(self, shared: QueueProcess, topic: str) -> None:
        async with Client(shared.address) as client:
            await client.create_topic(topic)
            await client.publish(topic, b"old")
            waiting = asyncio.ensure_future(anext(client.subscribe(topic, name="g1", from_now=True)))
            while not await is_taken(client, topic, "g1"):
                assert not waiting.done()
            await client.publish(topic, b"new")
            delivery = await waiting
            assert delivery.body == b"new"
            later = client.subscribe(topic, from_time=delivery.time_ms)
            assert (await anext(later)).time_ms >= delivery.time_ms

    async def test_reserved_topics_need_the_key(self, shared: QueueProcess) -> None:
        key = (shared.data / "node.key").read_text()
        async with Client(shared.address) as client:
            with pytest.raises(NotAllowed, match="reserved"):
                await client.create_topic("pixiu.mine")
        async with Client(shared.address, key=key) as client:
            await client.create_topic("pixiu.mine")
            await client.publish("pixiu.mine", b"x")
            assert (await anext(client.subscribe("pixiu.mine"))).body == b"x"
            assert "pixiu.mine" not in [topic.name for topic in await client.topics()]
        async with Client(shared.address, key="0" * 64) as client:
            with pytest.raises(NotAllowed, match="wrong key"):
                await client.alive()

    async def test_hello_and_flush(self, shared: QueueProcess) -> None:
        async with Client(shared.address) as client:
            hello = await client.hello()
            assert (hello.version, hello.role) == (1, "leader")
            await client.flush()
            await client.alive()


@pytest.mark.crash
class TestKilledServer:
    async def test_publishers_and_subscribers_live_through_kill_and_restart(self, tmp_path: Path) -> None:
        """Every publish that was answered is delivered once, in order; one of unknown fate at most once."""
        with QueueProcess(tmp_path / "data") as queue:
            async with Client(queue.address, patience_s=20.0, backoff_cap_s=0.2) as client:
                await client.create_topic("order")
                answered: list[int] = []
                unknown: list[int] = []
                got: list[int] = []

                async def publish() -> None:
                    for number in range(400):
                        try:
                            await client.publish("order", str(number))
                            answered.append(number)
                        except FateUnknown:
                            unknown.append(number)

                async def read() -> None:
                    async for delivery in client.subscribe("order", name="g1", batch=7, ack_timeout=5000):
                        if delivery.text == "end":
                            return
                        got.append(int(delivery.text))

                reading = asyncio.ensure_future(read())
                publishing = asyncio.ensure_future(publish())
                for part in (100, 250):
                    while len(answered) < part:
                        await asyncio.sleep(0.001)
                    queue.kill()
                    await asyncio.to_thread(queue.restart)
                await publishing
                await client.publish("order", "end")
                async with asyncio.timeout(60):
                    await reading
        assert got == sorted(set(got))
        assert set(answered) <= set(got) <= set(answered) | set(unknown)

    async def test_keyed_appends_are_stored_once_over_kill_and_restart(self, tmp_path: Path) -> None:
        with QueueProcess(tmp_path / "data") as queue:
            async with Client(queue.address, patience_s=20.0, backoff_cap_s=0.2) as client:
                await client.create_topic("order")
                done = 0

                async def append() -> None:
                    nonlocal done
                    for number in range(200):
                        await client.append("order", str(number), key=f"k{number}")
                        done += 1

                appending = asyncio.ensure_future(append())
                while done < 100:
                    await asyncio.sleep(0.001)
                queue.kill()
                await asyncio.to_thread(queue.restart)
                await appending
                got = []
                async for delivery in client.subscribe("order"):
                    got.append(int(delivery.text))
                    if got[-1] == 199:
                        break
        assert got == list(range(200))


class TestBlockingClient:
    def test_the_same_verbs_without_asyncio(self, shared: QueueProcess, topic: str) -> None:
        with BlockingClient(shared.address) as client:
            client.alive()
            assert client.hello().role == "leader"
            client.create_topic(topic)
            first = client.publish(topic, b"one", headers={"k": "v"})
            ids = client.publish_many(topic, ["two", "three"])
            assert client.append(topic, "four", key="k").repeat is False
            assert list(ids) == [first + 1, first + 2]
            assert client.topic_info(topic) in client.topics()
            with client.subscribe(topic, name="g1", batch=2, remember=True) as subscription:
                texts = []
                for delivery in subscription:
                    texts.append(delivery.text)
                    if len(texts) == 3:
                        subscription.finish()
                assert texts == ["one", "two", "three"]
                assert subscription.position == ids[1]
                assert subscription.has_ended
            assert [p.event_id for p in client.positions(topic)] == [ids[1]]
            client.set_position(topic, "g1", first)
            delayed = client.delay(topic, "late", after=timedelta(hours=1))
            assert delayed in [d.event_id for d in client.delays()]
            client.cancel_delay(delayed)
            client.flush()
            for batch in client.subscribe(topic, batch=4).batches():
                assert len(batch) == 4
                break
            client.delete_topic(topic)
            with pytest.raises(NotFound):
                client.publish(topic, b"x")

    def test_threads_share_it(self, shared: QueueProcess, topic: str) -> None:
        with BlockingClient(shared.address) as client:
            client.create_topic(topic)
            ids: list[int] = []

            def publish() -> None:
                ids.extend(client.publish(topic, b"x") for _ in range(20))

            threads = [threading.Thread(target=publish) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(set(ids)) == 100

    def test_leaving_a_loop_frees_the_name(self, shared: QueueProcess, topic: str) -> None:
        with BlockingClient(shared.address) as client:
            client.create_topic(topic)
            client.publish_many(topic, [b"1", b"2"])
            for delivery in client.subscribe(topic, name="g1", batch=1):
                assert delivery.body == b"1"
                break
            gc.collect()

            def is_free() -> bool:
                try:
                    with client.subscribe(topic, name="g1", batch=1) as subscription:
                        return next(iter(subscription)).body == b"1"
                except Conflict:
                    return False

            wait_for(is_free, what="the name")

    def test_closed_is_closed(self, shared: QueueProcess) -> None:
        client = BlockingClient(shared.address)
        client.close()
        client.close()
        with pytest.raises(Unavailable, match="closed"):
            client.alive()


class TestOnce:
    def test_connect_do_close(self, shared: QueueProcess, topic: str) -> None:
        address = shared.address
        create_topic_once(address, topic)
        first = publish_once(address, topic, b"one", headers={"k": "v"})
        assert publish_many_once(address, topic, ["two"]) == range(first + 1, first + 2)
        assert delay_once(address, topic, "late", after=3_600_000) > first
        assert topic in [t.name for t in topics_once(address)]
        assert [d.text for d in fetch_once(address, topic, count=2)] == ["one", "two"]
        delete_topic_once(address, topic)
        with pytest.raises(NotFound):
            publish_once(address, topic, b"x")

    def test_nobody_there_fails_at_once(self) -> None:
        with pytest.raises(Unavailable, match="cannot connect"):
            publish_once(f"127.0.0.1:{free_port()}", "order", b"x")
