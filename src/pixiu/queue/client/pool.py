"""How a request travels: which connection, which server, and what to do when that one will not do."""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakSet

from pixiu.machines.queue_wire import Kind, Response
from pixiu.machines.queue_wire.commands import CODE_REFUSED
from pixiu.model.errors import LocalProtocolError, NotLeader, PixiuError, Unavailable
from pixiu.queue.client.connection import Connection
from pixiu.queue.client.errors import FateUnknown, error_of
from pixiu.queue.client.keys import show_key
from pixiu.queue.client.leader import LeaderFinder
from pixiu.queue.client.line import Line
from pixiu.queue.client.servers import NOWHERE, Address, Backoff, Servers
from pixiu.queue.client.stream import SubscribeConnection

if TYPE_CHECKING:
    from pixiu.ports.registry import Registry

__all__ = ["SILENCE_S_MAX", "Pool", "PoolOptions"]

SAFE_ATTEMPTS = 3
"""How often a request that is safe to repeat is sent before its caller hears of it."""

GRACE_S = 0.25
"""How long a client waits for what the last leader owes, once another leads."""

FOLLOWING_CAP_S = 0.4
"""The longest pause of a client that looks for the leader through a registry."""

SILENCE_S_MAX = 35.0
"""Servers send a keep-alive every 30 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What ``Client`` was given."""

    addresses: tuple[Address, ...]
    registry: "str | Registry | None" = None
    partition: int = 0
    connections: int
    key: bytes | None
    patience_s: float
    response_timeout_s: float
    connect_timeout_s: float
    silence_s_max: float
    in_flight_max: int
    waiting_bytes_max: int
    answer_bytes_max: int
    backoff_first_s: float
    backoff_cap_s: float

    def __post_init__(self) -> None:
        if self.connections < 1 or self.in_flight_max < 1:
            raise LocalProtocolError("pool and in_flight_max are at least 1")


