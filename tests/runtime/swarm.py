"""Thousands of clients in a process of their own: ``python swarm.py PORT``, told by lines what to do.

``connect N`` opens so many of them over several loopback addresses and prints ``ready N`` when each has its contacts;
``cut`` drops all of them at once, without a word; ``texts`` prints how many messages they got since they connected.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import sys
from typing import cast

BATCH = 1_000
ADDRESSES = 4
RESET = struct.pack("ii", 1, 0)


class Bee(asyncio.Protocol):
    """One client. It looks at what comes only as far as it must."""

    def __init__(self, swarm: Swarm, number: int) -> None:
        self._swarm = swarm
        self._number = number
        self._is_ready = False
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(
            b"GET /ws?token=u%d.web.d HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % self._number
        )

    def data_received(self, data: bytes) -> None:
        if not self._is_ready:
            self._head += data
            self._is_ready = b'"push":"contacts"' in self._head
            self._swarm.ready += self._is_ready
            data = self._head if self._is_ready else b""
        self._swarm.texts += data.count(b'"push":"message"')

    def connection_lost(self, exc: Exception | None) -> None:
        self._swarm.lost += 1


class Swarm:
    """All of them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ready = self.texts = self.lost = 0
        self.bees: list[Bee] = []

    async def connect(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        self.ready = self.texts = 0
        self.bees = []
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            made = await asyncio.gather(
                *(
                    loop.create_connection(
                        lambda number=number: Bee(self, number),  # type: ignore[misc]
                        "127.0.0.1",
                        self.port,
                        local_addr=(f"127.0.0.{2 + number % ADDRESSES}", 0),
                    )
                    for number in numbers
                )
            )
            self.bees += [bee for _, bee in made]
            while self.ready < numbers[-1] + 1:
                await asyncio.sleep(0.005)

    def cut(self) -> None:
        for bee in self.bees:
            bee.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            bee.transport.abort()


async def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    swarm = Swarm(int(sys.argv[1]))
    loop = asyncio.get_running_loop()
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        command, _, count = line.partition(" ")
        if command == "connect":
            await swarm.connect(int(count))
            print("ready", swarm.ready, flush=True)
        elif command == "cut":
            swarm.cut()
            print("cut", len(swarm.bees), flush=True)
        elif command == "texts":
            print("texts", swarm.texts, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
