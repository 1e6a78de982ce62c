"""Roles of a cluster as their own processes, with a real ZooKeeper, and people who talk in rooms."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import websockets

from pixiu.config import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FAST", "Listener", "RoleRun", "Roles"]

FAST = (
    "links.heartbeat_ms=200", "links.suspect_ms=800", "links.dead_ms=1200", "links.linger_ms=1000",
    "links.unsafe_fast_poll=true", "links.poll_ms=2000", "links.grace_ms=4000", "links.session_ms=2000",
    "links.drain_ms=300", "rooms.says_per_second=0",
)  # fmt: skip
SECRET = "a secret of this test, and of nobody else"


class RoleRun:
    """One process."""

    def __init__(self, roles: Roles, name: str, arguments: tuple[str, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self._roles = roles
        self._said: dict[str, Any] | None = None
        self.errors = roles.folder / f"errors-{len(roles.runs)}.txt"
        command = [sys.executable, "-m", "pixiu", "role", name, "--registry", roles.registry, "--json"]
        command += ["--data", str(roles.data), "--secret-file", str(roles.secret), *arguments]
        for setting in FAST:
            command += ["--set", setting]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    @property
    def said(self) -> dict[str, Any]:
        """What it printed when it started."""
        if self._said is None:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.errors.read_text()[-3000:]
            self._said = json.loads(line)
        return self._said

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.said['admin']}{path}", timeout=5)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()[-3000:]
        with contextlib.suppress(httpx.HTTPError):
            return self.get("/readyz").status_code == 200
        return False


class Roles:
    """All processes of a test."""

    def __init__(self, folder: Path, registry: str) -> None:
        self.folder = folder
        self.registry = registry
        self.data = folder / "data"
        self.data.mkdir()
        self.secret = folder / "secret"
        self.secret.write_text(SECRET + "\n")
        self.secret.chmod(0o600)
        Keyring(self.data, SystemClock()).create("EdDSA")
        self.runs: list[RoleRun] = []

    def start(self, name: str, *arguments: str) -> RoleRun:
        run = RoleRun(self, name, arguments)
        self.runs.append(run)
        return run

    def wait_ready(self) -> None:
        for run in self.runs:
            if run.process.poll() is None:
                wait_for(run.is_ready, what=f"{run.name} to be ready", timeout_s=60)

    def stop(self) -> list[int]:
        for run in self.runs:
            if run.process.poll() is None:
                run.process.terminate()
        return [run.process.wait(30) for run in self.runs]

    def kill(self) -> None:
        for run in self.runs:
            if run.process.poll() is None:
                run.process.kill()
            run.process.wait(30)
            if run.process.stdout is not None:
                run.process.stdout.close()

    def token(self, user: str) -> str:
        clock = SystemClock()
        return Tokens(Keyring(self.data, clock), clock, SecuritySettings()).issue(Identity(user, "web", "", False))


class Listener:
    """One client in rooms: everything it is told, and its own requests."""

    def __init__(self, roles: Roles, gateway: RoleRun, user: str) -> None:
        self.user = user
        self.heard: list[dict[str, Any]] = []
        self._url = f"ws://127.0.0.1:{gateway.said['port']}/ws?token={roles.token(user)}"
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Listener:
        self._socket = await websockets.connect(self._url)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def ask(self, action: str, **params: object) -> dict[str, Any]:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": self._number, "action": action, "params": params}))
        return await asyncio.wait_for(answer, 20)

    def texts(self, sender: str) -> list[str]:
        return [each["text"] for each in self.heard if each["from"] == sender]

    async def _read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for data in self._socket:
                frame = json.loads(data)
                if "id" in frame:
                    self._answers.pop(frame["id"]).set_result(frame)
                elif frame.get("push") == "message":
                    self.heard.append(frame["message"])
