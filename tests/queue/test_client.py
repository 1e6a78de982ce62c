"""The client against servers that stall, lie, vanish and come back."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from pixiu.machines.queue_wire import Message, commands, unpack
from pixiu.machines.queue_wire import responses as answer
from pixiu.model.errors import (
    ConfigError,
    Conflict,
    Gone,
    LocalProtocolError,
    NotAllowed,
    NotFound,
    NotLeader,
    Overloaded,
    PixiuError,
    RequestError,
    TooLarge,
    Unavailable,
)
from pixiu.queue.client import Appended, Client, FateUnknown
from pixiu.queue.client.errors import error_of
from pixiu.queue.client.servers import Backoff, parse_addresses
from tests.queue.scripted import Peer, ScriptedQueue
from tests.servers import free_port

Script = Callable[[Peer], Awaitable[None]]


def answering(*frames: bytes) -> Script:
    """Answer the requests with these frames in turn, then stay silent."""

    async def script(peer: Peer) -> None:
        for frame in frames:
            await peer.request()
            peer.send(frame)
        await peer.until_closed()

    return script


async def counting(peer: Peer) -> None:
    """A well-behaved queue that numbers publishes."""
    event_id = 0
    while True:
        await peer.request()
        event_id += 1
        peer.send(answer.encode_done(event_id))


async def silent(peer: Peer) -> None:
    await peer.until_closed()


async def not_leader(peer: Peer) -> None:
    while True:
        await peer.request()
        peer.send(answer.encode_refused(commands.LEADER_PUBLISHES))


def quick(address: str, **options: float) -> Client:
    return Client(address, backoff_first_s=0.001, backoff_cap_s=0.01, random=Random(1), **options)  # type: ignore[arg-type]


class TestRequests:
    async def test_publish_sends_one_message_and_returns_its_event_id(self) -> None:
        async with (
            ScriptedQueue(answering(answer.encode_done(42))) as server,
            Client(server.address) as client,
        ):
            assert await client.publish("order", "hello", headers={"k": "v"}, trace_id="t1") == 42
        asked = server.peers[0].asked[0]
        assert (asked.command, asked.flags, asked.topic, asked.trace_id) == (1, 1, b"order", b"t1")
        assert unpack(asked.part) == [Message(b"hello", ((b"k", b"v"),))]

    async def test_publish_many_is_one_request_with_consecutive_ids(self) -> None:
        async with (
            ScriptedQueue(answering(answer.encode_done(7))) as server,
            Client(server.address) as client,
        ):
            assert await client.publish_many("order", [b"a", "b", b"c"]) == range(7, 10)
            assert await client.publish_many("order", []) == range(0)
        assert [message.body for message in unpack(server.peers[0].asked[0].part)] == [b"a", b"b", b"c"]

    async def test_an_old_server_that_tells_no_event_id_is_fine(self) -> None:
        script = answering(answer.encode_done(), answer.encode_done())
        async with ScriptedQueue(script) as server, Client(server.address) as client:
            assert await client.publish("order", b"x") == 0
            assert await client.publish_many("order", [b"x"]) == range(0)

    async def test_durations_and_moments_become_milliseconds(self) -> None:
        async with ScriptedQueue(counting) as server, Client(server.address, pool=1) as client:
            await client.delay("order", b"x", after=timedelta(seconds=1.5))
            await client.delay("order", b"x", after=2000)
            await client.create_topic("order", expires_at=datetime(2025, 1, 1, tzinfo=UTC))
            await client.create_topic("order")
        parts = [asked.part[:8] for asked in server.peers[0].asked]
        assert [int.from_bytes(part, "little") for part in parts] == [1500, 2000, 1735689600000, 0]

    async def test_a_lifetime_counts_from_now(self) -> None:
        async with ScriptedQueue(counting) as server, Client(server.address) as client:
            before = datetime.now(UTC).timestamp() * 1000
            await client.create_topic("order", lifetime=timedelta(hours=1))
            after = datetime.now(UTC).timestamp() * 1000
        expires_at = int.from_bytes(server.peers[0].asked[0].part, "little")
        assert before - 1 <= expires_at - 3_600_000 <= after + 1

    async def test_answers_become_values(self) -> None:
        topic = {
            "name": "order",
            "createTimeStamp": 1,
            "expireAt": 2,
            "createEventId": 3,
            "stateChangeTime": 4,
            "stateChangeEventId": 5,
            "state": 0,
            "topicRoot": "/1/2/order",
        }
        delayed = {"event_id": 4, "topic": "order", "due": 99, "count": 1, "bytes": 12}
        hello = {"version": 1, "server": "pixiu 0", "role": "leader", "epoch": 1} | {
            "last_event_id": 17,
            "commit_event_id": 16,
        }
        frames = [topic, [topic], [delayed], [{"subscriber": "g1", "event_id": 5, "live": True}], hello]
        script = answering(
            *(answer.encode_sized(json.dumps(value).encode()) for value in frames),
            answer.encode_sized(b""),
            answer.encode_append_answer(5, 6, True),
            answer.ANSWER_ALIVE,
        )
        async with ScriptedQueue(script) as server, Client(server.address, pool=1) as client:
            info = await client.topic_info("order")
            assert (info.name, info.created_at_ms, info.expires_at_ms, info.create_event_id) == (
                "order",
                1,
                2,
                3,
            )
            assert await client.topics() == [info]
            assert (await client.delays())[0].due_ms == 99
            assert (await client.positions("order"))[0].live
            assert (await client.hello()).last_event_id == 17
            assert await client.topics() == []
            assert await client.append("order", b"x", key="k") == Appended(5, 6, True)
            await client.alive()

    async def test_json_that_is_none_is_a_protocol_error(self) -> None:
        frames = (answer.encode_sized(b"{"), answer.encode_sized(b"[1]"), answer.encode_sized(b'{"name": 1}'))
        async with ScriptedQueue(answering(*frames)) as server, Client(server.address, pool=1) as client:
            for work in (client.topics, client.topics, lambda: client.topic_info("order")):
                with pytest.raises(PixiuError, match="the queue"):
                    await work()

    async def test_many_publishes_at_once_leave_in_few_writes_and_are_answered_in_order(self) -> None:
        reads: list[int] = []

        async def script(peer: Peer) -> None:
            request = len(b"order") + 20 + 8 + 4
            left = 500 * request
            while left:
                reads.append(len(await peer.reader.read(1 << 20)))
                left -= reads[-1]
            for event_id in range(1, 501):
                peer.send(answer.encode_done(event_id))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, Client(server.address) as client:
            bodies = [b"%04d" % number for number in range(500)]
            ids = await asyncio.gather(*(client.publish("order", body) for body in bodies))
        assert ids == list(range(1, 501))
        assert len(server.peers) == 1
        assert len(reads) <= 10

    async def test_topics_are_spread_over_the_pool_and_each_keeps_its_connection(self) -> None:
        async with ScriptedQueue(counting) as server, Client(server.address, pool=3) as client:
            names = [f"topic-{number}" for number in range(20)]
            for _ in range(2):
                await asyncio.gather(*(client.publish(name, b"x") for name in names))
        homes = [{asked.topic for asked in peer.asked} for peer in server.peers]
        assert len(homes) == 3
        assert sum(map(len, homes)) == 20
        assert all(len(peer.asked) % 2 == 0 for peer in server.peers)

    async def test_too_large_a_payload_and_trace_id_are_refused_here(self) -> None:
        async with ScriptedQueue(counting) as server, Client(server.address, payload_bytes_max=100) as client:
            with pytest.raises(TooLarge, match="at most 100 bytes, not 109"):
                await client.publish("order", b"x" * 101)
            with pytest.raises(LocalProtocolError, match="at most 255"):
                await client.publish("order", b"x", trace_id="x" * 256)
        assert server.peers == []


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (commands.TOPIC_NOT_EXIST, NotFound),
            ("order not exist", NotFound),
            (commands.DELAYED_NOT_EXIST, NotFound),
            (commands.EVENT_ID_BEYOND, NotFound),
            (commands.TOPIC_EXIST, Conflict),
            ("g1 regiester exist", Conflict),
            ("behind: 7", Conflict),
            (commands.TOPIC_RESERVED, NotAllowed),
            (commands.WRONG_KEY, NotAllowed),
            (commands.DONT_SUPPORT_ACTION, NotAllowed),
            (commands.LEADER_PUBLISHES, NotLeader),
            (commands.LEADER_MANAGES_TOPICS, NotLeader),
            (commands.LEADER_DECIDES, NotLeader),
            ("fenced, epoch 7", NotLeader),
            (commands.EVENT_ID_NOT_FOUND, Gone),
            (commands.EVENT_ID_EXPIRED, Gone),
            (commands.PAYLOAD_TOO_LARGE, TooLarge),
            (commands.OVERLOADED, Overloaded),
            ("too many connections, at most 10", Overloaded),
            (commands.DISK_FULL, Unavailable),
            (commands.BAD_PUB_PAYLOAD, RequestError),
            ("something new", RequestError),
        ],
    )
    def test_a_text_becomes_a_kind_of_error(self, text: str, kind: type[PixiuError]) -> None:
        assert type(error_of(text, "asking")) is kind

    async def test_a_refusal_leaves_the_connection_usable(self) -> None:
        script = answering(answer.encode_refused(commands.TOPIC_NOT_EXIST), answer.encode_done(3))
        async with ScriptedQueue(script) as server, Client(server.address) as client:
            with pytest.raises(NotFound, match="publishing to 'order': topic not exist"):
                await client.publish("order", b"x")
            assert await client.publish("order", b"x") == 3
        assert len(server.peers) == 1


class TestBrokenConnections:
    @pytest.mark.feature("QG")
    async def test_a_late_answer_never_reaches_the_next_caller(self) -> None:
        """The original kept a connection after a timeout: each later call got its predecessor's answer."""
        late = asyncio.Event()

        async def stalls(peer: Peer) -> None:
            await peer.request()
            await late.wait()
            peer.send(answer.encode_done(1))
            await peer.until_closed()

        async with (
            ScriptedQueue(stalls, answering(answer.encode_done(2))) as server,
            quick(server.address, response_timeout_s=0.1) as client,
        ):
            with pytest.raises(FateUnknown, match="no answer within") as caught:
                await client.publish("order", b"first")
            late.set()
            assert await client.publish("order", b"second") == 2
        assert caught.value.maybe_done
        assert isinstance(caught.value, Unavailable)
        assert len(server.peers) == 2

    @pytest.mark.feature("QG")
    async def test_a_caller_that_gives_up_leaves_no_answer_behind(self) -> None:
        go_on = asyncio.Event()

        async def slow(peer: Peer) -> None:
            await peer.request()
            await peer.request()
            await go_on.wait()
            peer.send(answer.encode_done(1) + answer.encode_done(2))
            await peer.until_closed()

        async with ScriptedQueue(slow) as server, Client(server.address) as client:
            first = asyncio.ensure_future(client.publish("order", b"first"))
            second = asyncio.ensure_future(client.publish("order", b"second"))
            while not server.peers or len(server.peers[0].asked) < 2:
                await asyncio.sleep(0.001)
            first.cancel()
            go_on.set()
            assert await second == 2
            with pytest.raises(asyncio.CancelledError):
                await first

    async def test_a_server_that_keeps_answering_slowly_is_not_broken_off(self) -> None:
        async def slow(peer: Peer) -> None:
            for _ in range(8):
                await peer.request()
            for event_id in range(1, 9):
                await asyncio.sleep(0.1)
                peer.send(answer.encode_done(event_id))
            await peer.until_closed()

        async with ScriptedQueue(slow) as server, quick(server.address, response_timeout_s=0.6) as client:
            ids = await asyncio.gather(*(client.publish("order", b"x") for _ in range(8)))
        assert ids == list(range(1, 9))

    async def test_garbage_breaks_the_connection_and_the_next_call_gets_a_new_one(self) -> None:
        async def garbage(peer: Peer) -> None:
            await peer.request()
            peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await peer.until_closed()

        async with ScriptedQueue(garbage, counting) as server, quick(server.address) as client:
            with pytest.raises(FateUnknown, match="code 21576"):
                await client.publish("order", b"x")
            assert await client.publish("order", b"x") == 1

    async def test_a_publish_whose_fate_is_unknown_is_not_sent_again(self) -> None:
        async def dies(peer: Peer) -> None:
            await peer.request()

        async with ScriptedQueue(dies, counting) as server, quick(server.address) as client:
            with pytest.raises(FateUnknown, match="may have been done"):
                await client.publish("order", b"x")
        assert sum(len(peer.asked) for peer in server.peers) == 1

    async def test_a_keyed_append_is_repeated_until_its_answer_comes(self) -> None:
        async def dies(peer: Peer) -> None:
            await peer.request()

        last = answering(answer.encode_append_answer(5, 6, True))
        async with ScriptedQueue(dies, dies, last) as server, quick(server.address) as client:
            assert await client.append("order", b"x", key="k1") == Appended(5, 6, True)
        assert len({peer.asked[0] for peer in server.peers}) == 1
        assert len(server.peers) == 3

    async def test_an_append_without_a_key_is_not_repeated(self) -> None:
        async def dies(peer: Peer) -> None:
            await peer.request()

        async with ScriptedQueue(dies) as server, quick(server.address) as client:
            with pytest.raises(FateUnknown):
                await client.append("order", b"x")
        assert len(server.peers) == 1

    async def test_a_read_is_repeated_but_not_for_ever(self) -> None:
        async def dies(peer: Peer) -> None:
            await peer.request()

        async with ScriptedQueue(dies) as server, quick(server.address) as client:
            with pytest.raises(FateUnknown):
                await client.topics()
        assert len(server.peers) == 3

    async def test_closing_fails_what_is_outstanding(self) -> None:
        async with ScriptedQueue(silent) as server:
            client = Client(server.address)
            work = asyncio.ensure_future(client.publish("order", b"x"))
            while not server.peers:
                await asyncio.sleep(0.001)
            await client.close()
            with pytest.raises(FateUnknown, match="closed"):
                await work
            with pytest.raises(Unavailable, match="closed"):
                await client.publish("order", b"x")


