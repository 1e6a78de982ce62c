"""How other shells talk to a supervisor: a line of JSON there, one back, over a socket that only its owner may use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import Conflict, PixiuError, RemoteProtocolError, RequestError, Unavailable
from pixiu.node.cluster.layout import read_state
from pixiu.runtime.leftovers import is_ours
from pixiu.runtime.local_links import LocalPlace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["ControlDoor", "ask_supervisor"]

LINE_BYTES_MAX = 2**20
IDLE_SECONDS = 10.0
ANSWER_SECONDS = 60.0


class ControlDoor:
    """The supervisor's end."""

    def __init__(self, folder: Path, asked: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        self._asked = asked
        self._place = LocalPlace(folder)
        self.path = self._place.path("control.sock")
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, path=str(self.path), limit=LINE_BYTES_MAX)
        self.path.chmod(0o600)

    async def close(self) -> None:
        """Listen no more; the socket goes."""
        if self._server is not None:
            self._server.close()
        self._place.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                line = await reader.readline()
            writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # whoever asked is gone, or said nothing that is a line
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise RequestError("a request is a JSON object")
            return await self._asked(request)
        except PixiuError as error:
            return {"error": str(error)}
        except (ValueError, ProcessLookupError) as error:
            return {"error": f"cannot do that: {error}"}


def ask_supervisor(folder: Path, request: dict[str, Any], *, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Ask the supervisor of a folder. Raises ``Unavailable`` if none runs, ``Conflict`` with what it refuses."""
    path = read_state(folder).get("socket")
    if not isinstance(path, str):
        raise Unavailable(f"there is no cluster in {folder}; start one with: pixiu cluster up FILE")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(seconds)
            link.connect(path)
            link.sendall(json.dumps(request).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (piece := link.recv(65536)):
                answer += piece
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise Unavailable(_why_silent(folder)) from error
    except OSError as error:
        raise Unavailable(f"the supervisor of {folder} does not answer: {error}") from error
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise RemoteProtocolError("the supervisor ended before it had answered") from error
    if "error" in found:
        raise Conflict(str(found["error"]))
    assert isinstance(found, dict)
    return found


def _why_silent(folder: Path) -> str:
    """Nobody is at the socket: everything is over, or the supervisor alone was killed."""
    rows = read_state(folder).get("nodes", [])
    left = [row["name"] for row in rows if row.get("pid") and is_ours(row["pid"], str(folder.absolute()))]
    if not left:
        return f"no cluster runs in {folder}; start it with: pixiu cluster up FILE"
    named = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
    return (
        f"the supervisor of {folder} is gone, and {len(left)} of its processes run on with nobody to look after them "
        f"({named}): pixiu cluster up FILE ends them and starts all anew, pixiu cluster down ends them"
    )
