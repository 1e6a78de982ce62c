"""A chat as lines: for pipes, scripts and screen readers.

What is typed goes to the current conversation (``/to bob``), or to the one in front of a colon: ``bob: hello``. What
arrives is printed as ``bob: hello``, ``#team bob: hello``, ``~lobby bob: hello``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pixiu.cli.chat.commands import EXIT, Commands
from pixiu.cli.chat.conversations import Conversations, described, name_of, place_of
from pixiu.cli.shown import shown as as_shown
from pixiu.model.errors import PixiuError
from pixiu.sdk import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.sdk import Client, Place

__all__ = ["PlainChat"]


class PlainChat:
    """Lines in, lines out."""

    def __init__(self, me: Client, *, stay_seconds: float) -> None:
        """``stay_seconds``: how long to listen after the last line."""
        self._me = me
        self._stay_seconds = stay_seconds
        self._conversations = Conversations(me.name)
        self._commands = Commands(me, self._conversations, self._turn)
        self._current: Place | None = None
        self.has_failed = False

    async def run(self, lines: Iterable[str]) -> None:
        """Until the lines end, or one is ``/exit`` or ``/quit``."""
        listening = asyncio.create_task(self._listen())
        queue: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)
        _read_in_thread(lines, queue)
        while not listening.done():
            getting = asyncio.create_task(queue.get())
            await asyncio.wait({getting, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                break
            line = getting.result()
            if line is None:
                await asyncio.wait({listening}, timeout=self._stay_seconds)
                break
            if line.strip() in EXIT:
                break
            await self._do(line.rstrip("\n"))
        listening.cancel()
        results = await asyncio.gather(listening, return_exceptions=True)
        if isinstance(results[0], PixiuError):
            raise results[0]

    async def _do(self, line: str) -> None:
        place = self._current
        name, colon, rest = line.partition(": ")
        if colon and name and " " not in name and not line.startswith("/"):
            place, line = place_of(name), rest
        try:
            shown = await self._commands.do(line, place)
        except PixiuError as error:
            self.has_failed = True
            print(f"! {error}", file=sys.stderr, flush=True)
            return
        if isinstance(shown, Message) and not shown.is_recalled:
            self._conversations.arrived(shown, place)
        elif isinstance(shown, str):
            print(shown, flush=True)

    async def _turn(self, place: Place) -> None:
        self._current = place

    async def _listen(self) -> None:
        async for message in self._me.messages():
            conversation, _ = self._conversations.arrived(message, None)
            where = "" if conversation.place.kind == "with" else f"{name_of(conversation.place)} "
            print(as_shown(f"{where}{message.sender}: {described(message)}"), flush=True)
            if conversation.place.kind == "with" and message.sender != self._me.name and message.kind != "system":
                await self._me.receipt([message.message_id], "delivered")


def _read_in_thread(lines: Iterable[str], queue: asyncio.Queue[str | None]) -> None:
    """Reading a line of input blocks, so a thread does it; it ends with the program."""
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        """Put a line and wait until there is room for it. Raises ``RuntimeError`` if the loop is closed."""
        done: Future[None] = Future()

        def begin() -> None:
            # The coroutine is made inside the loop: one that the closing loop never starts would be warned about.
            task = loop.create_task(queue.put(line))
            task.add_done_callback(lambda _: done.set_result(None))

        loop.call_soon_threadsafe(begin)
        done.result()

    def read() -> None:
        try:
            for line in lines:
                put(line)
            put(None)
        except (RuntimeError, ValueError):
            pass  # the chat has ended, or its input is closed

    threading.Thread(target=read, name="pixiu-chat-input", daemon=True).start()