class TestBounds:
    async def test_no_more_than_the_bound_is_in_flight_and_order_is_kept(self) -> None:
        most = 0

        async def script(peer: Peer) -> None:
            nonlocal most
            event_id = 0
            while event_id < 40:
                await peer.request()
                waiting = 1
                try:
                    async with asyncio.timeout(0.05):
                        while True:
                            await peer.request()
                            waiting += 1
                except TimeoutError:
                    pass
                most = max(most, waiting)
                for _ in range(waiting):
                    event_id += 1
                    peer.send(answer.encode_done(event_id))
            await peer.until_closed()

        async with ScriptedQueue(script) as server, Client(server.address, in_flight_max=10) as client:
            assert await client.publish("order", b"0") == 1  # From here on it is connected.
            ids = await asyncio.gather(*(client.publish("order", b"%d" % n) for n in range(1, 40)))
            bodies = [unpack(asked.part)[0].body for asked in server.peers[0].asked]
        assert ids == list(range(2, 41))
        assert bodies == [b"%d" % n for n in range(40)]
        assert most == 10

    async def test_when_too_much_waits_the_next_is_refused_at_once(self) -> None:
        async with (
            ScriptedQueue(silent) as server,
            Client(server.address, in_flight_max=1, waiting_bytes_max=1000) as client,
        ):
            tasks = [asyncio.ensure_future(client.publish("order", b"x" * 400)) for _ in range(4)]
            done, waiting = await asyncio.wait(tasks, timeout=0.2)
            assert len(waiting) >= 2
            for task in done:
                with pytest.raises(Overloaded, match="slow down"):
                    await task
            assert done
            for task in waiting:
                task.cancel()


