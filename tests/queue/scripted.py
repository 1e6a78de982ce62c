"""A queue that does exactly what a test tells it, however wrong: for what no healthy server would ever do."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from pixiu.machines.queue_wire import commands as wire

_WITH_EIGHT_BYTES = {wire.CREATE_TOPIC, wire.VALID_LIST, wire.REPLICA}


@dataclass(frozen=True)
class Asked:
    """One request, taken apart."""

    command: int
    flags: int
    topic: bytes
    trace_id: bytes
    part: bytes


@dataclass
class Peer:
    """One connection of a client, seen from the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: list[Asked] = field(default_factory=list)

    async def request(self) -> Asked:
        """The next request."""
        header = await self.reader.readexactly(20)
        command, name_bytes, size, flags, trace_bytes = struct.unpack("<BHIB11xB", header)
        topic = await self.reader.readexactly(name_bytes)
        trace_id = await self.reader.readexactly(trace_bytes)
        if command == wire.SUB:
            part = await self.reader.readexactly(20 if header[4] == 1 else 12)
            part += await self.reader.readexactly(struct.unpack_from("<I", part, len(part) - 4)[0])
        elif command in _WITH_EIGHT_BYTES:
            part = await self.reader.readexactly(8)
        else:
            part = await self.reader.readexactly(size + (8 if command == wire.DELAY else 0))
        self.asked.append(Asked(command, flags, topic, trace_id, part))
        return self.asked[-1]

    async def ack(self) -> int:
        """The next ack of a subscriber."""
        return int.from_bytes(await self.reader.readexactly(2), "little")

    def send(self, data: bytes) -> None:
        """Bytes to the client."""
        self.writer.write(data)

    async def until_closed(self) -> None:
        """Wait for the client to close."""
        while await self.reader.read(65536):
            pass

    def close(self) -> None:
        """Cut the connection."""
        self.writer.transport.abort()


class ScriptedQueue:
    """Each connection runs the script; ``scripts`` may name another one per connection, in order."""

    def __init__(self, *scripts: Callable[[Peer], Awaitable[None]], port: int = 0) -> None:
        self._port = port
        self._scripts = list(scripts)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: list[Peer] = []
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        failures = [
            failure
            for failure in await asyncio.gather(*self._tasks, return_exceptions=True)
            if isinstance(failure, AssertionError)
        ]
        await self._server.wait_closed()
        await asyncio.sleep(0)  # Let the loop close the sockets that were cut.
        if failures and error is None:
            raise failures[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        script = self._scripts[min(len(self.peers), len(self._scripts)) - 1]
        try:
            await script(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            peer.close()
