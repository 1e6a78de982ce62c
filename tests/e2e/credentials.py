"""A server, clients over WebSocket, TCP and gRPC, and a real authentication server that can revoke tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import grpc
import websockets

from pixiu.model.gomsg.msg_pb2 import ClientPayload, Ping, ServerPayload
from tests.e2e.test_surfaces import Served
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["AuthServer", "Client", "GrpcClient", "TcpClient", "Transports", "WebSocketClient", "auth_server", "retire"]

SECONDS = 20.0


class Transports(Served):
    """``pixiu serve`` with a TCP port and, in a single process, a gRPC port."""

    def __init__(self, data: Path, *settings: str, gateways: int = 0) -> None:
        self.tcp_port, self.grpc_port = free_port(), -1 if gateways else free_port()
        ports = [f"gateway.tcp_port={self.tcp_port}"]
        if not gateways:
            ports.append(f"gateway.grpc_port={self.grpc_port}")
        super().__init__(data, *ports, *settings, more=("--gateways", str(gateways)) if gateways else ())

    def clients(self) -> list[type[Client]]:
        """The kinds of clients that this server takes."""
        return [WebSocketClient, TcpClient, *([GrpcClient] if self.grpc_port > 0 else [])]


class Client(ABC):
    """One connection with a token."""

    def __init__(self, server: Transports, token: str) -> None:
        self.server = server
        self.token = token

    @abstractmethod
    async def open(self) -> None:
        """Return when the client has a session."""

    @abstractmethod
    async def ask(self) -> None:
        """Send a request and wait for its answer."""

    @abstractmethod
    async def ended(self) -> str:
        """Wait for the server to close; return the reason it gives."""

    @abstractmethod
    async def close(self) -> None: ...


class WebSocketClient(Client):
    """Over WebSocket."""

    async def open(self) -> None:
        url = f"ws://127.0.0.1:{self.server.port}/ws?token={self.token}"
        self._socket = await websockets.connect(url, ping_interval=None)
        assert json.loads(await self._socket.recv())["push"] == "contacts"

    async def ask(self) -> None:
        await self._socket.send(json.dumps({"id": 1, "action": "ping"}))
        async with asyncio.timeout(SECONDS):
            while "id" not in json.loads(await self._socket.recv()):
                pass

    async def ended(self) -> str:
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(websockets.ConnectionClosed):
                while True:
                    await self._socket.recv()
        return "unauthenticated" if self._socket.close_code == 4401 else f"{self._socket.close_code}"

    async def close(self) -> None:
        await self._socket.close()


class TcpClient(Client):
    """Over TCP."""

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.server.tcp_port)
        self._send({"token": self.token, "codec": "json"})
        assert (await self._frame())["push"] == "contacts"

    def _send(self, frame: object) -> None:
        data = json.dumps(frame).encode()
        self._writer.write(len(data).to_bytes(4) + data)

    async def _frame(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4))
            return dict(json.loads(await self._reader.readexactly(size)))

    async def ask(self) -> None:
        self._send({"id": 1, "action": "ping"})
        while "id" not in await self._frame():
            pass

    async def ended(self) -> str:
        frame: dict[str, Any] = {}
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await self._frame()
        return str(frame.get("error", {}).get("code", frame))

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class GrpcClient(Client):
    """Over gRPC: gomsg's LoopV1."""

    async def open(self) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.server.grpc_port}")
        loop = self._channel.stream_stream(
            "/msgpb.Msg/LoopV1",
            request_serializer=ClientPayload.SerializeToString,
            response_deserializer=ServerPayload.FromString,
        )
        self._call = loop(metadata=[("authorization", f"Bearer {self.token}")])
        await self.ask()

    async def ask(self) -> None:
        await self._call.write(ClientPayload(seq="1", ping=Ping()))
        async with asyncio.timeout(SECONDS):
            answer = await self._call.read()
        assert isinstance(answer, ServerPayload), await self._call.code()

    async def ended(self) -> str:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with asyncio.timeout(SECONDS):
                while await self._call.read() is not grpc.aio.EOF:
                    pass
        return str((await self._call.code()).name.lower())

    async def close(self) -> None:
        await self._channel.close()


class AuthServer:
    """Answers ``{"user": TOKEN}`` for every token that it has not revoked, over real HTTP."""

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        self.asked: list[str] = []
        self.expires_at: dict[str, int] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                token = json.loads(self.rfile.read(size))["token"]
                server.asked.append(token)
                said: dict[str, object] = {"user": token, "device": token}
                if token in server.expires_at:
                    said["expires_at"] = server.expires_at[token]
                body = json.dumps(said).encode()
                self.send_response(403 if token in server.revoked else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/auth"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self._is_open = True

    def stop(self) -> None:
        if self._is_open:
            self._is_open = False
            self._http.shutdown()
            self._http.server_close()
            self._thread.join(5)


@contextlib.contextmanager
def auth_server() -> Iterator[AuthServer]:
    server = AuthServer()
    try:
        yield server
    finally:
        server.stop()


def retire(data: Path) -> None:
    """What an operator does after a theft: make a new key and retire the older one."""
    for path in sorted((data / "keys").glob("*.json")):
        command = [sys.executable, "-m", "pixiu", "token", "--new-key", "--retire", path.stem, "--data", str(data)]
        subprocess.run(command, check=True, capture_output=True)


@contextlib.asynccontextmanager
async def connected(server: Transports, token_of: Callable[[str], str], users: str) -> Any:
    """One client of every kind for each user, all with sessions."""
    clients = [kind(server, token_of(f"{user}-{kind.__name__}")) for user in users.split() for kind in server.clients()]
    try:
        for client in clients:
            await client.open()
        yield clients
    finally:
        for client in clients:
            with contextlib.suppress(Exception):
                await client.close()
