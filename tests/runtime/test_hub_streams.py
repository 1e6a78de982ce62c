"""The stream between a gateway and a hub elsewhere: who is let in, and what becomes of what is said."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.links.sealing import Secrets
from pixiu.model.errors import Unavailable
from pixiu.runtime import hub_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pixiu.ports.transport import WatchedLink

SECRETS = Secrets([b"0123456789abcdef"])
GATEWAY = 77


class End:
    """A receiver that remembers."""

    def __init__(self) -> None:
        self.link: WatchedLink | None = None
        self.data = b""
        self.reasons: list[str] = []
        self.news = asyncio.Event()

    def opened(self, link: WatchedLink) -> None:
        self.link = link
        self.news.set()

    def received(self, data: bytes) -> None:
        self.data += data
        self.news.set()

    def paused(self) -> None: ...

    def resumed(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)
        self.news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 5)


class Place:
    """A hub's listener with what came in."""

    listener: hub_streams.HubStreams

    def __init__(self) -> None:
        self.boot = 1001
        self.is_wanted = True
        self.peers: list[int] = []
        self.ends: list[End] = []
        self.secrets = SECRETS
        self.dials: list[hub_streams.Dial] = []

    def accept(self, peer: int) -> End | None:
        if not self.is_wanted:
            return None
        self.peers.append(peer)
        self.ends.append(End())
        return self.ends[-1]

    def dial(self, *, secrets: Secrets = SECRETS, to: int | None = None, port: int = 0) -> End:
        end = End()
        address = f"127.0.0.1:{port or self.listener.port}"
        loop = asyncio.get_running_loop()
        meant = self.boot if to is None else to
        self.dials.append(hub_streams.connect(loop, address, secrets, end, boot=GATEWAY, to=meant))
        return end


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    made = Place()
    made.listener = await hub_streams.listen("127.0.0.1", 0, lambda: made.secrets, made.boot, made.accept)
    try:
        yield made
    finally:
        for dial in made.dials:
            dial.close()
        made.listener.close()
        await asyncio.sleep(0.01)


async def test_both_ends_hear_each_other_and_large_things_arrive_whole() -> None:
    async with place() as hub:
        gateway = hub.dial()
        await gateway.until(lambda: gateway.link is not None)
        assert gateway.link is not None
        gateway.link.write(b"hello")
        large = bytes(range(256)) * 20_000  # five megabytes: more than one frame holds
        while not hub.ends:
            await asyncio.sleep(0.001)
        there = hub.ends[0]
        await there.until(lambda: there.data == b"hello")
        assert hub.peers == [GATEWAY]
        assert there.link is not None
        there.link.write(large)
        await gateway.until(lambda: len(gateway.data) >= len(large))
        assert gateway.data == large
        there.link.close()
        await gateway.until(lambda: gateway.reasons)
        assert len(gateway.reasons) == 1 and not there.reasons


@pytest.mark.parametrize("wrong", ["secret", "process", "not wanted"])
async def test_who_does_not_belong_here_never_reaches_the_hub(wrong: str) -> None:
    async with place() as hub:
        if wrong == "secret":
            gateway = hub.dial(secrets=Secrets([b"another secret, as long"]))
        elif wrong == "process":
            gateway = hub.dial(to=hub.boot + 1)
        else:
            hub.is_wanted = False
            gateway = hub.dial()
        await gateway.until(lambda: gateway.reasons)
        assert not hub.peers
        assert len(gateway.reasons) == 1


async def test_something_that_speaks_another_language_is_cut_off() -> None:
    async with place() as hub:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.listener.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: somewhere.invalid\r\n\r\n")
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert not hub.peers and hub.listener.refused == 1


async def test_the_secret_may_change_while_everything_runs() -> None:
    async with place() as hub:
        hub.secrets = Secrets([b"0123456789abcdef", b"the next secret, longer"])
        gateway = hub.dial(secrets=Secrets([b"the next secret, longer", b"0123456789abcdef"]))
        await gateway.until(lambda: gateway.link is not None)


async def test_a_hub_that_is_gone_is_told_once() -> None:
    async with place() as hub:
        port = hub.listener.port
        hub.listener.close()
        gateway = hub.dial(port=port)
        await gateway.until(lambda: gateway.reasons)
        await asyncio.sleep(0.01)
        assert len(gateway.reasons) == 1
        given_up = hub.dial(port=port)
        hub.dials[-1].close()
        await asyncio.sleep(0.05)
        assert not given_up.reasons


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    async with place() as hub:
        with pytest.raises(Unavailable, match="cannot listen on"):
            await hub_streams.listen("127.0.0.1", hub.listener.port, lambda: SECRETS, 1, hub.accept)
