"""What one client sends at once is spread over turns of the event loop, and others have their turns between."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import websockets

from pixiu.roles.gateway.connection import Connection
from pixiu.roles.proxy.service import Proxy
from pixiu.runtime.client_sockets import FRAMES_PER_TURN
from tests.sdk.world import World, eventually, world_at


class Turns:
    """Counts what happens in each turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.calls: Counter[int] = Counter()
        self.order: list[Any] = []
        self._next()

    def _next(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._next)

    def counted(self, call: Callable[..., Any], of: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            what = of(*args, **named)
            if what is not None:
                self.calls[self.turn] += 1
                self.order.append(what)
            return call(*args, **named)

        return counting


def raw_client(world: World, user: str) -> websockets.connect:
    return websockets.connect(f"{world.url}/ws?token={world.token(user)}", close_timeout=0.5, compression=None)


def request(number: int, action: str) -> bytes:
    return json.dumps({"id": number, "action": action}).encode()


def masked(payload: bytes) -> bytes:
    """A WebSocket's text frame from a client."""
    assert len(payload) < 126
    return bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload


@pytest.mark.parametrize("action", ["contacts", "presence"])
async def test_expensive_requests_of_one_segment_run_in_turns_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr("pixiu.im.turns.TURN_US", 1)
    async with (
        world_at(tmp_path, requests_per_user=0) as world,
        raw_client(world, "eve") as eve,
        world.connect("bob") as bob,
    ):
        await eve.recv()
        await bob.act("contacts")
        turns = Turns()
        number = world.number("eve")
        if action == "contacts":
            perform = turns.counted(Proxy._perform, lambda _proxy, verb, actor, *_args, **_named: actor.user)
            monkeypatch.setattr(Proxy, "_perform", perform)
        else:
            stores = world.host.stores.contacts
            monkeypatch.setattr(stores, "page", turns.counted(stores.page, lambda user, _limit: user))
        before = asyncio.create_task(bob.act(action))
        eve.transport.write(b"".join(masked(request(each, action)) for each in range(50)))
        await before
        after = await bob.act(action)
        assert after is not None
        answers = [json.loads(await eve.recv()) for _ in range(50)]
        assert [each["id"] for each in answers] == list(range(50)) and not any("error" in each for each in answers)
        assert turns.order.count(number) == 50 and len(turns.order) == 52
        assert max(turns.calls.values()) == 1
        assert turns.order[-2:] == [number, number], "bob's second request did not wait for all of eve's"


async def test_expensive_requests_that_wait_are_dropped_with_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.im.turns.TURN_US", 1)
    async with world_at(tmp_path, requests_per_user=0) as world, raw_client(world, "eve") as eve:
        await eve.recv()
        eve.transport.write(b"".join(masked(request(each, "presence")) for each in range(50)))
        eve.transport.abort()
        await eventually(lambda: not world.sessions("eve"))
        turns = world.host.messaging.proxy.turns
        await eventually(lambda: not len(turns))


@pytest.mark.parametrize("over", ["websocket", "tcp"])
async def test_frames_of_one_segment_are_read_over_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    count = 2_000
    async with world_at(tmp_path, requests_per_user=0, tcp_port=0) as world:
        if over == "tcp":
            reader, writer = await asyncio.open_connection("127.0.0.1", world._node._surfaces.tcp_port)  # type: ignore[union-attr]
            hello = json.dumps({"token": world.token("eve"), "codec": "json"}).encode()
            writer.write(pack(">I", len(hello)) + hello)
            await reader.read(65_536)
        else:
            client = await raw_client(world, "eve")
            await client.recv()
        turns = Turns()
        received = turns.counted(Connection.received, lambda _connection, payload, **_named: payload)
        monkeypatch.setattr(Connection, "received", received)
        frames = [b'{"action":"pong","id":%d}' % each for each in range(count)]
        if over == "tcp":
            writer.write(b"".join(pack(">I", len(each)) + each for each in frames))
        else:
            client.transport.write(b"".join(map(masked, frames)))
        await eventually(lambda: len(turns.order) == count)
        assert turns.order == frames, "all of them, in order"
        assert max(turns.calls.values()) <= FRAMES_PER_TURN
        if over == "tcp":
            writer.close()
        else:
            await client.close()


@pytest.mark.parametrize("over", ["websocket", "tcp"])
async def test_requests_before_a_goodbye_are_performed(tmp_path: Path, over: str) -> None:
    count = 300
    async with world_at(tmp_path, requests_per_user=0, requests_in_flight=1_000, tcp_port=0) as world:
        number = world.number
        frames = [
            json.dumps({"id": each, "action": "send", "params": {"to": "bob", "text": str(each)}}).encode()
            for each in range(count)
        ]
        if over == "tcp":
            reader, writer = await asyncio.open_connection("127.0.0.1", world._node._surfaces.tcp_port)  # type: ignore[union-attr]
            hello = json.dumps({"token": world.token("eve"), "codec": "json"}).encode()
            writer.write(pack(">I", len(hello)) + hello)
            await reader.read(65_536)
            writer.write(b"".join(pack(">I", len(each)) + each for each in frames))
            writer.write_eof()
        else:
            client = await raw_client(world, "eve")
            await client.recv()
            client.transport.write(b"".join(map(masked, frames)) + bytes((0x88, 0x80)) + bytes(4))

        def said() -> int:
            rows = world.host.stores.timelines.private_forward(number("eve"), limit=count)
            return len(rows)

        await eventually(lambda: said() == count)
        if over == "tcp":
            writer.close()
        else:
            client.transport.abort()
