"""A device of a user inside the program that runs the node."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.message import message_view

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from pixiu.machines.delivery import Push
    from pixiu.model.session import Session
    from pixiu.node.messaging import Messaging

__all__ = ["Device"]

Result = dict[str, Any]

NO_ACK = "no_ack"
UNTAKEN_MAX = 10_000
"""Live events that a device keeps for a program that does not take them; the oldest go."""


class Device:
    """One device of one user, in this process. Iterate over it for messages; each is acked when the next is taken.

    Whatever was not acked when the program ends comes again with the next ``connect``. A program may take its time:
    when the relay gives up waiting, the device begins a new session and goes on with what it holds.
    """

    def __init__(self, messaging: Messaging, user: str, platform: str, name: str, *, cursor: int) -> None:
        self._messaging = messaging
        self._user = user
        self._platform = platform
        self._name = name
        self._messages: deque[tuple[int, bytes]] = deque()
        self._has_begun = False
        self._last = cursor
        self._taken = cursor
        self._acked = cursor
        self._waiting: asyncio.Future[None] | None = None
        self.events: deque[Mapping[str, object]] = deque(maxlen=UNTAKEN_MAX)
        """What was told and is not stored: receipts, ``{"push": "resync"}``."""
        self.session: Session | None = None
        self.closed: str | None = None
        """Why the session is over; None while it is not."""

    @property
    def cursor(self) -> str:
        """How far this device has acked: what ``connect`` takes to go on from there."""
        return str(self._acked)

    # The sink's side: told by the relay.

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Take what follows on from what is here; a repeat is answered with where this device is.

        The first push lies behind the cursor that the device came with, or that was a cursor of another inbox.
        """
        if not pushes[0].useq:  # early copies of urgent messages, which follow in their places
            return
        fresh = False
        if not self._has_begun:
            self._has_begun = True
            if pushes[0].useq <= self._last:
                self._last = self._taken = self._acked = 0
        for push in pushes:
            if push.useq > self._last and push.previous_useq <= self._last:
                self._last = push.useq
                self._messages.append((push.useq, push.body))
                fresh = True
        if fresh:
            self._wake()
        else:
            asyncio.get_running_loop().call_soon(self._messaging.ack, session_id, self._acked)

    def event(self, _: int, event: Mapping[str, object]) -> None:
        """Something live."""
        self.events.append(event)
        self._wake()

    def close(self, _: int, reason: str) -> None:
        """The session is over; one that only took too long is followed by another."""
        if reason == NO_ACK and self.session is not None:
            self.session = None
            asyncio.get_running_loop().call_soon(self._connect_again)
            return
        self.closed = reason
        self._wake()

    def _connect_again(self) -> None:
        def connected(session: Session | PixiuError) -> None:
            if isinstance(session, PixiuError):
                self.close(0, str(session))
            elif self.closed is not None:
                self._messaging.disconnect(session.session_id)
            else:
                self.session = session

        if self.closed is None:
            self._messaging.connect(self._user, self._platform, self._name, self, connected, cursor=self._acked)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # The program's side.

    def __aiter__(self) -> AsyncIterator[Result]:
        return self

    async def __anext__(self) -> Result:
        """The next message. Ends when the session does."""
        self.ack()
        while not self._messages:
            if self.closed is not None:
                raise StopAsyncIteration
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._taken, body = self._messages.popleft()
        return message_view(body, self._messaging.proxy.context.directory)

    async def receive(self, *, timeout_seconds: float | None = None) -> Result:
        """The next message, or ``TimeoutError``."""
        async with asyncio.timeout(timeout_seconds):
            try:
                return await anext(self)
            except StopAsyncIteration:
                raise Unavailable(f"the session is over: {self.closed}") from None

    def ack(self) -> None:
        """Everything taken so far has arrived for good."""
        if self._taken > self._acked and self.closed is None:
            self._acked = self._taken
            if self.session is not None:
                self._messaging.ack(self.session.session_id, self._taken)

    async def leave(self) -> None:
        """Ack what was taken, and end the session."""
        self.ack()
        if self.closed is None:
            self.closed = "left"
            if self.session is not None:
                self._messaging.disconnect(self.session.session_id)
            self._wake()
