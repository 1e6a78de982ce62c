"""Subscriptions over connections that break: nothing is skipped, nothing handled comes again."""

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from pixiu.machines.queue_wire import Message, commands
from pixiu.machines.queue_wire import responses as answer
from pixiu.machines.queue_wire.streams import Item, encode_batch, encode_ended
from pixiu.model.errors import (
    Conflict,
    Gone,
    LocalProtocolError,
    NotFound,
    RemoteProtocolError,
    Unavailable,
)
from pixiu.queue.client import Client, Delivery, Subscription
from tests.queue.scripted import Asked, Peer, ScriptedQueue
from tests.servers import free_port

Script = Callable[[Peer], Awaitable[None]]

HELLO = answer.encode_sized(
    b'{"version":1,"server":"pixiu 0","role":"leader","epoch":1,"last_event_id":%d,"commit_event_id":%d}' % (50, 50)
)


def push(*event_ids: int) -> bytes:
    return encode_batch(
        Item(1000 + event_id, event_id, 0, 0, Message(b"m%d" % event_id).encode()) for event_id in event_ids
    )


def quick(address: str, **options: float) -> Client:
    return Client(address, backoff_first_s=0.001, backoff_cap_s=0.01, random=Random(1), **options)  # type: ignore[arg-type]


def start_of(asked: Asked) -> int:
    """The event id of a Sub."""
    assert asked.command == commands.SUB
    return int(struct.unpack_from("<q", asked.part)[0])


async def collect(subscription: Subscription, count: int) -> list[int]:
    ids = []
    async for delivery in subscription:
        ids.append(delivery.event_id)
        if len(ids) == count:
            break
    return ids


class TestHandling:
    async def test_a_batch_is_acked_when_the_message_after_it_is_asked_for(self) -> None:
        acks: list[int] = []

        async def script(peer: Peer) -> None:
            await peer.request()
            for ids in ((1, 2), (3,)):
                peer.send(push(*ids))
                acks.append(await peer.ack())
            peer.send(encode_ended())
            await peer.until_closed()

        seen: list[tuple[int, int | None, int]] = []
        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order", name="g1", batch=2)
            async for delivery in subscription:
                await asyncio.sleep(0.01)
                seen.append((delivery.event_id, subscription.position, len(acks)))
        assert seen == [(1, 0, 0), (2, 1, 0), (3, 2, 1)]
        assert acks == [0, 0]
        assert subscription.has_ended
        assert subscription.position == 3

    async def test_a_delivery_has_everything(self) -> None:
        message = Message(b"hi", ((b"pixiu.id", (77).to_bytes(8, "little")), (b"pixiu.key", b"k"), (b"a", b"b")))

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(encode_batch([Item(1500, 7, 0, 0, message.encode())]))
            await peer.until_closed()

        async with (
            ScriptedQueue(script) as server,
            quick(server.address) as client,
            client.subscribe("order") as subscription,
        ):
            delivery = await anext(subscription)
        assert (delivery.topic, delivery.event_id, delivery.time_ms, delivery.text) == (
            "order",
            7,
            1500,
            "hi",
        )
        assert (delivery.message_id, delivery.key) == (77, b"k")
        assert list(delivery.headers) == ["pixiu.id", "pixiu.key", "a"]
        assert delivery.time.timestamp() == 1.5
        assert "event_id=7" in repr(delivery)

    async def test_a_plain_subscription_speaks_the_old_command(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(encode_ended())

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            assert [d async for d in client.subscribe("order", name="g1", after=5, ack_timeout=3000)] == []
        asked = server.peers[0].asked[0]
        assert asked.part == struct.pack("<qqI", 5, 3_000_000_000, 2) + b"g1"

    async def test_what_the_old_command_cannot_say_goes_by_the_new_one(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(encode_ended())

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            for options in (
                {"from_stored": True, "after": 9},
                {"from_time": 1234},
                {"take_over": True},
                {"remember": True},
            ):
                async for _ in client.subscribe("order", name="g1", batch=7, ack_timeout=10, **options):
                    raise AssertionError("nothing was pushed")
        sent = [
            (p.asked[0].command, p.asked[0].flags, *struct.unpack_from("<BqBq", p.asked[0].part)) for p in server.peers
        ]
        assert sent == [
            (130, 0, 2, 9, 7, 10),
            (130, 0, 3, 1234, 7, 10),
            (130, 1, 0, 0, 7, 10),
            (130, 2, 0, 0, 7, 10),
        ]

    async def test_whole_batches(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            for ids in ((1, 2, 3), (4, 5)):
                peer.send(push(*ids))
                assert await peer.ack() == 0
            peer.send(encode_ended())

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            sizes = [len(batch) async for batch in client.subscribe("order").batches()]
        assert sizes == [3, 2]

    async def test_finish_acks_a_whole_batch_and_ends(self) -> None:
        acks: list[int] = []

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1, 2))
            acks.append(await peer.ack())
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order", name="g1", remember=True)
            assert await collect(subscription, 2) == [1, 2]
            await subscription.finish()
            assert subscription.position == 2
            assert [d async for d in subscription] == []
            while not acks:
                await asyncio.sleep(0.001)
        assert acks == [1]

    async def test_finish_inside_a_batch_stores_the_position_itself(self) -> None:
        async def script(peer: Peer) -> None:
            asked = await peer.request()
            if asked.command == commands.SUBSCRIBE:
                peer.send(push(1, 2, 3))
                await peer.until_closed()
                return
            assert asked.command == commands.SET_POSITION
            peer.send(answer.encode_done())
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order", name="g1", remember=True)
            assert await collect(subscription, 2) == [1, 2]
            await subscription.finish()
        assert server.peers[1].asked[0].part == b"\x02\x00g1" + struct.pack("<q", 2)

    async def test_leaving_the_loop_acks_nothing_and_frees_the_name(self) -> None:
        rest: list[bytes] = []

        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1))
            rest.append(await peer.reader.read())

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            async for _ in client.subscribe("order", name="g1"):
                break
            gc.collect()
            async with asyncio.timeout(5):
                while not rest:
                    await asyncio.sleep(0.001)
        assert rest == [b""]


