"""What a Python user would write first: a `websockets` server that hands each message to everyone.

It is written as that library advises for many clients: `broadcast`, no compression, no task per message.
Run as `python -m benchmarks.gateway.broadcast PORT`.
"""

import asyncio
import contextlib
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

_clients: set[ServerConnection] = set()


async def _talk(client: ServerConnection) -> None:
    _clients.add(client)
    try:
        with contextlib.suppress(ConnectionClosed):
            async for message in client:
                broadcast(_clients, message)
    finally:
        _clients.discard(client)


async def _run(port: int) -> None:
    async with serve(_talk, "127.0.0.1", port, compression=None, ping_interval=None) as server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        uvloop.run(_run(int(sys.argv[1])))
