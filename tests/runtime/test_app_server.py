"""Real sockets, a real node, and a WebSocket client that somebody else has written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from pixiu.runtime.certificates import Certificates
from pixiu.runtime.pace import Pace
from tests.certificates import Authority
from tests.roles.gateway.world import TcpClient, eventually, get, on_the_loop_that_serves, world_at

if TYPE_CHECKING:
    from pathlib import Path


@on_the_loop_that_serves
class TestLimits:
    @pytest.mark.feature("T3")
    async def test_one_more_than_the_limit_is_refused_at_once(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, connections_max=5) as world:
            clients = [await world.connect(f"u{number}") for number in range(1, 6)]
            await asyncio.gather(*(client.until(lambda client=client: client.frames) for client in clients))  # type: ignore[misc]
            began = time.monotonic()
            with pytest.raises(InvalidStatus) as caught:
                await connect(world.url("u9"))
            assert caught.value.response.status_code == 503 and "Retry-After" in caught.value.response.headers
            tcp = await world.tcp()
            assert (await tcp.frame())["error"]["code"] == "busy"
            assert time.monotonic() - began < 1
            await tcp.leave()
            assert (await clients[0].ask("ping"))["at"] > 0, "the others go on"
            counters = world.gateway.counters.snapshot()
            assert counters["pixiu_gateway_connections"] == 5 and counters["pixiu_gateway_connections_max"] == 5
            await clients[0].leave()
            await eventually(lambda: world.gateway.counters.connections == 4)
            again = await world.connect("u9")
            await again.until(lambda: again.frames)

    async def test_a_slow_reader_costs_little_and_hurts_nobody(self, tmp_path: Path) -> None:
        """It never reads: its messages wait in its inbox, its memory is bounded, others are served."""
        settings: dict[str, Any] = {"output_bytes_max": 128 * 1024, "slow_timeout_ms": 1_000}
        async with world_at(tmp_path, **settings) as world:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", world.port))
            key = "dGhlIHNhbXBsZSBub25jZQ=="
            slow.sendall(
                f"GET /ws?token=bob HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
            )
            await eventually(lambda: world.sessions("bob"))
            carol = await world.connect("carol")
            text = "x" * 60_000
            most = 0
            for _ in range(100):
                await world.node.send("alice", to="bob", text=text)
                sizes = [transport.get_write_buffer_size() for transport in world.server._transports]
                most = max(most, *sizes)
            assert 64_000 < most <= 128 * 1024
            await world.node.send("alice", to="carol", text="quick")
            await carol.until(lambda: carol.texts)
            await eventually(lambda: not world.sessions("bob"), 4)
            assert world.gateway.counters.closed == {("slow",): 1} and world.gateway.counters.lags == 1
            slow.close()
            back = await world.connect("bob")
            await back.until(lambda: len(back.texts) == 100)
            assert (await world.node.audit())["balanced"]


@on_the_loop_that_serves
class TestBytes:
    @pytest.mark.parametrize("seed", range(4))
    async def test_garbage_ends_its_own_connection_and_nothing_else(self, tmp_path: Path, seed: int) -> None:
        rng = random.Random(seed)
        async with world_at(tmp_path) as world:
            good = await world.connect("good")
            for number in range(25):
                _, writer = await asyncio.open_connection("127.0.0.1", world.port if number % 2 else world.tcp_port)
                writer.write(rng.choice(_BEGINNINGS) + rng.randbytes(rng.randint(0, 300)))
                await asyncio.sleep(0.001)
                writer.close()
            for payload in ("{", "[]", "null", b"\x00", "{" * 3000, '{"id":1}'):
                client = await connect(world.url("bob"))
                await client.send(payload)
                if payload == '{"id":1}':
                    said = [json.loads(await client.recv()) for _ in range(2)]  # its contacts, before or after
                    assert [each["error"]["code"] for each in said if "error" in each] == ["bad_request"]
                    await client.close()
                else:
                    await client.wait_closed()
                    assert client.close_code == 4400
            assert (await good.ask("ping"))["at"]
            await eventually(lambda: world.gateway.counters.connections == 1 and world.server.pending == 0, 8)

    async def test_frames_are_bounded(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            most = world.gateway.frame_bytes_max
            alice = await world.connect("alice", max_size=None)
            answer = await alice.ask("send", to="bob", text="字" * (64 * 1024 // 3))
            assert "message_id" in answer, "the largest message fits, however it is escaped"
            assert (await alice.ask("send", to="bob", text="x" * (64 * 1024 + 1)))["error"]["code"] == "too_large"
            await alice.socket.send("x" * (most + 1))
            assert await alice.closed() == 1009
            bob = await world.connect("bob")
            with contextlib.suppress(ConnectionClosed):
                await bob.socket.send(iter(["y" * 60_000] * 10))
            assert await bob.closed() == 1009, "nor do parts help"
            assert bob.frames[-1]["error"]["code"] == "too_large"
            tcp = await world.tcp()
            tcp.writer.write((most + 1).to_bytes(4))
            assert (await tcp.frame())["error"]["code"] == "too_large"
            assert await tcp.rest() == b""
            await tcp.leave()

    async def test_a_message_in_parts_is_one_message(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            alice = await world.connect("alice")
            text = json.dumps({"id": 77, "action": "send", "params": {"to": "bob", "text": "in parts"}})
            await alice.socket.send(iter([text[:10], text[10:20], text[20:]]))
            await alice.until(lambda: any(frame.get("id") == 77 for frame in alice.frames))
            await alice.socket.ping(b"still there?")
            assert (await alice.ask("ping"))["at"]

    @pytest.mark.feature("T5")
    async def test_a_crowd_at_the_door_waits_its_turn_and_loses_nothing(self, tmp_path: Path) -> None:
        """Each turn of the loop lets one in; what a client said meanwhile is answered, and who went is forgotten."""
        async with world_at(tmp_path) as world:
            world.server._pace = Pace(asyncio.get_running_loop(), seconds=0)
            inside = await world.connect("inside")
            head = (
                "GET /ws?token={} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            ping = b'{"id":5,"action":"ping"}'
            frame = bytes((0x81, 0x80 | len(ping))) + bytes(4) + ping
            crowd = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(40)]
            for number, (_, writer) in enumerate(crowd):
                writer.write(head.format(f"u{number}").encode() + frame)
            native = [await world.tcp() for _ in range(10)]
            for number, client in enumerate(native):
                client.send({"token": f"n{number}", "codec": "json"})
                client.send({"id": 5, "action": "ping"})
            assert (await inside.ask("ping"))["at"]
            for reader, _ in crowd:
                await asyncio.wait_for(reader.readuntil(b'{"id":5,"result"'), 10)
            for client in native:
                while (await client.frame()).get("id") != 5:
                    pass
            assert world.gateway.counters.connections == 51
            for _, writer in crowd:
                writer.transport.abort()
            for client in native:
                client.writer.transport.abort()
            await eventually(lambda: world.gateway.counters.connections == 1, 8)
            assert not world.sessions("u0") and not world.sessions("n0") and (await inside.ask("ping"))["at"]

    async def test_who_says_nothing_is_let_go(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, hello_timeout_ms=200) as world:
            for port in (world.port, world.tcp_port):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"G" if port == world.port else b"\x00")
                async with asyncio.timeout(2):
                    try:
                        assert await reader.read() == b""
                    except ConnectionResetError:
                        pass
                writer.close()
            assert world.server.pending == 0


_BEGINNINGS = [
    b"",
    b"GET ",
    b"GET /ws HTTP/1.1\r\n",
    b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
    b"\x00\x00\x00\x05{}",
    b"\x00\x00\x00\x0f" + b'{"token":"bob"}',
    b"\xff\xff\xff\xff",
    b"GET /ws?token=bob HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n%b"
    % b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
]


class Echo(asyncio.Protocol):
    """Stands for an HTTP server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
        if b"bye" in data:
            self.transport.close()


