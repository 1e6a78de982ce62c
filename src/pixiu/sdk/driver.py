"""A session on asyncio: the machine, a WebSocket under it, a timer, and the futures of those who wait for answers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pixiu.machines.client_session import (
    Answered,
    Arrived,
    ClientRules,
    ClientSession,
    Connect,
    Drop,
    Ended,
    Hurry,
    State,
    Tell,
    Write,
)
from pixiu.model.errors import PixiuError, Unauthenticated, Unavailable
from pixiu.sdk.socket import Socket, open_socket, websocket_url

if TYPE_CHECKING:
    import ssl

    from pixiu.machines.client_session import Command, Incoming
    from pixiu.machines.client_session.values import Event
    from pixiu.sdk.options import TokenSource

__all__ = ["Driver", "now_ms"]

log = logging.getLogger(__name__)


class Driver(ABC):
    """Does what the machine says. Whoever derives from it keeps what arrives."""

    def __init__(
        self,
        url: str,
        token: TokenSource,
        *,
        tls: ssl.SSLContext | None,
        rules: ClientRules,
        cursor: int,
        last_id: int,
    ) -> None:
        self.url = websocket_url(url)
        self._token = token
        self._tls = tls
        self._session = ClientSession(
            rules, jitter=random.SystemRandom().random, cursor=cursor, last_id=last_id
        )  # fmt: skip
        self._open_seconds = rules.open_ms / 1000
        self._socket: Socket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ended: tuple[PixiuError | None] | None = None
        self._failure: PixiuError | None = None
        self._is_hushed = False

    @abstractmethod
    def _arrive(self, items: list[Incoming]) -> bool:
        """Keep what has arrived. False: it could not be kept, and the session knows."""

    @abstractmethod
    def _hurry(self, message: dict[str, Any]) -> None:
        """Show an early copy of an urgent message before what waits."""

    @abstractmethod
    def _tell(self, event: Event) -> None:
        """Something live."""

    @abstractmethod
    def _wake(self) -> None:
        """Something has changed."""

    @abstractmethod
    def _is_full(self, *, was_full: bool) -> bool:
        """Does too much wait for the program?"""

    def begin(self) -> None:
        """Connect, now and as often as it takes."""
        self._do(self._session.start(now_ms()))

    async def end(self) -> None:
        """Say goodbye, and leave nothing behind."""
        socket, connecting = self._socket, self._connecting
        self._do(self._session.leave(now_ms()))
        if connecting is not None:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        if socket is not None:
            await socket.gone()

    async def ask(self, action: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        """A request, over as many connections as it takes."""
        now = now_ms()
        asked, commands = self._session.request(action, params, now + int(seconds * 1000), now)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[asked] = future
        try:
            self._do(commands)
            self._hush()
            answer = await future
        finally:
            self._waiting.pop(asked, None)
            self._session.give_up(asked)
            self._hush()
        return answer

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Write(payload):
                    if self._socket is not None:
                        self._socket.write(payload)
                case Arrived(items):
                    if not self._arrive(items):
                        break
                case Hurry(message):
                    self._hurry(message)
                case Answered(asked, answer):
                    future = self._waiting.get(asked)
                    if future is not None and not future.done():
                        if isinstance(answer, PixiuError):
                            future.set_exception(answer)
                        else:
                            future.set_result(answer)
                case Tell(event):
                    self._tell(event)
                case Connect(cursor, needs_token):
                    self._connect_soon(cursor, needs_token=needs_token)
                case Drop():
                    self._drop()
                case Ended(error):
                    self._ended = (error,)
        if commands:
            self._wake()
        self._arm()

    def _held(self, cursor: int, generation: int) -> None:
        if cursor:
            self._do(self._session.held(cursor, generation))

    def _hush(self) -> None:
        """Read on, unless too much waits for the program; but an answer that it waits for must be read."""
        if self._socket is None:
            return
        is_full = not self._waiting and self._is_full(was_full=self._is_hushed)
        if is_full != self._is_hushed:
            self._is_hushed = is_full
            self._session.deaf(now_ms(), is_deaf=is_full)
            self._socket.hush(is_hushed=is_full)

    # The connection.

    def _connect_soon(self, cursor: int, *, needs_token: bool) -> None:
        if self._connecting is not None:
            self._connecting.cancel()  # it took too long, and was given up
        self._connecting = asyncio.create_task(self._connect(cursor, needs_token=needs_token))

    async def _connect(self, cursor: int, *, needs_token: bool) -> None:
        socket = Socket(self._received, self._closed)
        try:
            if isinstance(self._token, str):
                if needs_token:
                    raise Unauthenticated(self._session.why_refused)
                token = self._token
            else:
                given = self._token()
                token = await given if inspect.isawaitable(given) else str(given)
            self._drop()
            self._socket = socket
            await open_socket(socket, self.url, token, cursor, tls=self._tls, timeout_seconds=self._open_seconds)
        except asyncio.CancelledError:
            socket.drop()
            raise
        except PixiuError as error:
            self._failed(socket, error)
        except Exception as error:
            log.exception("no connection")
            self._failed(socket, Unavailable(f"no connection: {type(error).__name__}: {error}"))
        else:
            if self._socket is socket:
                self._do(self._session.opened(now_ms()))
        self._connecting = None

    def _failed(self, socket: Socket, error: PixiuError) -> None:
        if self._socket is socket:
            self._socket = None
        self._failure = error
        self._do(self._session.failed(error, now_ms()))

    def _received(self, payload: bytes) -> None:
        self._do(self._session.received(payload, now_ms()))

    def _closed(self, code: int, reason: str) -> None:
        self._socket = None
        self._is_hushed = False
        self._session.deaf(now_ms(), is_deaf=False)
        self._do(self._session.closed(code, reason, now_ms()))

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        self._is_hushed = False
        self._session.deaf(now_ms(), is_deaf=False)
        if socket is not None:
            socket.drop()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._session.due()
        if due is not None and self._session.state is not State.ENDED:
            seconds = max(due - now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._session.tick(now_ms()))


def now_ms() -> int:
    """The steady clock."""
    return time.monotonic_ns() // 1_000_000
