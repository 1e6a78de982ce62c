"""The small HTTP server: what it answers, and what it bounds."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from pixiu.runtime.admin import AdminServer, Handler, Request, Response, standard_routes
from pixiu.runtime.metrics import Metrics


def broken(request: Request) -> Response:
    raise ZeroDivisionError("a bug")


def routes(down: dict[str, str] | None = None) -> dict[str, Handler]:
    standard = standard_routes(reasons=lambda: down or {}, metrics=Metrics().render, about=lambda: "Pixiu is here.\n")
    return {**standard, "/broken": broken, "/large": lambda request: Response(200, b"x" * 32 * 2**20)}


@asynccontextmanager
async def serving(
    table: dict[str, Handler] | None = None, **options: Any
) -> AsyncIterator[tuple[AdminServer, str, int]]:
    server = AdminServer(table or routes(), **options)
    host, port = await server.start("127.0.0.1", 0)
    try:
        yield server, host, port
    finally:
        await server.close()


async def exchange(address: tuple[str, int], data: bytes, *, eof: bool = False) -> bytes:
    """Send bytes, and read until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def get(host: str, port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Ask with an ordinary HTTP client."""

    def ask() -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_health_is_ok_while_the_loop_runs() -> None:
    async with serving() as (_, host, port):
        status, headers, body = await get(host, port, "/healthz")
    assert (status, json.loads(body)) == (200, {"status": "ok"})
    assert headers["content-type"] == "application/json"


async def test_readiness_follows_the_parts_that_are_needed() -> None:
    down: dict[str, str] = {}
    async with serving(routes(down)) as (_, host, port):
        status, _, body = await get(host, port, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "reasons": {}})
        down["queue"] = "disk full"
        status, _, body = await get(host, port, "/readyz")
        assert (status, json.loads(body)) == (503, {"ready": False, "reasons": {"queue": "disk full"}})


def test_it_runs_on_the_loop_of_the_server() -> None:
    async def ask() -> bytes:
        async with serving() as (_, host, port):
            return await exchange((host, port), b"GET /healthz HTTP/1.0\r\n\r\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert b'"ok"' in runner.run(ask())


async def test_metrics_and_the_front_page() -> None:
    async with serving() as (_, host, port):
        status, headers, body = await get(host, port, "/metrics?x=1")
        assert status == 200
        assert headers["content-type"].startswith("text/plain; version=")
        assert b"pixiu_build_info" in body
        assert (await get(host, port, "/"))[2] == b"Pixiu is here.\n"


async def test_head_is_get_without_the_body() -> None:
    async with serving() as (_, host, port):
        _, with_body, body = await get(host, port, "/")
        status, without_body, nothing = await get(host, port, "/", "HEAD")
    assert (status, nothing) == (200, b"")
    assert with_body["content-length"] == without_body["content-length"] == str(len(body))


@pytest.mark.parametrize(
    "method, path, status, code",
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/healthz", 405, "bad_request"),
        ("GET", "/broken", 500, "internal"),
    ],
)
async def test_errors_are_json(method: str, path: str, status: int, code: str) -> None:
    async with serving() as (_, host, port):
        found, headers, body = await get(host, port, path, method)
    assert (found, json.loads(body)["error"]["code"]) == (status, code)
    assert ("allow" in headers) == (status == 405)


async def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order() -> None:
    one = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving() as (_, host, port):
        answer = await exchange((host, port), one % b"/healthz" + one % b"/" + last)
    assert answer.count(b"HTTP/1.1 ") == 3
    assert answer.index(b'"ok"') < answer.index(b"Pixiu is here") < answer.index(b"not_found")


async def test_a_request_in_single_bytes_is_the_same_request() -> None:
    async with serving() as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
        assert b'"ok"' in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    "data, status",
    [
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000, b"431"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n" + b"z" * 70_000, b"413"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    ],
)
async def test_garbage_and_too_much_are_refused_and_closed(data: bytes, status: bytes) -> None:
    async with serving() as (server, host, port):
        answer = await exchange((host, port), data)
        assert answer.startswith(b"HTTP/1.1 " + status)
        await wait_until(lambda: not server.connections)


async def test_half_a_request_and_a_hang_up_leave_nothing() -> None:
    async with serving() as (server, host, port):
        await exchange((host, port), b"GET / HT", eof=True)
        await wait_until(lambda: not server.connections)
        assert (await get(host, port, "/healthz"))[0] == 200


async def test_connections_above_the_limit_are_told_and_closed() -> None:
    async with serving(connections_max=2) as (server, host, port):
        pairs = [await asyncio.open_connection(host, port) for _ in range(2)]
        await wait_until(lambda: len(server.connections) == 2)
        assert b" 503 " in await exchange((host, port), b"")
        for _, writer in pairs:
            writer.close()
        await wait_until(lambda: not server.connections)
        assert (await get(host, port, "/healthz"))[0] == 200


async def test_an_idle_connection_is_closed() -> None:
    async with serving(idle_seconds=0.05) as (_, host, port):
        assert await exchange((host, port), b"") == b""


async def test_a_byte_now_and_then_buys_no_time() -> None:
    async with serving(request_seconds=0.2) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        ended = asyncio.create_task(reader.read())
        sent = 0
        async with asyncio.timeout(10):
            while not ended.done():
                writer.write(b"G" if sent == 0 else b"E")
                sent += 1
                await asyncio.wait([ended], timeout=0.02)
        assert sent < 100
        writer.close()
        await asyncio.gather(ended, return_exceptions=True)


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async with serving(write_seconds=0.1) as (server, host, port):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        await wait_until(lambda: bool(server.connections))
        await wait_until(lambda: not server.connections)
        writer.close()


async def test_a_slow_reader_gets_every_answer_it_asked_for() -> None:
    request = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving() as (_, host, port):
        answer = await exchange((host, port), request * 2 + last)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert len(answer) > 2 * 32 * 2**20
    assert answer.endswith(b"Pixiu is here.\n")


async def test_closing_cuts_open_connections() -> None:
    async with serving() as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        await wait_until(lambda: bool(server.connections))
        await server.close()
        async with asyncio.timeout(10):
            assert await asyncio.gather(reader.read(), return_exceptions=True)
        writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection(host, port)
