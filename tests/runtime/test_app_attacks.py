"""What an attacker would try at the client port: it costs a bounded amount, ends its own connection, hurts no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from pixiu.runtime.certificates import Certificates
from pixiu.runtime.client_sockets import HELLO_BYTES_MAX
from tests.certificates import Authority
from tests.roles.gateway.raw import CLOSE, CONTINUATION, PING, TEXT, RawWebSocket, frame_of, handshake
from tests.roles.gateway.world import TcpClient, eventually, get, on_the_loop_that_serves, world_at

if TYPE_CHECKING:
    from pathlib import Path

ASK = b'{"id":1,"action":"ping","params":{}}'
FRAMES = {
    "not masked": (frame_of(TEXT, ASK, is_masked=False), 1002),
    "a long ping": (frame_of(PING, b"x" * 126), 1002),
    "a ping in parts": (frame_of(PING, b"x", is_last=False), 1002),
    "compressed": (frame_of(TEXT, ASK, rsv=4), 4400),
    "reserved bits": (frame_of(TEXT, ASK, rsv=3), 4400),
    "an unknown kind": (frame_of(3, ASK), 1002),
    "half a close code": (frame_of(CLOSE, b"\x03"), 1002),
    "no close code": (frame_of(CLOSE, pack(">H", 999)), 1002),
    "no UTF-8": (frame_of(TEXT, b"\xff\xfe"), 4400),
    "an impossible length": (b"\x81\xff" + pack(">Q", 2**63 + 1) + b"\0" * 4, 1002),
    "a terabyte": (b"\x81\xff" + pack(">Q", 2**40) + b"\0" * 4, 1009),
    "a part of nothing": (frame_of(CONTINUATION, ASK), 4400),
    "a message in a message": (frame_of(TEXT, b"{", is_last=False) + frame_of(TEXT, b"}"), 4400),
    "thousands of empty parts": (
        frame_of(TEXT, b"", is_last=False) + frame_of(CONTINUATION, is_last=False) * 2000,
        1009,
    ),
    "nothing": (frame_of(TEXT), 4400),
    "a bomb of brackets": (frame_of(TEXT, b'{"id":1,"action":"send","params":' + b"[" * 60_000), 4400),
    "a wide bomb": (frame_of(TEXT, b"[" + b"{}," * 60_000 + b"{}]"), 4400),
}


@on_the_loop_that_serves
class TestFrames:
    async def test_every_frame_that_should_not_be_ends_its_connection_with_a_code(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            good = await world.connect("good")
            for name, (data, code) in FRAMES.items():
                raw = await RawWebSocket.open(world.port, "bob")
                await raw.send(data)
                await raw.read_until(lambda raw=raw: raw.close_code)  # type: ignore[misc]
                assert raw.close_code == code, name
                raw.close()
            assert (await good.ask("ping"))["at"]
            await eventually(lambda: world.gateway.counters.connections == 1)

    async def test_pings_that_nobody_reads_the_answers_to_stop_being_read(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, slow_timeout_ms=1_000) as world:
            raw = await RawWebSocket.open(world.port, "flood", receive_bytes=4096)
            flood, most, sent = frame_of(PING, b"p" * 125) * 200, 0, 0
            async with asyncio.timeout(10):
                while world.gateway.counters.closed != {("slow",): 1}:
                    try:
                        sent += raw.sock.send(flood)
                    except (BlockingIOError, ConnectionError):
                        pass
                    most = max([most, *(each.get_write_buffer_size() for each in world.server._transports)])
                    await asyncio.sleep(0.001)
            assert sent > 10 * most and most < 2 * 64 * 1024 + 64 * 1024, "what waits is about the mark, whatever comes"
            raw.close()

    async def test_requests_whose_answers_nobody_reads_stop_being_read(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"slow_timeout_ms": 1_000, "output_bytes_max": 256 * 1024, "requests_per_user": 0}
        async with world_at(tmp_path, **settings) as world:
            for number in range(50):
                await world.node.send("alice", to="flood", text=f"{number} " + "x" * 5_000)
            raw = await RawWebSocket.open(world.port, "flood", receive_bytes=4096)
            ask = b'{"id":%d,"action":"history","params":{"with":"alice"}}'
            most, number = 0, 0
            async with asyncio.timeout(15):
                while world.gateway.counters.closed != {("slow",): 1}:
                    number += 1
                    try:
                        raw.sock.send(frame_of(TEXT, ask % number))
                    except (BlockingIOError, ConnectionError):
                        pass
                    most = max([most, *(each.get_write_buffer_size() for each in world.server._transports)])
                    await asyncio.sleep(0.001)
            assert most < 2 * 256 * 1024
            raw.close()


@on_the_loop_that_serves
class TestBeforeTheToken:
    async def test_silent_connections_lock_nobody_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pixiu.runtime.app_server.PENDING_MAX", 50)
        async with world_at(tmp_path, hello_timeout_ms=60_000) as world:
            silent = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(60)]
            dripping = [await asyncio.open_connection("127.0.0.1", world.tcp_port) for _ in range(60)]
            for _, writer in silent:
                writer.write(b"GET /ws HT")
            await eventually(lambda: world.server.pending == 50)
            client = await world.connect("alice")
            assert (await client.ask("ping"))["at"], "who says what it wants comes in"
            assert (await get(world.port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
            tcp = await world.tcp()
            tcp.send({"token": "bob"})
            assert (await tcp.frame())["push"] == "contacts"
            await tcp.leave()
            assert world.server.pending <= 50
            for _, writer in [*silent, *dripping]:
                writer.close()
            await eventually(lambda: world.server.pending == 0)

    async def test_of_a_stranger_over_tcp_little_is_kept(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            tcp = await world.tcp()
            tcp.writer.write((HELLO_BYTES_MAX + 1).to_bytes(4) + b"{")
            assert (await tcp.frame())["error"]["code"] == "too_large"
            assert await tcp.rest() == b""
            await tcp.leave()
            tcp = await world.tcp()
            tcp.send({"token": "bob"})
            assert (await tcp.frame())["push"] == "contacts"
            tcp.send({"id": 1, "action": "send", "params": {"to": "bob", "text": "x" * 60_000}})
            while "id" not in (frame := await tcp.frame()):
                pass
            assert "message_id" in frame["result"], "who has a token may say more"
            await tcp.leave()

    async def test_hostile_heads_are_answered_and_closed(self, tmp_path: Path) -> None:
        upgrade = handshake("a")
        heads = {
            b"GET /ws?token=a HTTP/1.1\r\nUpgrade: websocket\r\n X: y\r\n\r\n": b"400",
            upgrade.replace(b"Host: x", b"Host : x"): b"400",
            upgrade.replace(b"HTTP/1.1", b"HTTP/1.0", 1): b"400",
            upgrade.replace(b"HTTP/1.1", b"HTTP/2.0", 1): b"400",
            upgrade.replace(b"/ws", b"/ws/../ws"): b"404",
            upgrade.replace(b"/ws", b"//ws"): b"404",
            upgrade.replace(b"/ws", b"/WS"): b"404",
            upgrade.replace(b"/ws?token=a", b"http://[/ws?token=a"): b"400",
            upgrade.replace(b"token=a", b"&".join(b"a%d=b" % number for number in range(100))): b"400",
            upgrade.replace(b"token=a", b"token=%ff%fe"): b"400",
            upgrade.replace(b"Version: 13", b"Version: 8"): b"426",
            upgrade.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"x"): b"400",
            handshake("a", headers="Origin: null\r\n"): b"403",
            handshake("a", headers="Origin: https://evil.example\r\n"): b"403",
            handshake("a", headers="Origin: http://x.evil.example\r\n"): b"403",
            handshake("a", headers="Origin: http://evil.example\r\nOrigin: http://x\r\n"): b"403",
            b"GET /" + b"x" * 20_000: b"404",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000: b"404",
        }
        async with world_at(tmp_path) as world:
            for head, status in heads.items():
                answer = await get(world.port, head)
                assert answer.startswith(b"HTTP/1.1 " + status), (head[:200], answer[:100])
                assert b"Connection: close" in answer
            assert world.node.messaging.relay.counters.logins == 0 and world.server.pending == 0

    async def test_a_page_of_another_origin_is_refused_before_its_token_is_looked_at(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, origins="https://app.example") as world:
            for origin in ("https://app.example.evil.example", "http://app.example", "https://app.example:444"):
                with pytest.raises(InvalidStatus) as caught:
                    await connect(world.url("a"), origin=origin)  # type: ignore[arg-type]
                assert caught.value.response.status_code == 403
            assert world.node.messaging.relay.counters.logins == 0


@on_the_loop_that_serves
class TestTls:
    @pytest.mark.feature("T4")
    async def test_plain_text_is_refused_in_order_and_tls_goes_on(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """HTTP, a WebSocket, frames, nothing, half a handshake: each ends, nobody else notices, and no traceback."""
        authority = Authority(tmp_path, "authority")
        authority.certify(tmp_path / "chain.pem", tmp_path / "key.pem")
        certificates = Certificates(tmp_path / "chain.pem", tmp_path / "key.pem")
        trust = ssl.create_default_context(cafile=authority.path)
        caplog.set_level(logging.INFO)
        async with world_at(tmp_path / "data", tls=certificates.context, hello_timeout_ms=500) as world:
            good = await world.connect_to(world.url("good").replace("ws:", "wss:"), ssl=trust)
            hello = b'{"token":"bob"}'
            half = bytes.fromhex("16030100c8010000c40303")
            for port in (world.port, world.tcp_port):
                for data in (
                    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                    handshake("bob"),
                    len(hello).to_bytes(4) + hello,
                    b"",
                    half,
                    bytes(1000),
                ):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(data)
                    async with asyncio.timeout(3):
                        try:
                            answer = await reader.read()
                        except ConnectionResetError:
                            answer = b""
                    assert b"HTTP/1.1 1" not in answer and b"contacts" not in answer
                    assert answer == b"" or answer[0] == 0x15, "at most a TLS alert"
                    writer.close()
            assert (await good.ask("ping"))["at"]
            tcp = TcpClient(*await asyncio.open_connection("127.0.0.1", world.tcp_port, ssl=trust))
            tcp.send({"token": "bob"})
            assert (await tcp.frame())["push"] == "contacts"
            await tcp.leave()
            assert world.node.messaging.relay.counters.logins == 2
        blamed = [each for each in caplog.records if each.exc_info or each.levelno >= logging.ERROR]
        assert not blamed, [each.getMessage() for each in blamed]

    @pytest.mark.feature("T4")
    async def test_half_open_handshakes_end_in_time(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path, "authority")
        authority.certify(tmp_path / "chain.pem", tmp_path / "key.pem")
        certificates = Certificates(tmp_path / "chain.pem", tmp_path / "key.pem")
        async with world_at(tmp_path / "data", tls=certificates.context, hello_timeout_ms=300) as world:
            held = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(100)]

            async def ended(sock: socket.socket) -> None:
                sock.setblocking(False)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(sock, 100) == b"", "nothing is said"

            async with asyncio.timeout(5):
                await asyncio.gather(*map(ended, held))
            for sock in held:
                sock.close()
