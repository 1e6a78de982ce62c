"""The committed journal as it comes, from whoever leads, over as many connections as it takes.

A lost connection is opened again behind what was received. Nothing is buffered here: whoever cannot take more pauses
it, and the server waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, cast

from pixiu.machines.queue_wire.follow import FollowReader, FramesSent
from pixiu.machines.queue_wire.proof import NONCE_BYTES, Prover
from pixiu.machines.queue_wire.requests import encode_feed
from pixiu.machines.queue_wire.streams import Refused
from pixiu.model.errors import NotLeader, PixiuError, Unavailable
from pixiu.queue.client.errors import error_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.queue.client.servers import Address, Backoff

__all__ = ["Feed", "FeedConnection"]

log = logging.getLogger(__name__)

SILENCE_S_MAX = 2.5
"""The server says something every half second."""
ABOUT = "following the log"


class FeedConnection(asyncio.Protocol):
    """One connection: shows the key, asks, and passes on what comes."""

    def __init__(
        self, address: Address, key: bytes | None, after: int, receive: Callable[[int, bytes], object]
    ) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._request = encode_feed(after=after)
        self._prover = None if key is None else Prover(key, secrets.token_bytes(NONCE_BYTES))
        self._reader = FollowReader()
        self._transport: asyncio.Transport | None = None
        self._heard_s = self._loop.time()
        self._is_paused = False
        self.over: asyncio.Future[PixiuError] = self._loop.create_future()
        """Told why it has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: show who we are."""
        self._transport = made = cast("asyncio.Transport", transport)  # uvloop's is none by name
        made.write(self._request if self._prover is None else self._prover.start())

    def data_received(self, data: bytes) -> None:
        """Bytes of the server."""
        self._heard_s = self._loop.time()
        try:
            if self._prover is not None:
                self._prove(self._prover, data)
                return
            for event in self._reader.receive(data):
                if isinstance(event, FramesSent):
                    self._receive(event.commit_event_id, event.frames)
                elif isinstance(event, Refused):
                    self._end(error_of(event.text, ABOUT))
        except PixiuError as error:
            self._end(error)

    def _prove(self, prover: Prover, data: bytes) -> None:
        send = prover.receive(data)
        if prover.is_done:
            self._prover, send = None, self._request
        if self._transport is not None:
            self._transport.write(send)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._end(Unavailable(f"lost the connection to {self.address} ({exc or 'the server closed it'})"))

    def _end(self, error: PixiuError) -> None:
        if not self.over.done():
            self.over.set_result(error)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self, *, is_paused: bool) -> None:
        """Take no more for now, or again."""
        if is_paused != self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = is_paused
            self._heard_s = self._loop.time()
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def is_silent(self) -> bool:
        """Has nothing come for too long?"""
        return not self._is_paused and self._loop.time() - self._heard_s > SILENCE_S_MAX


class Feed:
    """Follows until it is closed."""

    def __init__(
        self,
        *,
        connect: Callable[[Callable[[Address], FeedConnection]], Awaitable[FeedConnection]],
        leave: Callable[[Address | None], object],
        key: Callable[[], bytes | None],
        backoff: Backoff,
        position: Callable[[], int],
        receive: Callable[[int, bytes], object],
        fail: Callable[[PixiuError | None], object],
    ) -> None:
        """``position`` says behind which event to go on; ``fail`` is told what is wrong, and None when it is well."""
        self._connect = connect
        self._leave = leave
        self._key = key
        self._backoff = backoff
        self._position = position
        self._receive = receive
        self._fail = fail
        self._connection: FeedConnection | None = None
        self._is_paused = False
        self._life: object = None
        self._stuck_at: int | None = None
        """Where the last connection was refused: a word without a record does not mean that it gets on now."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def pause(self, *, is_paused: bool) -> None:
        """Take no more for now, or again."""
        self._is_paused = is_paused
        if self._connection is not None:
            self._connection.pause(is_paused=is_paused)

    def restart(self) -> None:
        """Go on from another position."""
        self._life = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    async def close(self) -> None:
        """End."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        try:
            while True:
                error = await self._follow()
                self._fail(error)
                if not isinstance(error, Unavailable | NotLeader):
                    self._stuck_at = self._position()
                    log.warning("cannot follow the log", extra={"reason": str(error)})
                await asyncio.sleep(self._backoff.next_s())
        finally:
            self.restart()

    async def _follow(self) -> PixiuError:
        """One connection, to its end."""
        try:
            connection = await self._connect(self._new_connection)
        except PixiuError as refused:
            return refused
        self._connection = connection
        connection.pause(is_paused=self._is_paused)
        while not connection.over.done():
            await asyncio.wait({connection.over}, timeout=SILENCE_S_MAX / 2)
            if connection.is_silent():
                connection.abort()
                return Unavailable(f"{connection.address} has been silent for {SILENCE_S_MAX:g} s")
        error = connection.over.result()
        if isinstance(error, NotLeader):
            self._leave(connection.address)
        return error

    def _new_connection(self, address: Address) -> FeedConnection:
        self._life = life = object()

        def receive(commit_event_id: int, frames: bytes) -> None:
            if self._life is not life:
                return  # what an earlier one still had in hand
            if frames or self._stuck_at != self._position():
                self._stuck_at = None
                self._backoff.reset()
                self._fail(None)
            self._receive(commit_event_id, frames)

        return FeedConnection(address, self._key(), self._position(), receive)
