"""The whole of Pixiu inside a Python program: no port, no second process.

::

    async with pixiu.Node.embedded("data") as node:
        await node.create_user("alice")
        await node.create_user("bob")
        phone = await node.connect("bob", platform="ios")
        await node.send("alice", to="bob", text="hello")
        async for message in phone:
            print(message["text"])

It is the same code on the same data as ``pixiu serve``: a program that outgrows it changes how it reaches Pixiu, not
what it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pixiu.config import Settings
from pixiu.im.draft import Actor
from pixiu.im.params import whole
from pixiu.model.errors import NotAllowed, PixiuError, Unavailable
from pixiu.node.device import Device
from pixiu.node.host import MessagingHost
from pixiu.node.joined import check_alone
from pixiu.node.stopped import open_store
from pixiu.queue.engine import Engine
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pixiu.model.session import Session
    from pixiu.node.messaging import Messaging

__all__ = ["Device", "EmbeddedNode"]

log = logging.getLogger(__name__)

Result = dict[str, Any]

DRAIN_SECONDS = 5.0


class EmbeddedNode:
    """A node without a network. Actions take the acting user's public id first, then what the action takes."""

    def __init__(self, path: str | Path, *, settings: Settings | None = None, creates_users: bool = False) -> None:
        self._path = Path(path)
        self._settings = settings or Settings()
        self._creates_users = creates_users
        self._directory: DataDirectory | None = None
        self._scheduler: LoopScheduler | None = None
        self._engine: Engine | None = None
        self._host: MessagingHost | None = None
        self._asked: set[asyncio.Future[Any]] = set()
        """Whoever waits for an answer."""

    # Life.

    async def __aenter__(self) -> Self:
        self._directory = directory = DataDirectory.open(self._path)
        try:
            check_alone(directory.path)
            self._scheduler = scheduler = LoopScheduler(asyncio.get_running_loop())
            files = SystemFiles(directory.path, no_cache=self._settings.queue.no_cache)
            store = open_store(directory.path)
            self._engine = engine = Engine(self._settings, files, store, SystemClock(), scheduler, key=directory.key)
            engine.recover()
            engine.start()
            self._host = MessagingHost(
                engine, scheduler, self._settings, directory.path, creates_users=self._creates_users
            )
            await self._host.start()
        except BaseException:
            try:
                await self._close()
            except Exception as error:  # noqa: BLE001 - what went wrong first is what matters
                log.warning("a node that did not start did not close either", extra={"reason": str(error)})
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """Backwards: no more sessions, then everything taken in becomes durable, then the files go.

        Whatever fails, and also when this is cancelled, everything is let go: the same program may open it again.
        """
        host, engine, scheduler, directory = self._host, self._engine, self._scheduler, self._directory
        self._host = self._engine = self._scheduler = self._directory = None
        with contextlib.ExitStack() as last_first:
            if directory is not None:
                last_first.callback(directory.close)
            if engine is not None:
                last_first.callback(engine.stop)
            if host is not None:
                last_first.callback(host.close)
            if scheduler is not None:
                last_first.callback(scheduler.close)
            if engine is not None:
                last_first.callback(engine.background.stop)
            last_first.callback(self._answer_the_rest)
            if host is not None:
                await host.stop()
            if engine is not None:
                drained = asyncio.Event()
                engine.writer.when_flushed(drained.set)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(drained.wait(), DRAIN_SECONDS)

    def _answer_the_rest(self) -> None:
        """Nobody else will: their changes may be in the log, and are applied with the next start."""
        for waiting in list(self._asked):
            if isinstance(waiting, asyncio.Task):
                waiting.cancel()
            elif not waiting.done():
                waiting.set_exception(Unavailable("the node was closed; what was asked may have been done"))

    @property
    def host(self) -> MessagingHost:
        """The roles and stores of this node."""
        if self._host is None:
            raise NotAllowed("the node is not open: use it within `async with`")
        return self._host

    @property
    def messaging(self) -> Messaging:
        """The roles, for callbacks instead of coroutines."""
        return self.host.messaging

    # Actions.

    async def act(self, user: str | None, action: str, /, **params: object) -> Result:
        """Any action, as design and documentation name it; ``user`` None acts as an administrator.

        ``with`` and ``from`` are words of Python's: give them as ``with_`` and ``from_``.
        """
        messaging = self.messaging
        actor = Actor(0, is_admin=True) if user is None else Actor(await self._number(user))
        answer: Result = await self._ask(lambda done: messaging.act(actor, action, _named(params), done))
        return answer

    async def _number(self, user: str) -> int:
        number: int = await self._ask(lambda done: self.messaging.proxy.find_user(user, done))
        return number

    async def _ask(
        self,
        ask: Callable[[Callable[[Any], object]], object],
        undo: Callable[[Any], object] | None = None,
    ) -> Any:
        """Wait for a callback; raise what it brings if that is an error. ``undo`` gets what comes for nobody."""
        if self._host is None:
            raise NotAllowed("the node was closed")
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.add(waiting)
        waiting.add_done_callback(self._asked.discard)

        def done(answer: object) -> None:
            if waiting.done():
                if undo is not None and not isinstance(answer, PixiuError):
                    undo(answer)
            elif isinstance(answer, PixiuError):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)

        ask(done)
        return await waiting

    async def create_user(self, user: str, name: str = "", **fields: object) -> Result:
        """Create or change a user's profile."""
        return await self.act(None, "create_user", user=user, name=name or user, **fields)

    async def send(self, user: str, *, to: str, text: str, send_id: str = "", **more: object) -> Result:
        """Say something to another user. Accepted when this returns."""
        return await self.act(user, "send", to=to, text=text, **_given(send_id=send_id), **more)

    async def gsend(self, user: str, *, group: str, text: str, send_id: str = "", **more: object) -> Result:
        """Say something in a group. Accepted when this returns."""
        return await self.act(user, "gsend", group=group, text=text, **_given(send_id=send_id), **more)

    async def create_group(self, user: str, group: str, *, members: list[str] | None = None, **more: object) -> Result:
        """A group that ``user`` owns."""
        return await self.act(user, "create_group", group=group, members=members or [], **more)

    async def history(self, user: str, **where: object) -> Result:
        """Pages of a conversation (``with_``, ``group``), or of everything that the user has."""
        return await self.act(user, "history", **where)

    async def connect(self, user: str, *, platform: str = "web", device: str = "", cursor: str = "0") -> Device:
        """A session of a user. What waits for the platform comes first, then what is said."""
        messaging = self.messaging
        start = whole(cursor, "cursor")
        made = Device(messaging, user, platform, device, cursor=start)
        session: Session = await self._ask(
            lambda done: messaging.connect(user, platform, device, made, done, cursor=start),
            undo=lambda session: messaging.disconnect(session.session_id),
        )
        made.session = session
        return made

    async def audit(self, *, at_least: int = 0, before: int | None = None) -> Result:
        """Prove it: every accepted message is acked, waiting, expired or dead in every inbox it was meant for."""
        auditing = asyncio.ensure_future(self.host.audit(at_least=at_least, before=before))
        self._asked.add(auditing)
        auditing.add_done_callback(self._asked.discard)
        try:
            return (await auditing).as_json()
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise Unavailable("the node was closed during its audit") from None


def _named(params: dict[str, object]) -> dict[str, object]:
    return {key.removesuffix("_"): value for key, value in params.items()}


def _given(**params: str) -> dict[str, object]:
    return {key: value for key, value in params.items() if value}
