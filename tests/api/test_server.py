"""The HTTP server on a real socket: curl, dawdlers, connections that someone else accepted."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from pixiu.api.server import HttpServer
from pixiu.api.strays import AGAIN_SECONDS, Strays
from tests.api.world import World, open_world


@asynccontextmanager
async def serving(world: World, **options: Any) -> AsyncIterator[tuple[HttpServer, int]]:
    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(world.api, sock, **options)
    await server.start()
    try:
        yield server, sock.getsockname()[1]
    finally:
        await server.stop()


async def exchange(port: int, data: bytes, *, wait_seconds: float = 5.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(wait_seconds):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def curl(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "--max-time", "10", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output


@pytest.mark.parametrize("method", ["get", "post"])
async def test_a_websocket_whose_upgrade_a_proxy_has_swallowed_is_told_so(tmp_path: Path, method: str) -> None:
    async with open_world(tmp_path) as world:
        answer = await world.client.request(method, "/ws?token=x")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert "a proxy in front has to pass Upgrade" in answer.json()["error"]["message"]
        assert (await world.client.get("/wss")).status_code == 404


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
@pytest.mark.feature("P23")
async def test_curl_sends_pushes_and_reads(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        base = f"http://127.0.0.1:{port}"
        alice = f"Authorization: {world.bearer('alice')['Authorization']}"
        admin = f"Authorization: {world.bearer('ops', admin=True)['Authorization']}"
        body = json.dumps({"to": "bob", "text": "from curl"})
        kind = "Content-Type: application/json"
        sent = json.loads(await curl("-H", alice, "-H", kind, "-d", body, f"{base}/v1/actions/send"))
        page = json.loads(await curl("-H", alice, f"{base}/v1/history?with=bob"))
        assert [each["message_id"] for each in page["messages"]] == [sent["message_id"]]
        push = json.dumps({"uids": ["bob"], "msg_bodies": [{"text": "x"}], "msg_options": 7})
        pushed = json.loads(await curl("-H", admin, "-H", kind, "-d", push, f"{base}/v1/push"))
        assert len(pushed["message_ids"]) == 1
        large = tmp_path / "large"
        large.write_bytes(b" " * (2**20 + 1))
        answer = await curl(
            "-H", admin, "-H", kind, "--data-binary", f"@{large}", "-w", "%{http_code}", f"{base}/v1/push"
        )
        assert answer.endswith(b"413")
        assert b'"ready": true' in await curl(f"{base}/readyz")


async def test_it_says_little_of_itself(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        answer = await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert head.startswith(b"http/1.1 200")
        assert b"\r\nserver:" not in head
        assert b"\r\ndate: " in head


async def test_nonsense_is_answered_with_400_and_the_end(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        for data in (b"\x16\x03\x01\x02\x00", b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"A" * 70_000):
            assert (await exchange(port, data))[:12] in (b"HTTP/1.1 400", b"")
        smuggled = (
            b"POST /v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = await exchange(port, smuggled)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"200 OK" not in answer
        assert b"200 OK" in await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")


async def test_a_body_that_turns_into_nonsense_ends_its_request_without_a_word_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        head = b"POST /v1/actions/send HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        token = f"Authorization: {world.bearer('alice')['Authorization']}\r\n\r\n".encode()
        for beginning in (head, head[:-2] + token):
            answer = await exchange(port, beginning + b"ZZZ\r\n")  # in one piece
            assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_request"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            await asyncio.sleep(0.05)  # the request is being read, or was refused
            writer.write(b"ZZZ\r\n")
            async with asyncio.timeout(5):
                later = await asyncio.gather(reader.read(), return_exceptions=True)
            writer.close()
            assert isinstance(later[0], ConnectionError | bytes)
            assert isinstance(later[0], ConnectionError) or later[0].count(b"HTTP/1.1 ") == 1
        assert b"200 OK" in await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert [record.levelname for record in caplog.records if record.levelname != "INFO"] == ["WARNING"]


async def test_strangers_do_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        for _ in range(20):
            await exchange(port, b"NONSENSE\r\n\r\n")
            upgrade = b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n"
            assert b"200 OK" in await exchange(port, upgrade)
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [(record.getMessage(), record.__dict__["peer"]) for record in warned] == [
        ("what came is no request of HTTP/1.1", "127.0.0.1")
    ]


def test_strays_are_said_at_once_and_then_now_and_then_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    strays = Strays(lambda: now[0])
    for _ in range(5):
        strays.note("nonsense", "1.2.3.4")
    now[0] += AGAIN_SECONDS
    strays.note("nonsense", "5.6.7.8")
    assert [(record.__dict__["count"], record.__dict__["peer"]) for record in caplog.records] == [
        (1, "1.2.3.4"), (5, "5.6.7.8"),
    ]  # fmt: skip


async def test_a_head_that_dawdles_is_cut_off(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world, head_seconds=0.2) as (server, port):
        for beginning in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            ended = asyncio.create_task(reader.read())
            async with asyncio.timeout(5):
                while not ended.done():
                    if beginning:
                        writer.write(b"a")
                    await asyncio.wait([ended], timeout=0.02)
            writer.close()
            await asyncio.gather(ended, return_exceptions=True)
        # A second request on a connection likewise.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"ok")
        writer.write(b"GET /hea")
        async with asyncio.timeout(5):
            await asyncio.gather(reader.read(), return_exceptions=True)
        writer.close()
        assert server.connections == 0


async def test_connections_beyond_the_limit_are_told_so(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world, connections_max=3) as (_, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert (await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 503")
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.05)
        assert (await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_one_address_does_not_take_all_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.api.server.LOOPBACK", ("127.0.0.2",))
    async with open_world(tmp_path) as world, serving(world, connections_per_address=3) as (server, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await asyncio.sleep(0.05)
        refused = await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 503") and b'"busy"' in refused and b"Retry-After" in refused
        for _ in range(5):  # from elsewhere
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            idle.append((reader, writer))
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(5):
            while server.connections:
                await asyncio.sleep(0.01)
        assert (await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_connection_that_was_accepted_elsewhere_is_served(tmp_path: Path) -> None:
    """One port for WebSockets and HTTP: whoever accepts reads the first bytes, and hands the rest over."""
    async with open_world(tmp_path) as world:
        server = HttpServer(world.api)
        await server.start()

        class Front(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.transport = cast("asyncio.Transport", transport)

            def data_received(self, data: bytes) -> None:
                handed = server.connection()
                self.transport.set_protocol(handed)
                handed.connection_made(self.transport)
                handed.data_received(data)

        loop = asyncio.get_running_loop()
        listener = await loop.create_server(Front, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(request)
            assert b"200 OK" in await reader.readuntil(b"ok")
        writer.close()
        listener.close()
        await listener.wait_closed()
        await server.stop()


async def test_stopping_answers_what_was_asked_and_takes_no_more(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        asked = asyncio.Event()
        answer: list[Any] = []

        def act(actor: object, action: str, params: object, done: Any) -> None:
            answer.append(done)
            asked.set()

        world.api._bridge._act = act
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        server = HttpServer(world.api, sock)
        await server.start()
        token = world.bearer("alice")["Authorization"]
        request = f"GET /v1/contacts HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
        waiting = asyncio.create_task(exchange(port, request))
        async with asyncio.timeout(5):
            await asked.wait()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.3)
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        answer[0]({"contacts": [], "others": []})
        assert b"200 OK" in await waiting
        await stopping
        await server.stop()


async def test_a_websocket_that_comes_here_is_no_websocket(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world, serving(world) as (_, port):
        upgrade = (
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = await exchange(port, upgrade)
        assert answer.startswith(b"HTTP/1.1 400") and b"open a new one" in answer
