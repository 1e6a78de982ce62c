"""``pixiu.Publisher``: say things in rooms of a cluster from any program, without a connection of a client.

::

    async with pixiu.Publisher(registry="zk://10.0.0.1:2181/pubsub", secret="…") as publisher:
        await publisher.publish("lobby", "the doors open", sender="stage")
        await publisher.publish("lobby", "please leave", sender="stage", reliable=True)

    with pixiu.Publisher(registry=…).blocking() as publisher:
        publisher.publish("lobby", "the doors open", sender="stage")

It finds proxies through the registry, watches them by heartbeats, and gives every message an id of its own, so that
repeats and copies are shown once.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from pixiu.blocking import LoopThread
from pixiu.config import Settings
from pixiu.links.member import Slot
from pixiu.links.publishing import Publishing, PublishingRules
from pixiu.machines.room_bodies import message_body, priority_name
from pixiu.machines.rooms import room_number
from pixiu.machines.scheduling import Priority
from pixiu.model.errors import RequestError, TooLarge, Unavailable
from pixiu.model.names import new_public_id
from pixiu.node.processes.cluster_end import ClusterEnd, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any

    from pixiu.links.publishing import TalkMode
    from pixiu.model.errors import PixiuError

__all__ = ["BlockingPublisher", "Published", "Publisher"]

T = TypeVar("T")

FIND_SECONDS = 15.0
Published = int
"""The id of a message that was published."""


class Publisher:
    """Publishes to rooms of one cluster. ``async with``, or ``await open()`` and ``close()``."""

    def __init__(
        self,
        registry: str,
        *,
        secret: str = "",
        bind: str = "127.0.0.1",
        settings: Settings | None = None,
        timeout_seconds: float = FIND_SECONDS,
    ) -> None:
        """``secret`` is the cluster's; without one, only a cluster on this machine can be reached.

        ``bind`` is an address of this machine that the cluster can send to. ``timeout_seconds``: so long ``open``
        looks for a proxy.
        """
        self._timeout_seconds = timeout_seconds
        self._registry = registry
        self._secret = secret
        self._bind = bind
        self._settings = settings or Settings()
        self._end: ClusterEnd | None = None
        self._publishing: Publishing | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Find the cluster. Raises ``Unavailable`` if no proxy answers in time."""
        secrets = secrets_of(self._secret, self._bind)
        links = self._settings.links
        self._end = end = await ClusterEnd.open(self._registry, secrets, links, bind=self._bind)
        self._publishing = publishing = Publishing(
            end.endpoint, end.directory, end.clock, end.scheduler,
            PublishingRules(pending_max=links.pending_max, reliable_ms=links.reliable_ms),
            node_id=end.boot & 1023, pick=_pick,
        )  # fmt: skip
        numbered, found = asyncio.Event(), asyncio.Event()

        def claimed(number: int) -> None:
            publishing.renumber(number)
            numbered.set()

        Slot(end.registry, end.scheduler, end.root, claimed).claim()
        end.directory.when_changed.append(lambda: found.set() if publishing.proxies.usable() else None)
        end.directory.start()
        try:
            await asyncio.wait_for(asyncio.gather(numbered.wait(), found.wait()), self._timeout_seconds)
        except TimeoutError:
            await self.close()
            raise Unavailable(f"no proxy of {self._registry} answers: none runs, or they have another secret") from None
        except BaseException:  # nobody waits for it any more
            await self.close()
            raise

    async def close(self) -> None:
        """Leave. Whoever still waits for an answer is told that there will be none."""
        end, publishing = self._end, self._publishing
        self._end = self._publishing = None
        if publishing is not None:
            publishing.stop()
        if end is not None:
            await end.close()

    async def publish(
        self,
        room: str,
        text: str,
        *,
        sender: str = "0",
        reliable: bool | Literal["acked", "copies"] = False,
        priority: Priority = Priority.CHAT,
        send_id: str = "",
    ) -> Published:
        """Say something in a room. Returns its id when the class's promise is kept, raises if it is not.

        Live talk: a proxy has it. ``reliable``: every gateway with someone in the room has it (``"acked"``, the
        default of reliable talk), or three copies are on their way (``"copies"``).
        """
        done: asyncio.Future[PixiuError | None] = asyncio.get_running_loop().create_future()
        message_id = self.post(
            room, text, lambda error: None if done.done() else done.set_result(error),
            sender=sender, reliable=reliable, priority=priority, send_id=send_id,
        )  # fmt: skip
        error = await done
        if error is not None:
            raise error
        return message_id

    def post(
        self,
        room: str,
        text: str,
        done: Callable[[PixiuError | None], object] = lambda _error: None,
        *,
        sender: str = "0",
        reliable: bool | Literal["acked", "copies"] = False,
        priority: Priority = Priority.CHAT,
        send_id: str = "",
    ) -> Published:
        """As ``publish``, without waiting: ``done`` is told what became of it."""
        if self._publishing is None or self._end is None:
            raise Unavailable("this publisher is not open")
        room = new_public_id(room, what="room")
        if type(text) is not str:
            raise RequestError(f"text must be a text, not {type(text).__name__}")
        size, bytes_max = len(text.encode(errors="replace")), self._settings.rooms.message_bytes_max
        if size > bytes_max:
            raise TooLarge(f"a text in a room may have {bytes_max} bytes, not {size}")
        mode: TalkMode = "live" if reliable is False else "acked" if reliable is True else reliable
        publishing = self._publishing
        message_id = publishing.next_id()
        body = message_body(message_id, sender, room, self._end.clock.now_ms(), text, send_id, priority_name(priority))
        publishing.publish(
            room_number(room), message_id, body, mode, done, sender=room_number(sender), priority=priority
        )
        return message_id

    def peers(self) -> list[dict[str, object]]:
        """The proxies: their standing, round trip and success."""
        return [] if self._end is None else self._end.directory.rows()

    def blocking(self) -> BlockingPublisher:
        """The same for programs without an event loop: it has a thread with one."""
        return BlockingPublisher(self)


class BlockingPublisher:
    """A ``Publisher`` whose calls wait. Use it from any thread."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._thread: LoopThread | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread("pixiu-publisher", what="publisher")
        try:
            self._run(self._publisher.open())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        room: str,
        text: str,
        *,
        sender: str = "0",
        reliable: bool | Literal["acked", "copies"] = False,
        priority: Priority = Priority.CHAT,
        send_id: str = "",
    ) -> Published:
        """Say something in a room, and wait until the class's promise is kept."""
        publish = partial(self._publisher.publish, sender=sender, reliable=reliable, priority=priority, send_id=send_id)
        return self._run(publish(room, text))

    def close(self) -> None:
        """Leave."""
        if self._thread is not None:
            with suppress(Unavailable):  # it is closed already
                self._run(self._publisher.close())
            self._thread.stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise Unavailable("this publisher is not open: with publisher.blocking() as …")
        return self._thread.run(work)


def _pick(count: int) -> int:
    return int.from_bytes(os.urandom(4), "big") % count
