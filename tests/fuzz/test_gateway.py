"""Garbage at the client port, over real sockets: it never crashes, never hangs, and leaves nothing behind.

One node for all examples: what an example does to it must not show in the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pixiu.config.rooms import RoomSettings
from pixiu.im import VERBS
from pixiu.model.frames_pb2 import ClientFrame
from pixiu.roles.broker.verbs import ROOM_VERBS
from tests.roles.gateway.raw import frame_of, handshake
from tests.roles.gateway.world import Client, World, eventually, world_at

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTIONS = [*VERBS, *ROOM_VERBS, "ack", "ping", "pong", "typing", "presence", "", "nonsense"]
NAMES = ["alice", "bob", "team", "lobby", "g:team", "0", "1", "-1", "", "a" * 65, "\x00", "名", "../x"]
PARAMS = sorted({name for verb in VERBS.values() for name in verb.params} | {"room", "class", "cursor", "users"})

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=40)
    | st.sampled_from(NAMES)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*PARAMS, "x"]), inner, max_size=4),
    max_leaves=12,
)
params = st.dictionaries(st.sampled_from(PARAMS), values, max_size=6) | values
requests = st.builds(
    lambda number, action, given: json.dumps({"id": number, "action": action, "params": given}).encode(),
    st.integers(0, 9) | st.text(max_size=5) | values,
    st.sampled_from(ACTIONS) | values,
    params,
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A request with a few bytes changed, dropped or doubled."""
    data = bytearray(draw(requests))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["change", "drop", "double"])):
            case "change" if data:
                data[at] = draw(st.integers(0, 255))
            case "drop":
                del data[at : at + 3]
            case _:
                data[at:at] = data[at : at + 20]
    return bytes(data)


@st.composite
def proto_requests(draw: st.DrawFn) -> bytes:
    """A protobuf frame, sometimes with garbage inside."""
    frame = ClientFrame()
    frame.request.id = draw(st.integers(0, 2**31 - 1))
    frame.request.action = draw(st.sampled_from(ACTIONS))
    for name in draw(st.lists(st.sampled_from(PARAMS), max_size=4)):
        frame.request.params[name].text = draw(st.sampled_from(NAMES))
    data = bytearray(frame.SerializeToString())
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)):
        data[at] ^= draw(st.integers(1, 255))
    return bytes(data)


payloads = st.lists(requests | spoiled() | proto_requests() | st.binary(max_size=300), min_size=1, max_size=6)


class Served:
    """A node with clients who behave, and what it wrote to its log."""

    def __init__(self, path: Any) -> None:
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._stack = AsyncExitStack()
        self.blamed: list[str] = []
        handler = logging.Handler()
        handler.emit = self._note  # type: ignore[method-assign]
        self.handler = handler
        logging.getLogger().addHandler(handler)
        self.world: World = self.runner.run(self._open(path))
        self.good: Client = self.runner.run(self._begin())

    async def _open(self, path: Any) -> World:
        options: dict[str, Any] = {"requests_per_user": 0, "connects_per_user": 0, "hello_timeout_ms": 1_000}
        rooms = RoomSettings(says_per_second=0)
        return await self._stack.enter_async_context(world_at(path, with_rooms=True, rooms=rooms, **options))

    async def _begin(self) -> Client:
        good = await self.world.connect("good")
        await good.ask("create_group", group="team", name="Team", members=["alice", "bob"])
        return good

    def _note(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.blamed.append(record.getMessage())

    async def exchange(self, port: int, data: bytes, cuts: list[int]) -> bytes:
        """Send it in pieces, say goodbye, and read to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
        start = 0
        try:
            for end in ends:
                writer.write(data[start:end])
                start = end
                await asyncio.sleep(0)
            await writer.drain()
            await asyncio.sleep(0.01)  # for answers that wait for the log
            with contextlib.suppress(OSError, RuntimeError):  # the server may have hung up by now
                writer.write_eof()
            async with asyncio.timeout(5):
                return await reader.read()
        except (ConnectionError, BrokenPipeError):
            return b""
        finally:
            writer.close()

    async def check(self, answer: bytes) -> None:
        assert b'"internal"' not in answer, answer[-500:]
        self.good.frames.clear()
        assert (await self.good.ask("ping"))["at"], "others are served"
        await eventually(lambda: self.world.gateway.counters.connections == 1 and not self.world.server.pending, 8)
        assert not self.blamed, self.blamed

    def close(self) -> None:
        logging.getLogger().removeHandler(self.handler)
        self.runner.run(self._stack.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("fuzz"))
    yield made
    made.close()


fuzz = settings(max_examples=120, suppress_health_check=list(HealthCheck))
cuts = st.lists(st.integers(0, 600), max_size=4)


@fuzz
@given(payloads=payloads, kind=st.sampled_from([1, 2]), codec=st.sampled_from(["json", "proto"]), cuts=cuts)
def test_frames_of_a_websocket(served: Served, payloads: list[bytes], kind: int, codec: str, cuts: list[int]) -> None:
    head = handshake("alice", headers=f"Sec-WebSocket-Protocol: pixiu.{codec}.v1\r\n")
    data = head + b"".join(frame_of(kind, payload) for payload in payloads) + frame_of(8, b"\x03\xe8")
    answer = served.runner.run(served.exchange(served.world.port, data, cuts))
    assert not answer or answer.startswith(b"HTTP/1.1 101 ")
    served.runner.run(served.check(answer))


@fuzz
@given(noise=st.lists(st.binary(max_size=200) | st.just(frame_of(1, b"{")), max_size=4), cuts=cuts)
def test_bytes_behind_a_handshake(served: Served, noise: list[bytes], cuts: list[int]) -> None:
    answer = served.runner.run(served.exchange(served.world.port, handshake("alice") + b"".join(noise), cuts))
    served.runner.run(served.check(answer))


@fuzz
@given(payloads=payloads, codec=st.sampled_from(["json", "proto", "nonsense"]), cuts=cuts, has_hello=st.booleans())
def test_frames_over_tcp(served: Served, payloads: list[bytes], codec: str, cuts: list[int], has_hello: bool) -> None:
    hello = [json.dumps({"token": "alice", "codec": codec}).encode()] if has_hello else []
    data = b"".join(len(payload).to_bytes(4) + payload for payload in [*hello, *payloads])
    answer = served.runner.run(served.exchange(served.world.tcp_port, data, cuts))
    served.runner.run(served.check(answer))


@fuzz
@given(data=st.binary(max_size=400), to_tcp=st.booleans(), cuts=cuts)
def test_bytes_of_strangers(served: Served, data: bytes, to_tcp: bool, cuts: list[int]) -> None:
    port = served.world.tcp_port if to_tcp else served.world.port
    served.runner.run(served.check(served.runner.run(served.exchange(port, data, cuts))))


def test_ten_thousand_frames_of_garbage_leave_nothing_behind(served: Served) -> None:
    """Resident memory grows by no more than a few caches."""

    async def flood(count: int) -> None:
        garbage = [
            b"{",
            b'{"id":1,"action":"send","params":{"to":"bob","text":"' + b"x" * 1000,
            b"\xff" * 100,
            b"[" * 500,
        ]
        for number in range(count):
            payload = garbage[number % len(garbage)]
            data = handshake(f"u{number % 50}") + frame_of(1, payload) * 10
            await served.exchange(served.world.port, data, [])

    served.runner.run(flood(200))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    served.runner.run(flood(800))
    served.runner.run(served.check(b""))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