class TestManyServers:
    async def test_a_refused_connection_moves_on_to_the_next_address(self) -> None:
        async with (
            ScriptedQueue(counting) as server,
            quick(f"127.0.0.1:{free_port()},{server.address}") as client,
        ):
            assert await client.publish("order", b"x") == 1
            assert client.address == server.address

    async def test_not_the_leader_moves_on_and_stays_with_the_leader(self) -> None:
        async with (
            ScriptedQueue(not_leader) as follower,
            ScriptedQueue(counting) as leader,
            quick(f"{follower.address},{leader.address}") as client,
        ):
            ids = await asyncio.gather(*(client.publish("order", b"x") for _ in range(20)))
            assert sorted(ids) == list(range(1, 21))
            assert await client.publish("order", b"x") == 21
        assert len(leader.peers) == 1

    async def test_one_server_that_is_not_the_leader_says_so_at_once(self) -> None:
        async with ScriptedQueue(not_leader) as server, Client(server.address) as client:
            with pytest.raises(NotLeader):
                await client.publish("order", b"x")

    async def test_no_leader_anywhere_gives_up_when_patience_ends(self) -> None:
        async with (
            ScriptedQueue(not_leader) as one,
            ScriptedQueue(not_leader) as two,
            quick(f"{one.address},{two.address}", patience_s=0.1) as client,
        ):
            with pytest.raises(NotLeader):
                await client.publish("order", b"x")

    async def test_nobody_there_fails_at_once_without_patience(self) -> None:
        port = free_port()
        async with quick(f"127.0.0.1:{port}", patience_s=0) as client:
            with pytest.raises(Unavailable, match=f"cannot connect to 127.0.0.1:{port}: connection refused"):
                await client.publish("order", b"x")

    async def test_a_server_that_comes_back_in_time_is_waited_for(self) -> None:
        port = free_port()
        async with quick(f"127.0.0.1:{port}", patience_s=5.0) as client:
            work = asyncio.ensure_future(client.publish("order", b"x"))
            await asyncio.sleep(0.05)
            async with ScriptedQueue(counting, port=port):
                assert await work == 1

    def test_addresses(self) -> None:
        assert [str(a) for a in parse_addresses("a:1, b ,[::1]:7,:9")] == [
            "a:1",
            "b:12301",
            "[::1]:7",
            "127.0.0.1:9",
        ]
        for wrong in ("", "a:b", "a:0", "a:70000"):
            with pytest.raises(ConfigError):
                parse_addresses(wrong)

    def test_waits_double_up_to_the_cap_with_jitter_from_the_given_source(self) -> None:
        waits = [Backoff(first_s=1, cap_s=8, random=Random(1)) for _ in range(2)]
        first, second = ([backoff.next_s() for _ in range(6)] for backoff in waits)
        assert first == second
        for wait, full in zip(first, (1, 2, 4, 8, 8, 8), strict=True):
            assert full / 2 <= wait <= full
