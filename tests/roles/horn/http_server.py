"""A real HTTP server on loopback that keeps what it is sent and answers as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11


class HttpServer:
    """Answers ``statuses`` in turn, then 200; ``delay_seconds`` before each."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[h11.Request] = []
        self.bodies: list[dict[str, object]] = []
        self.statuses: list[int] = []
        self.delay_seconds = 0.0
        self.open_now = self.open_most = 0
        self.is_rude = False
        """Closes without an answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            server = h11.Connection(h11.SERVER)
            body = b""
            while True:
                event = server.next_event()
                if event is h11.NEED_DATA:
                    data = await reader.read(65536)
                    if not data:
                        return
                    server.receive_data(data)
                elif isinstance(event, h11.Request):
                    self.requests.append(event)
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    break
            self.bodies.append(json.loads(body))
            await asyncio.sleep(self.delay_seconds)
            if not self.is_rude:
                status = self.statuses.pop(0) if self.statuses else 200
                head = h11.Response(status_code=status, headers=[("Content-Length", "2"), ("Connection", "close")])
                for each in (head, h11.Data(data=b"ok"), h11.EndOfMessage()):
                    writer.write(server.send(each) or b"")
                await writer.drain()
        finally:
            self.open_now -= 1
            writer.close()


@asynccontextmanager
async def http_server() -> AsyncIterator[HttpServer]:
    server = HttpServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/push?app=1"
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()
