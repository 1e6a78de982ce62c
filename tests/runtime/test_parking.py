"""Silent connections, watched apart: nobody notices, and a crowd that goes at once goes a few at a time."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pixiu.runtime import parking
from pixiu.runtime.certificates import Certificates
from tests.certificates import Authority
from tests.roles.gateway.world import TcpClient, eventually, on_the_loop_that_serves, world_at

if TYPE_CHECKING:
    from tests.roles.gateway.world import World

HEAD = (
    "GET /ws?token={token} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(autouse=True)
def soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "SILENT_SECONDS", 0.05)


def contexts(path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of clients that trust it."""
    authority = Authority(path, "pixiu test")
    authority.certify(path / "cert.pem", path / "key.pem")
    certificates = Certificates(path / "cert.pem", path / "key.pem")
    return certificates.context, ssl.create_default_context(cafile=str(authority.path))


def hello(token: str) -> bytes:
    frame = json.dumps({"token": token}).encode()
    return len(frame).to_bytes(4) + frame


def parked(world: World) -> int:
    return len(world.server.parking)


def watched_by_the_loop(world: World) -> set[int]:
    """What the loop's own epoll has, as the system tells it."""
    epoll = world.server.parking._loops_own or parking._epoll_that_watches(world.server.parking._epoll.fileno())  # type: ignore[union-attr]
    if epoll is None:
        return set()
    lines = Path(f"/proc/self/fdinfo/{epoll.fileno()}").read_text().splitlines()
    return {int(line.split()[1]) for line in lines if line.startswith("tfd:")}


