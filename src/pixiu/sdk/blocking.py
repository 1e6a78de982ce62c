"""The same client without asyncio: each call returns when it is done.

::

    with pixiu.connect_blocking("ws://127.0.0.1:8400", token) as me:
        me.send("bob", "hello")
        for message in me.messages():
            print(message.sender, message.text)

It runs the asynchronous client on a loop in a thread of its own, so both behave alike. Threads may share it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from pixiu.blocking import LoopThread
from pixiu.sdk.client import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from types import TracebackType

    from pixiu.machines.client_session.values import Contacts, Event, Gap, Message, Page
    from pixiu.sdk.options import Options, TokenSource
    from pixiu.sdk.store import Store

__all__ = ["BlockingClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Client, P], Awaitable[T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    """The method of a ``Client``, waited for."""

    def call(self: BlockingClient, /, *args: P.args, **params: P.kwargs) -> T:
        async def work() -> T:
            return await method(self.client, *args, **params)

        return self.run(work())

    call.__doc__, call.__name__ = method.__doc__, method.__name__
    return call


class BlockingClient:
    """A client for scripts. Takes the same arguments as ``pixiu.connect``, and has the same methods."""

    client: Client

    def __init__(self, url: str, token: TokenSource, **options: Unpack[Options]) -> None:
        self._thread = LoopThread("pixiu-client")

        async def make() -> Client:
            return Client(url, token, **options)

        try:
            self.client = self.run(make())
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        try:
            self.run(self.client.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self.client.__aexit__(kind, error, trace))
        finally:
            self._thread.stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this client's loop and wait for it."""
        return self._thread.run(work)

    # What arrives.

    def messages(self, timeout_seconds: float | None = None) -> Iterator[Message]:
        """Messages in order, each once. With a timeout it ends when none has come for so many seconds."""
        stream = self.client.messages()
        return self._iterate(stream.__anext__, timeout_seconds)

    def events(self, timeout_seconds: float | None = None) -> Iterator[Event]:
        """What is told beside messages. With a timeout it ends when nothing has come for so many seconds."""
        stream = self.client.events()
        return self._iterate(stream.__anext__, timeout_seconds)

    def close_gaps(self, *, with_: str | None = None, group: str | None = None) -> Iterator[Page]:
        """Fetch what is missing, page by page."""
        pages = self.client.close_gaps(with_=with_, group=group)
        return self._iterate(pages.__anext__, None)

    def _iterate(self, following: Callable[[], Awaitable[T]], timeout_seconds: float | None) -> Iterator[T]:
        async def step() -> T:
            async with asyncio.timeout(timeout_seconds):
                return await following()

        while True:
            try:
                yield self.run(step())
            except (StopAsyncIteration, TimeoutError):
                return

    @property
    def name(self) -> str:
        """The user's public id."""
        return self.client.name

    @property
    def known(self) -> Contacts:
        """One's list as it was when the connection began."""
        return self.client.known

    @property
    def is_online(self) -> bool:
        """Does a connection stand?"""
        return self.client.is_online

    @property
    def cursor(self) -> str:
        """How far this client has acked."""
        return self.client.cursor

    @property
    def local(self) -> Store:
        """The local store."""
        return self.client.local

    @property
    def gaps(self) -> list[Gap]:
        """What is known to be missing."""
        return self.client.gaps

    next_message = _blocking(Client.next_message)
    next_event = _blocking(Client.next_event)
    catch_up = _blocking(Client.catch_up)

    def act(self, action: str, *, timeout_seconds: float | None = None, **params: Any) -> dict[str, Any]:
        """Any action, by its name on the wire."""
        return self.run(self.client.act(action, timeout_seconds=timeout_seconds, **params))

    send = _blocking(Client.send)
    gsend = _blocking(Client.gsend)
    schedule = _blocking(Client.schedule)
    unschedule = _blocking(Client.unschedule)
    scheduled = _blocking(Client.scheduled)
    recall = _blocking(Client.recall)

    history = _blocking(Client.history)
    sync = _blocking(Client.sync)
    receive = _blocking(Client.receive)
    read = _blocking(Client.read)
    receipt = _blocking(Client.receipt)
    search = _blocking(Client.search)

    create_user = _blocking(Client.create_user)
    user = _blocking(Client.user)
    contact = _blocking(Client.contact)
    unlink = _blocking(Client.unlink)
    contacts = _blocking(Client.contacts)
    block = _blocking(Client.block)
    unblock = _blocking(Client.unblock)

    register_push = _blocking(Client.register_push)
    unregister_push = _blocking(Client.unregister_push)

    create_group = _blocking(Client.create_group)
    group = _blocking(Client.group)
    join = _blocking(Client.join)
    quit = _blocking(Client.quit)
    manage = _blocking(Client.manage)

    enter = _blocking(Client.enter)
    leave = _blocking(Client.leave)
    say = _blocking(Client.say)
    signal = _blocking(Client.signal)
    typing = _blocking(Client.typing)
    presence = _blocking(Client.presence)