class TestReconnecting:
    async def test_it_resumes_after_the_last_message_handled(self) -> None:
        async def dies_after(peer: Peer, *ids: int) -> None:
            await peer.request()
            peer.send(push(*ids))
            await peer.ack()

        async def first(peer: Peer) -> None:
            await dies_after(peer, 4, 5)

        async def second(peer: Peer) -> None:
            await dies_after(peer, 6)

        async def last(peer: Peer) -> None:
            await peer.request()
            peer.send(push(9) + b"")
            await peer.ack()
            peer.send(encode_ended())

        async with ScriptedQueue(first, second, last) as server, quick(server.address) as client:
            ids = [delivery.event_id async for delivery in client.subscribe("order", name="g1", after=3)]
        assert ids == [4, 5, 6, 9]
        assert [start_of(peer.asked[0]) for peer in server.peers] == [3, 5, 6]

    async def test_a_connection_lost_inside_a_batch_gives_the_rest_of_it_once(self) -> None:
        gone = asyncio.Event()

        async def first(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1, 2, 3))
            await peer.writer.drain()
            await gone.wait()

        async def last(peer: Peer) -> None:
            await peer.request()
            peer.send(encode_ended())

        ids = []
        async with ScriptedQueue(first, last) as server, quick(server.address) as client:
            async for delivery in client.subscribe("order", name="g1"):
                ids.append(delivery.event_id)
                gone.set()
                await asyncio.sleep(0.01)
        assert ids == [1, 2, 3]
        assert start_of(server.peers[1].asked[0]) == 3

    async def test_our_own_ghost_may_hold_the_name_for_a_while(self) -> None:
        async def first(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1))
            await peer.ack()

        async def refused(peer: Peer) -> None:
            await peer.request()
            peer.send(answer.encode_refused("g1 regiester exist"))
            await peer.until_closed()

        async def last(peer: Peer) -> None:
            await peer.request()
            peer.send(encode_ended())

        async with ScriptedQueue(first, refused, refused, last) as server, quick(server.address) as client:
            ids = [delivery.event_id async for delivery in client.subscribe("order", name="g1")]
        assert ids == [1]
        assert len(server.peers) == 4

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("g1 regiester exist", Conflict),
            (commands.TOPIC_NOT_EXIST, NotFound),
            (commands.EVENT_ID_FILE_GONE, Gone),
        ],
    )
    async def test_what_waiting_cannot_mend_is_raised(self, text: str, kind: type[Exception]) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(answer.encode_refused(text))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            with pytest.raises(kind, match="subscribing to 'order'"):
                await anext(client.subscribe("order", name="g1"))
        assert len(server.peers) == 1

    async def test_a_silent_server_is_left(self) -> None:
        async def silent(peer: Peer) -> None:
            await peer.request()
            await peer.until_closed()

        async def last(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1))
            await peer.until_closed()

        async with (
            ScriptedQueue(silent) as one,
            ScriptedQueue(last) as two,
            quick(f"{one.address},{two.address}", silence_s_max=0.05) as client,
        ):
            assert await collect(client.subscribe("order"), 1) == [1]

    async def test_keep_alives_count_as_life(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            for _ in range(8):
                await asyncio.sleep(0.1)
                peer.send(answer.ANSWER_ALIVE)
            peer.send(push(1))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address, silence_s_max=0.6) as client:
            assert await collect(client.subscribe("order"), 1) == [1]
        assert len(server.peers) == 1

    async def test_garbage_and_a_second_batch_before_the_ack_are_raised(self) -> None:
        async def garbage(peer: Peer) -> None:
            await peer.request()
            peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await peer.until_closed()

        async def greedy(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1) + push(2))
            await peer.until_closed()

        async with ScriptedQueue(garbage, greedy) as server, quick(server.address) as client:
            with pytest.raises(RemoteProtocolError):
                await anext(client.subscribe("order"))
            subscription = client.subscribe("order")
            assert (await anext(subscription)).event_id == 1
            with pytest.raises(RemoteProtocolError, match="second batch"):
                await anext(subscription)

    async def test_without_reconnect_a_lost_connection_is_raised(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1))
            await peer.ack()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order", reconnect=False)
            assert (await anext(subscription)).event_id == 1
            with pytest.raises(Unavailable, match="lost the connection"):
                await anext(subscription)

    async def test_nobody_there_at_the_start_is_raised_when_patience_ends(self) -> None:
        async with quick(f"127.0.0.1:{free_port()}", patience_s=0) as client:
            with pytest.raises(Unavailable, match="refused"):
                await anext(client.subscribe("order"))

    async def test_closing_the_client_ends_the_loop(self) -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            peer.send(push(1))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order")
            assert (await anext(subscription)).event_id == 1
            waiting = asyncio.ensure_future(collect(subscription, 5))
            await asyncio.sleep(0.02)
            await client.close()
            assert await waiting == []

    async def test_giving_up_the_wait_loses_nothing(self) -> None:
        go_on = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            await go_on.wait()
            peer.send(push(1))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, quick(server.address) as client:
            subscription = client.subscribe("order")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(subscription)
            go_on.set()
            assert (await anext(subscription)).event_id == 1
        assert len(server.peers) == 1


