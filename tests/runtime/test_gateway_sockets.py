"""What lies between a gateway process and its node: local sockets, passed-on HTTP, shared ports, descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import stat
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.api.server import HttpServer
from pixiu.config import GatewaySettings, Settings
from pixiu.model.errors import PixiuError
from pixiu.node.gateways.process import Orders
from pixiu.node.gateways.processes import reserve_port
from pixiu.runtime.descriptors import SANE_MAX, raise_descriptors, share
from pixiu.runtime.http_passage import Arrival, Passages
from pixiu.runtime.local_links import LocalLink, LocalPlace, dial_local, listen_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pixiu.ports.transport import WatchedLink


class End:
    """One end of a link."""

    def __init__(self) -> None:
        self.link: WatchedLink | None = None
        self.data = b""
        self.lost_because = ""
        self.pauses = 0
        self.changed = asyncio.Event()

    def opened(self, link: WatchedLink) -> None:
        self.link = link
        self.changed.set()

    def received(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def paused(self) -> None:
        self.pauses += 1

    def resumed(self) -> None:
        self.pauses -= 1
        self.changed.set()

    def lost(self, reason: str) -> None:
        self.lost_because = reason
        self.changed.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def test_a_link_carries_bytes_tells_when_much_waits_and_when_it_ends(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path / "run")
    path = place.path("gateway.sock")
    here, there = End(), End()
    server = await listen_local(path, lambda: LocalLink(here))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await dial_local(asyncio.get_running_loop(), str(path), there)
    await here.until(lambda: here.link)
    assert here.link is not None and there.link is not None
    there.link.write(b"hello")
    await here.until(lambda: here.data == b"hello")
    here.link.write(bytes(4 * 2**20))
    assert here.pauses == 1 and here.link.pending() > 2**20
    await there.until(lambda: len(there.data) == 4 * 2**20)
    await here.until(lambda: here.pauses == 0)
    there.link.close()
    await here.until(lambda: here.lost_because)
    assert there.lost_because == "", "who hangs up is not told"
    server.close()
    await server.wait_closed()
    again = End()
    path = place.path("gateway.sock")
    await dial_local(asyncio.get_running_loop(), str(path), again)
    assert again.lost_because
    place.close()
    assert not path.parent.exists()


async def test_a_directory_too_deep_for_a_socket_has_it_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 6)
    deep.mkdir(parents=True)
    place = LocalPlace(deep / "run")
    path = place.path("gateway.sock")
    assert len(str(path)) < 108 and not path.is_relative_to(tmp_path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    server = await listen_local(path, lambda: LocalLink(End()))
    server.close()
    await server.wait_closed()
    place.close()
    assert not path.parent.exists()


async def test_a_socket_that_was_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    place = LocalPlace(tmp_path / "run")
    left.bind(str(place.path("gateway.sock")))
    left.close()
    server = await listen_local(place.path("gateway.sock"), lambda: LocalLink(End()))
    server.close()
    await server.wait_closed()


async def who_asks(scope: Any, receive: Any, send: Any) -> None:
    """An application that tells its caller who it is, with as many bytes behind it as the path says."""
    while (await receive()).get("more_body"):
        pass
    told = f"{scope['client']} {scope['scheme']} ".encode() + b"x" * int(scope["path"][1:] or 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


class First(asyncio.Protocol):
    """Reads what comes first, and hands the connection over, as the port of clients does."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        protocol: Any = self._passages.make()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)


@contextlib.asynccontextmanager
async def passing(tmp_path: Path, *, count_max: int = 10) -> AsyncIterator[tuple[int, Passages, asyncio.Server]]:
    """A port that passes on to an HTTP server behind a local socket."""
    loop = asyncio.get_running_loop()
    http = HttpServer(who_asks)
    await http.start()
    place = LocalPlace(tmp_path / "run")
    path = place.path("http.sock")
    node = await listen_local(path, lambda: Arrival(http.connection))
    passages = Passages(loop, str(path), count_max=count_max)
    front = await loop.create_server(lambda: First(passages), "127.0.0.1", 0)
    yield int(front.sockets[0].getsockname()[1]), passages, node
    front.close()
    await passages.end(0.1)
    await http.stop()
    node.close()
    place.close()


async def get(port: int, path: str = "/", *, more: bytes = b"Connection: close\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (path.encode(), more))
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def test_http_is_passed_on_with_the_address_of_whoever_asks(tmp_path: Path) -> None:
    async with passing(tmp_path) as (port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        own = writer.get_extra_info("sockname")
        for _ in range(2):  # a connection that stays is passed on as one
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            assert f"('127.0.0.1', {own[1]}) http ".encode() in await reader.readuntil(b"http ")
        writer.close()
        await writer.wait_closed()


async def test_a_long_answer_comes_whole_and_to_a_slow_reader_too(tmp_path: Path) -> None:
    async with passing(tmp_path) as (port, _, _):
        assert (await get(port, "/3000000")).endswith(b"x" * 3_000_000)


async def test_too_many_passages_and_a_node_that_is_gone_are_503(tmp_path: Path) -> None:
    async with passing(tmp_path, count_max=1) as (port, passages, node):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"http ")
        assert b" 503 " in await get(port)
        writer.close()
        await writer.wait_closed()
        await passages.end(5)
        node.close()
        await node.wait_closed()
        assert b" 503 " in await get(port)


@pytest.mark.parametrize("line", [b"nonsense\n", b"1.2.3.4 x http\n", b"1.2.3.4 5 gopher\n", b"x" * 1000, b"\xff\n"])
async def test_an_arrival_that_makes_no_sense_is_cut(tmp_path: Path, line: bytes) -> None:
    async with passing(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "run" / "http.sock"))
        writer.write(line)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def test_a_reserved_port_is_shared_by_those_who_ask_for_it_and_taken_for_others() -> None:
    held = reserve_port("127.0.0.1", 0)
    port = held.getsockname()[1]
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    with pytest.raises(OSError):
        reserve_port("127.0.0.1", port)
    # What is reserved and not listened on gets no connection.
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            listening.accept()[0].close()
    listening.close()
    held.close()


def test_descriptors_are_raised_to_what_is_allowed_and_shared_by_what_is_wanted() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_descriptors() == min(hard if hard != resource.RLIM_INFINITY else SANE_MAX, SANE_MAX)
    assert share(100, [30, 50]) == [30, 50]
    assert share(1000, [1000, 9000]) == [100, 900]
    assert share(10, [1, 10_000]) == [1, 9]


def test_orders_come_as_they_were_given() -> None:
    settings = Settings(gateway=GatewaySettings(processes=3, lease_ms=777, origins="https://a.example"))
    orders = Orders("gateway-1", "/data", "/run/a", "/run/b", 8400, -1, settings)
    assert Orders.from_line(orders.as_line()) == orders
    for line in (b"", b"{}\n", b"[1]\n", b'{"name": 1}\n', b'{"settings": 3}\n'):
        with pytest.raises(PixiuError, match="pixiu serve --gateways"):
            Orders.from_line(line)
