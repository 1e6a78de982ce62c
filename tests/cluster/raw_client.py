"""A client of one WebSocket connection that never reconnects, so a test sees when a server closes it."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any, Self

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from types import TracebackType

    from tests.cluster.scenario import Doors

__all__ = ["RawClient"]

ANSWER_SECONDS = 60.0


class RawClient:
    """One connection: what it asked and got, what was pushed, and how it ended."""

    def __init__(self, doors: Doors, user: str, url: str) -> None:
        self.user = user
        self.pushes: list[dict[str, Any]] = []
        self.closed: tuple[int | None, str] | None = None
        self._url = f"{url.replace('http://', 'ws://')}/ws?token={doors.token(user)}"
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        self._socket = await connect(self._url, ping_interval=None)
        self._reader = asyncio.ensure_future(self._read())
        await self.wait_for(lambda: self.closed is not None or bool(self.pushed("contacts")), "the login's end")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.close()
        await self._reader

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                frame = json.loads(text)
                if "id" in frame:
                    self._asked.pop(frame["id"]).set_result(frame)
                else:
                    self.pushes.append(frame)
                    if frame["push"] == "message" and "cursor" in frame:
                        await self._write({"action": "ack", "params": {"cursor": frame["cursor"]}})
        except ConnectionClosed:
            pass
        self.closed = (self._socket.close_code, self._socket.close_reason or "")

    async def _write(self, frame: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(frame))

    async def ask(self, action: str, **params: Any) -> dict[str, Any]:
        """The result or the error, as the server answers."""
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._write({"id": number, "action": action, "params": params})
        return await asyncio.wait_for(answer, ANSWER_SECONDS)

    async def send_until_accepted(self, to: str, text: str, *, seconds: float = 60) -> None:
        """Repeat a send with one ``send_id`` as long as it is unavailable."""
        async with asyncio.timeout(seconds):
            while "result" not in (answer := await self.ask("send", to=to, text=text, send_id=text)):
                assert answer["error"]["code"] == "unavailable", answer
                await asyncio.sleep(0.2)

    def pushed(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.pushes if each["push"] == name]

    def texts(self, *, room: str | None = None) -> list[str]:
        """Of stored messages, or of those of a room, in the order in which they came."""
        messages = [each["message"] for each in self.pushed("message")]
        return [each["text"] for each in messages if each.get("room") == room]

    async def wait_for(self, condition: Any, what: str, *, seconds: float = 30) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{self.user} waited {seconds} s for {what}; closed: {self.closed}") from None

    async def wait_for_text(self, text: str, *, room: str | None = None, seconds: float = 30) -> None:
        await self.wait_for(lambda: text in self.texts(room=room), f"{text!r}", seconds=seconds)