class TestFromNow:
    async def test_a_connection_lost_before_the_first_message_skips_nothing(self) -> None:
        async def first(peer: Peer) -> None:
            assert (await peer.request()).command == commands.HELLO
            peer.send(HELLO)
            asked = await peer.request()
            assert asked.part[0] == commands.START_NOW
            peer.send(answer.ANSWER_ALIVE)
            await peer.writer.drain()
            await asyncio.sleep(0.02)

        async def second(peer: Peer) -> None:
            asked = await peer.request()
            assert (asked.command, asked.part[0]) == (commands.SUBSCRIBE, commands.START_TIME)
            peer.send(push(48, 49, 50))
            assert await peer.ack() == 0
            peer.send(push(50, 51))
            await peer.until_closed()

        async with ScriptedQueue(first, second) as server, quick(server.address) as client:
            assert await collect(client.subscribe("order", name="g1", from_now=True), 1) == [51]


class TestArguments:
    async def test_contradictions_are_refused_at_once(self) -> None:
        async with Client() as client:
            for options, text in (
                ({"from_now": True, "from_time": 5}, "choose one"),
                ({"remember": True}, "need a subscriber's name"),
                ({"name": "g1", "batch": 0}, "1 to 255"),
            ):
                with pytest.raises(LocalProtocolError, match=text):
                    client.subscribe("order", **options)

    async def test_without_a_name_each_subscription_gets_one_of_its_own(self) -> None:
        async with Client(random=Random(5)) as client, Client(random=Random(6)) as other:
            names = {c.subscribe("order").options.name for c in (client, client, other)}
        assert len(names) == 3

    def test_a_lie_inside_a_message_is_raised_where_it_is_read(self) -> None:
        delivery = Delivery("order", 1, 1, b"\x01\x00\x00\x00\x01\x00\x00\x00x")
        with pytest.raises(RemoteProtocolError):
            _ = delivery.body