class Pool:
    """The lines to the queue. Everything about one topic goes over one of them, so order is kept."""

    def __init__(self, options: PoolOptions, *, random: Random) -> None:
        self._options = options
        self._random = random
        self.servers = Servers(options.addresses, connect_timeout_s=options.connect_timeout_s)
        self._lines: list[Line] = []
        self._streams: WeakSet[SubscribeConnection] = WeakSet()
        self._is_closed = False
        self._finder: LeaderFinder | None = None
        if options.registry is not None:
            self._finder = LeaderFinder(options.registry, partition=options.partition, found=self._leader_found)

    @property
    def follows_leader(self) -> bool:
        """Whether a registry tells where to go: then what one server refuses may wait for the next."""
        return self._finder is not None

    def _leader_found(self, addresses: tuple[Address, ...]) -> None:
        """The registry names these, the leader first. What the one before owes may still come, for a moment."""
        before = self.servers.current
        self.servers.replace(addresses)
        if before not in (NOWHERE, addresses[0]):
            for line in self._lines:
                line.leave(before)
            asyncio.get_running_loop().call_later(GRACE_S, self._abandon, before)

    def _abandon(self, address: Address) -> None:
        """A server that stands still answers nothing: leave it, unless it leads again."""
        if address == self.servers.current:
            return
        for line in self._lines:
            line.abandon(address)
        for stream in list(self._streams):
            if stream.address == address:
                stream.abort()

    def new_backoff(self) -> Backoff:
        """A backoff of its own for whoever retries."""
        options = self._options
        cap_s = min(options.backoff_cap_s, FOLLOWING_CAP_S) if self.follows_leader else options.backoff_cap_s
        return Backoff(first_s=options.backoff_first_s, cap_s=cap_s, random=self._random)

    async def read(self, request: bytes, about: str) -> bytes:
        """Ask for something that changes nothing; returns the body of the answer."""
        return (await self.ask("", request, about, kind=Kind.SIZED, is_safe=True)).body

    async def ask(
        self,
        topic: str,
        request: bytes,
        about: str,
        *,
        kind: Kind = Kind.DONE,
        is_safe: bool = False,
        moves_on: bool = True,
    ) -> Response:
        """Send, and return the answer or raise what it says; go elsewhere where that can help."""
        call = self._line(topic).submit(request, kind)
        try:
            response = await call.future
            if response.code != CODE_REFUSED:
                return response
            error: PixiuError = error_of(response.text, about)
        except FateUnknown as lost:
            error = lost
        if not moves_on:
            raise error
        retry = _Retry(self, error, call.address, is_safe=is_safe)
        line = self._line(topic)
        while True:
            await retry.prepare()
            call = line.submit(request, kind)
            try:
                response = await call.future
            except FateUnknown as lost:
                retry.failed(lost, call.address)
                continue
            if response.code != CODE_REFUSED:
                return response
            retry.failed(error_of(response.text, about), call.address)

    def leave(self, address: Address | None) -> None:
        """Not the leader: everyone goes to the next."""
        if address is not None and len(self.servers) > 1:
            self.servers.move_on(address)
            for line in self._lines:
                line.leave(address)

    @property
    def patience_s(self) -> float:
        """How long to look for a server that will do."""
        return self._options.patience_s

    async def close(self) -> None:
        """Close every connection. Whatever is outstanding fails."""
        self._is_closed = True
        connecting = [task for line in self._lines if (task := line.close()) is not None]
        if connecting:
            await asyncio.wait(connecting)
        if self._finder is not None:
            await self._finder.close()
        await asyncio.sleep(0)  # Let the loop close the sockets.

    def _line(self, topic: str) -> Line:
        if self._is_closed:
            raise Unavailable("this client is closed")
        if not self._lines:
            self._lines = [self._new_line() for _ in range(self._options.connections)]
        if not topic:
            return min(self._lines, key=lambda line: line.load)
        return self._lines[zlib.crc32(topic.encode()) % len(self._lines)]

    def _new_line(self) -> Line:
        return Line(
            self._connect,
            backoff=self.new_backoff(),
            patience_s=self._options.patience_s,
            waiting_bytes_max=self._options.waiting_bytes_max,
            stale_s=self._options.response_timeout_s,
        )

    async def _connect(self, on_progress: Callable[[], None], on_lost: Callable[[Connection], None]) -> Connection:
        def new_connection(address: Address) -> Connection:
            return Connection(
                address,
                in_flight_max=self._options.in_flight_max,
                response_timeout_s=self._options.response_timeout_s,
                body_bytes_max=self._options.answer_bytes_max,
                on_progress=on_progress,
                on_lost=on_lost,
            )

        if self._finder is not None:
            await self._finder.ready()
        connection = await self.servers.connect(new_connection)
        if self._options.key is not None:
            await connection.authorize(self._options.key)
        return connection

    async def connect_stream(self) -> SubscribeConnection:
        """A connection of its own for a subscription."""
        if self._is_closed:
            raise Unavailable("this client is closed")

        def new_connection(address: Address) -> SubscribeConnection:
            return SubscribeConnection(
                address,
                batch_bytes_max=self._options.answer_bytes_max,
                silence_s_max=self._options.silence_s_max,
            )

        if self._finder is not None:
            await self._finder.ready()
        connection = await self.servers.connect(new_connection)
        self._streams.add(connection)
        if self._options.key is not None:
            try:
                await show_key(partial(connection.ask, about="authorizing"), self._options.key, connection.address)
            except BaseException:
                connection.abort()
                raise
        return connection

    def change_key(self, key: bytes | None) -> None:
        """Show this one from now on, wherever a connection is made."""
        self._options = replace(self._options, key=key)


class _Retry:
    """What one request does after its first failure, and when it gives up."""

    def __init__(self, pool: Pool, error: PixiuError, address: Address | None, *, is_safe: bool) -> None:
        self._pool = pool
        self._is_safe = is_safe
        self._backoff = pool.new_backoff()
        self._loop = asyncio.get_running_loop()
        self._give_up_s = self._loop.time() + pool.patience_s
        self._refusals = 0
        self._losses = 0
        self.failed(error, address)

    def failed(self, error: PixiuError, address: Address | None) -> None:
        """Another try failed; raises if a further one cannot help."""
        self._error = error
        if isinstance(error, FateUnknown):
            self._losses += 1
            follows_leader = self._pool.follows_leader and self._loop.time() < self._give_up_s
            if not self._is_safe or (self._losses >= SAFE_ATTEMPTS and not follows_leader):
                raise error
        elif isinstance(error, NotLeader) and (len(self._pool.servers) > 1 or self._pool.follows_leader):
            self._refusals += 1
            self._pool.leave(address)
        elif self._pool.follows_leader and type(error) is Unavailable:
            self._refusals += 1  # refused, so not done: a leader that has just begun, or is about to stop
        else:
            raise error

    async def prepare(self) -> None:
        """Wait when every server has been asked; raises when that has gone on for too long."""
        if self._refusals and (self._pool.follows_leader or self._refusals % len(self._pool.servers) == 0):
            if self._loop.time() >= self._give_up_s:
                raise self._error
            await asyncio.sleep(self._backoff.next_s())