@on_the_loop_that_serves
class TestTls:
    @pytest.mark.feature("T4")
    async def test_the_same_over_tls(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path, "authority")
        authority.certify(tmp_path / "chain.pem", tmp_path / "key.pem")
        certificates = Certificates(tmp_path / "chain.pem", tmp_path / "key.pem")
        trust = ssl.create_default_context(cafile=authority.path)
        async with world_at(tmp_path / "data", tls=certificates.context, http_upstream=Echo) as world:
            async with connect(world.url("bob").replace("ws:", "wss:"), ssl=trust) as bob:
                assert json.loads(await bob.recv())["push"] == "contacts"
                for text in ("short", "x" * 60_000):
                    await world.node.send("alice", to="bob", text=text)
                    assert json.loads(await bob.recv())["message"]["text"] == text
                await bob.send("x" * 1000)
                await bob.recv()
                await bob.wait_closed()
                assert bob.close_code == 4400
            tcp = TcpClient(*await asyncio.open_connection("127.0.0.1", world.tcp_port, ssl=trust))
            tcp.send({"token": "bad"})
            assert (await tcp.frame())["error"]["code"] == "unauthenticated"
            assert await tcp.rest() == b""
            await tcp.leave()
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port, ssl=trust)
            writer.write(b"POST / HTTP/1.1\r\n\r\nbye")
            assert b"bye" in await asyncio.wait_for(reader.read(), 5)
            writer.close()
            with pytest.raises((OSError, EOFError, WebSocketException)):
                await connect(world.url("bob"))


class TestOnePort:
    """These on the standard loop: programs that embed a server may use that."""

    async def test_plain_http_goes_to_the_http_server_untouched(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, http_upstream=Echo) as world:
            for request in (
                b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nbye",
                b"POST /v1/actions/send HTTP/1.1\r\nContent-Length: 3\r\n\r\nbye",
                b"OPTIONS * HTTP/1.1\r\n\r\nbye",
            ):
                assert (await get(world.port, request)).endswith(request)
            client = await world.connect("alice")
            assert (await client.ask("ping"))["at"], "and WebSockets go to the gateway"
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            for piece in (b"G", b"ET / HT", b"TP/1.1\r\nA: ", b"b\r\n\r", b"\n", b"bye"):
                writer.write(piece)
                await asyncio.sleep(0.01)
            assert b"GET / HTTP/1.1\r\nA: b\r\n\r\n" in await asyncio.wait_for(reader.read(), 5)
            writer.close()

    async def test_without_an_http_server_there_is_nothing_there(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            assert (await get(world.port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")

    async def test_other_paths_origins_and_subprotocols_are_refused(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, origins="https://app.example") as world:
            base = f"ws://127.0.0.1:{world.port}"
            cases: list[tuple[str, dict[str, Any], int]] = [
                (f"{base}/chat?token=a", {}, 404),
                (world.url("a"), {"origin": "https://evil.example"}, 403),
                (world.url("a"), {"subprotocols": [Subprotocol("graphql-ws")]}, 400),
                (world.url("a", cursor="x"), {}, 400),
            ]
            for url, options, status in cases:
                with pytest.raises(InvalidStatus) as caught:
                    await connect(url, **options)
                assert caught.value.response.status_code == status
            for origin in ("https://app.example", f"http://127.0.0.1:{world.port}"):
                client = await world.connect("a", origin=origin)
                await client.until(lambda client=client: client.frames)  # type: ignore[misc]

    async def test_a_firefox_says_more_than_upgrade(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(
                b"GET /ws?token=a HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert head.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
            writer.close()
