"""``pixiu serve --gateways N`` as its own processes, and clients that reconnect as a good client does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import websockets
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from pixiu.config import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.servers import free_port, wait_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["Node", "Person", "eventually"]


class Node:
    """A node whose connections are in other processes."""

    def __init__(
        self, data: Path, *, gateways: int = 2, settings: tuple[str, ...] = (), tls: ssl.SSLContext | None = None
    ) -> None:
        """``tls`` is how its clients check it, if the settings name a certificate."""
        self.data = data
        self.tls = tls
        self.port = free_port()
        self._gateways = gateways
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = data.parent / "errors.txt"

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def _verify(self) -> Any:
        return self.tls if self.tls is not None else True

    def start(self) -> None:
        command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(self.data)]
        command += ["--port", str(self.port)]
        command += ["--queue-port", "0", "--gateways", str(self._gateways)]
        for setting in ("messaging.sends_per_second=0", *self._settings):
            command += ["--set", setting]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        wait_for(self.is_ready, what="the node to be ready", timeout_s=60)

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def is_ready(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.errors[-3000:]
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5, verify=self._verify).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def gateways(self) -> dict[str, int]:
        """The pids of the gateway processes, as the log names them."""
        found: dict[str, int] = {}
        for line in self.errors.splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "gateway process started":
                found[event["gateway"]] = event["pid"]
        return found

    def told(self, event: str) -> int:
        """How often the log has an event."""
        return self.errors.count(f'"event":"{event}"')

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(30)

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def close(self) -> None:
        """End everything, however it stands."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)
        wait_for(lambda: not any(map(is_alive, self.gateways().values())), what="the gateways to end", timeout_s=20)

    def token(self, user: str, *, device: str = "", is_admin: bool = False) -> str:
        clock = SystemClock()
        tokens = Tokens(Keyring(self.data, clock), clock, SecuritySettings())
        return tokens.issue(Identity(user, "web", device, is_admin))

    async def act(self, user: str, action: str, **params: object) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token(user)}"}
        async with httpx.AsyncClient(verify=self._verify) as http:
            answer = await http.post(f"{self.url}/v1/actions/{action}", json=params, headers=headers, timeout=20)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def sessions(self, user: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.token('root', is_admin=True)}"}
        async with httpx.AsyncClient(verify=self._verify) as http:
            answer = await http.get(f"{self.url}/v1/admin/sessions", params={"user": user}, headers=headers)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["sessions"])

    async def audit(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token('root', is_admin=True)}"}
        async with httpx.AsyncClient(verify=self._verify) as http:
            answer = await http.get(f"{self.url}/v1/admin/audit", headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class Person:
    """A client that comes back with its cursor whenever its connection ends, and keeps what it was shown by id."""

    def __init__(self, node: Node, user: str, *, device: str = "") -> None:
        self._node = node
        self._token = node.token(user, device=device)
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._socket: Any = None
        self.user = user
        self.cursor = ""
        self.messages: dict[str, dict[str, Any]] = {}
        self.repeats = 0
        self.pushes: list[dict[str, Any]] = []
        self.connects = 0
        self.ends: list[tuple[int | None, str | None]] = []
        """How its connections ended."""
        self.comes_back = True
        self.is_here = asyncio.Event()

    async def __aenter__(self) -> Person:
        self._task = asyncio.create_task(self._live())
        async with asyncio.timeout(30):
            await self.is_here.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.comes_back = False
        if self._socket is not None:
            await self._socket.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _live(self) -> None:
        while True:
            with contextlib.suppress(OSError, InvalidHandshake, ConnectionClosed, TimeoutError):
                await self._session()
            self.is_here.clear()
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(ConnectionError("the connection ended"))
            self._answers.clear()
            if not self.comes_back:
                return
            await asyncio.sleep(0.05)

    async def _session(self) -> None:
        resume = f"&cursor={self.cursor}" if self.cursor else ""
        url = f"{self._node.url.replace('http', 'ws', 1)}/ws?token={self._token}{resume}"
        # A process that stands still is listened to by nobody: try again soon, by another port of ours.
        tls = self._node.tls
        async with websockets.connect(url, ssl=tls, ping_interval=None, open_timeout=2, close_timeout=1) as socket:
            self._socket = socket
            self.connects += 1
            try:
                async for text in socket:
                    await self._take(socket, json.loads(text))
            finally:
                self.ends.append((socket.close_code, socket.close_reason))

    async def _take(self, socket: Any, frame: dict[str, Any]) -> None:
        if "push" not in frame:
            future = self._answers.pop(frame["id"], None)
            if future is not None and not future.done():
                future.set_result(frame)
            return
        self.pushes.append(frame)
        if frame["push"] == "contacts":
            self.is_here.set()
        if frame["push"] == "message":
            message = frame["message"]
            self.repeats += message["message_id"] in self.messages
            self.messages[message["message_id"]] = message
            if "cursor" in frame:
                self.cursor = frame["cursor"]
                await socket.send(json.dumps({"action": "ack", "params": {"cursor": self.cursor}}))

    async def ask(self, action: str, **params: object) -> dict[str, Any]:
        """A request and its answer. Raises ``ConnectionError`` if the connection ends meanwhile."""
        self._number += 1
        future = self._answers[self._number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(json.dumps({"id": self._number, "action": action, "params": params}))
        except ConnectionClosed:
            raise ConnectionError("the connection ended") from None
        async with asyncio.timeout(20):
            return dict(await future)

    async def send(self, to: str, text: str) -> str:
        """As a good client does it: again with the same send_id, until it is accepted. Returns the message id."""
        send_id = f"{self.user}-{to}-{text}"
        while True:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(30):
                    await self.is_here.wait()
                answer = await self.ask("send", to=to, text=text, send_id=send_id)
                if "result" in answer:
                    return str(answer["result"]["message_id"])
                assert answer["error"]["code"] in ("unavailable", "busy", "rate_limited"), answer
            await asyncio.sleep(0.05)

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return [frame for frame in self.pushes if frame["push"] == name]

    @property
    def texts(self) -> list[str]:
        return [message.get("text", "") for message in self.messages.values()]

    async def gateway(self) -> str:
        """Where it is connected."""
        return str((await self._node.sessions(self.user))[0]["gateway"])