@on_the_loop_that_serves
class TestParking:
    @pytest.mark.feature("T3")
    async def test_who_is_silent_is_parked_and_heard_as_soon_as_it_speaks(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            alice, bob = await world.connect("alice"), await world.connect("bob")
            for number in range(3):
                await eventually(lambda: parked(world) == 2)
                assert "message_id" in await alice.ask("send", to="bob", text=f"{number}")
                await bob.until(lambda number=number: len(bob.texts) == number + 1)  # type: ignore[misc]
            await eventually(lambda: parked(world) == 2)
            await alice.leave()
            await eventually(lambda: world.gateway.counters.connections == 1 and parked(world) == 1)
            again = await world.connect("alice")
            assert (await again.ask("ping"))["at"], "whoever has its descriptor now is heard"
            assert (await bob.ask("ping"))["at"]

    @pytest.mark.feature("T3")
    async def test_so_is_a_client_over_tcp(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            alice = await world.tcp()
            alice.send({"token": "alice"})
            assert (await alice.frame())["push"] == "contacts"
            for number in range(3):
                await eventually(lambda: parked(world) == 1)
                alice.send({"id": number, "action": "ping"})
                assert (await alice.frame())["id"] == number
            await eventually(lambda: parked(world) == 1)
            await world.node.send("bob", to="alice", text="hi")
            assert (await alice.frame())["push"] == "message", "it is written to while it is parked"
            await alice.leave()
            await eventually(lambda: world.gateway.counters.connections == 0 and parked(world) == 0)

    async def test_the_loop_does_not_watch_who_is_parked(self, tmp_path: Path) -> None:
        """Else libuv would take a crowd that is cut out of its epoll in one turn."""
        async with world_at(tmp_path) as world:
            alice = await world.connect("alice")
            (connection,) = world.server.parking._awake
            await eventually(lambda: connection.number in watched_by_the_loop(world))
            await eventually(lambda: parked(world) == 1)
            assert connection.number not in watched_by_the_loop(world)
            assert (await alice.ask("ping"))["at"]
            assert connection.number in watched_by_the_loop(world)

    @pytest.mark.feature("T5")
    @pytest.mark.parametrize("is_websocket", [True, False], ids=["websocket", "tcp"])
    async def test_a_crowd_that_is_cut_at_once_goes_a_few_at_a_time(self, tmp_path: Path, is_websocket: bool) -> None:
        async with world_at(tmp_path, connects_per_user=0) as world:
            count = 6 * parking.WOKEN_PER_TURN
            port = world.port if is_websocket else world.tcp_port
            crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
            for number, each in enumerate(crowd):
                each.sendall(HEAD.format(token=f"u{number}").encode() if is_websocket else hello(f"u{number}"))
            other = await world.connect("other")
            await eventually(lambda: parked(world) == count + 1)
            woken: list[int] = []
            wake = world.server.parking.left

            def left(connection: parking.Parkable) -> None:
                woken.append(parked(world))
                wake(connection)

            world.server.parking.left = left  # type: ignore[method-assign]
            for each in crowd:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.close()
            await eventually(lambda: world.gateway.counters.connections == 1)
            assert len(woken) == count
            assert woken[0] >= count + 1 - 2 * parking.WOKEN_PER_TURN, "the first were gone while others were watched"
            assert (await other.ask("ping"))["at"]

    @pytest.mark.feature("P28")
    async def test_one_that_is_parked_and_does_not_read_is_slow_as_any_other(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, output_bytes_max=128 * 1024, slow_timeout_ms=500) as world:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", world.port))
            slow.sendall(HEAD.format(token="bob").encode())
            await eventually(lambda: parked(world) == 1)
            for _ in range(100):
                await world.node.send("alice", to="bob", text="x" * 60_000)
            await eventually(lambda: not world.sessions("bob"), 6)
            assert world.gateway.counters.closed == {("slow",): 1}
            slow.close()
            back = await world.connect("bob")
            await back.until(lambda: len(back.texts) == 100)

    @pytest.mark.feature("P28")
    @pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
    async def test_whatever_waits_to_be_written_when_somebody_is_parked_arrives(
        self, tmp_path: Path, with_tls: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Libuv ends the process if it finds that it waits for a descriptor that was taken from it."""
        monkeypatch.setattr(parking, "SILENT_SECONDS", 0.001)
        server_side, trusting = contexts(tmp_path) if with_tls else (None, None)
        rounds, bytes_each = 12, 60_000
        async with world_at(tmp_path / "data", tls=server_side, output_bytes_max=16 << 20) as world:
            clients: list[TcpClient] = []
            for number in range(8):
                stream = await asyncio.open_connection("localhost", world.tcp_port, ssl=trusting, limit=4096)
                clients.append(TcpClient(*stream))
                clients[-1].send({"token": f"u{number}"})
                assert (await clients[-1].frame())["push"] == "contacts"
            for round_number in range(rounds):
                for number in range(8):
                    await world.node.send("alice", to=f"u{number}", text="x" * bytes_each)
                await asyncio.sleep(0.002 * (round_number % 5))  # long enough to be parked, or not
                for each in clients[round_number % 2 :: 2]:
                    each.send({"id": round_number, "action": "ping"})
            for number, client in enumerate(clients):
                answered = pushed = 0
                while pushed < rounds or answered < rounds // 2:
                    frame = await client.frame()
                    if frame.get("push") == "message":
                        pushed += 1
                        client.send({"action": "ack", "params": {"cursor": frame["cursor"]}})
                    else:
                        answered += 1
                assert (pushed, answered) == (rounds, rounds // 2), f"u{number}"
            await eventually(lambda: parked(world) == 8)
            for client in clients:
                await client.leave()

    @pytest.mark.feature("T4")
    async def test_so_it_is_with_tls(self, tmp_path: Path) -> None:
        server_side, trusting = contexts(tmp_path)
        async with world_at(tmp_path / "data", tls=server_side, requests_per_user=0) as world:
            url = world.url("alice").replace("ws://127.0.0.1", "wss://localhost")
            alice = await world.connect_to(url, ssl=trusting)
            stream = await asyncio.open_connection("localhost", world.tcp_port, ssl=trusting)
            bob = TcpClient(*stream)
            bob.send({"token": "bob"})
            assert (await bob.frame())["push"] == "contacts"
            for number in range(3):
                await eventually(lambda: parked(world) == 2)
                text = f"{number}" * 20_000
                assert "message_id" in await alice.ask("send", to="bob", text=text)
                pushed = await bob.frame()
                assert pushed["message"]["text"] == text, "it is written to while it is parked"
                bob.send({"action": "ack", "params": {"cursor": pushed["cursor"]}})
                bob.send({"id": number, "action": "ping"})
                assert (await bob.frame())["id"] == number
            await eventually(lambda: parked(world) == 2)
            answers = await asyncio.gather(*(alice.ask("ping") for _ in range(100)))
            assert all(answer["at"] for answer in answers)
            await eventually(lambda: parked(world) == 2)
            await bob.leave()
            await eventually(lambda: world.gateway.counters.connections == 1 and parked(world) == 1)
            await alice.leave()
            await eventually(lambda: world.gateway.counters.connections == 0 and parked(world) == 0)

    async def test_the_server_says_goodbye_to_one_with_tls_that_is_parked(self, tmp_path: Path) -> None:
        server_side, trusting = contexts(tmp_path)
        async with world_at(tmp_path / "data", tls=server_side) as world:
            url = world.url("alice").replace("ws://127.0.0.1", "wss://localhost")
            alice = await world.connect_to(url, ssl=trusting)
            await eventually(lambda: parked(world) == 1)
            (connection,) = [each for part in world.gateway._parts for each in part.values()]
            connection.kick("admin")
            assert await alice.closed() > 4000
            await eventually(lambda: world.gateway.counters.connections == 0 and parked(world) == 0)
