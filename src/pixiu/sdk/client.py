"""A client on asyncio, as a program sees it: messages, events, actions, gaps, the local store."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pixiu.machines.client_session import ClientRules
from pixiu.machines.client_session.values import (
    Closed,
    Contacts,
    ContactsEvent,
    Event,
    Gap,
    GapEvent,
    Message,
    Missed,
    Online,
    Page,
    Place,
    ReceiptEvent,
    number,
)
from pixiu.model.errors import ConfigError, Conflict, PixiuError, Unavailable
from pixiu.sdk.actions import Actions
from pixiu.sdk.catching_up import CatchingUp
from pixiu.sdk.driver import Driver, now_ms
from pixiu.sdk.shelves import MemoryShelf, StoreShelf
from pixiu.sdk.socket import websocket_url
from pixiu.sdk.store import MESSAGES_MAX, Store
from pixiu.sdk.streams import Over, Stream, or_error

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Literal

    from pixiu.machines.client_session import Incoming
    from pixiu.sdk.options import TokenSource
    from pixiu.sdk.shelves import Hand, Shelf

__all__ = ["EVENTS_MAX", "Client"]

log = logging.getLogger(__name__)

NAME_SECONDS = 0.5
"""How long to wait before a server that could not say whose token it is is asked again."""
EVENTS_MAX = 1_000
"""Events that wait for a program that takes none; the oldest go."""


class Client(Driver, Actions):
    """One session of a user, over as many connections as it takes. Made by ``pixiu.connect``."""

    def __init__(
        self,
        url: str,
        token: TokenSource,
        *,
        store: str | Path | None = None,
        store_messages_max: int = MESSAGES_MAX,
        auto_ack: bool = True,
        gaps: Literal["keep", "close"] = "keep",
        patience_seconds: float | None = 0,
        timeout_seconds: float = 30.0,
        buffer: int = 1_000,
        cursor: str = "",
        tls: ssl.SSLContext | None = None,
        rules: ClientRules | None = None,
    ) -> None:
        if gaps not in ("keep", "close"):
            raise ConfigError(f"gaps must be keep or close, not {gaps!r}")
        if cursor and (store is not None or not cursor.isdecimal()):
            raise ConfigError("cursor must be one that a client of yours had, and a store has its own")
        websocket_url(url)  # before a store is opened
        self._local = None if store is None else Store(store, messages_max=store_messages_max)
        super().__init__(
            url, token, tls=tls, rules=rules or ClientRules(),
            cursor=self._local.cursor if self._local is not None else int(cursor or 0),
            last_id=self._local.last_id if self._local is not None else 0,
        )  # fmt: skip
        self.name = ""
        """The user's public id, once it is known."""
        self.known: Contacts = Contacts(())
        """One's list as it was when the connection began."""
        self.is_online = False
        self._auto_ack = auto_ack
        self._closes_gaps = gaps == "close"
        self._patience = patience_seconds
        self._timeout = timeout_seconds
        self._buffer = max(buffer, 1)
        self._shelf: Shelf = (
            MemoryShelf(self._held, self._talk_missed)
            if self._local is None
            else StoreShelf(self._local, self._held, self._talk_missed)
        )
        self._catching_up = CatchingUp(self, self._local, self._shelf)
        if self._local is not None and self._local.user:
            self.name = self._session.user = self._local.user
        self.is_known = self._is_closed = self._is_learning = False
        self._early: list[Incoming] = []
        self._prefix = secrets.token_hex(8)
        self._sends = 0
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._changed: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hand: Hand | None = None

    # Its life.

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was taken is acked, unless the program ends by an error: then the last message comes again."""
        if kind is None and self._auto_ack:
            self._finish()
        await self.close()

    async def _start(self) -> None:
        self.begin()
        if self._patience is None:
            return
        deadline = asyncio.get_running_loop().time() + self._patience
        while not self.is_online:
            if self._ended is not None:
                raise self._ended[0] or Unavailable("this session is over")
            left = deadline - asyncio.get_running_loop().time()
            if self._failure is not None and left <= 0 and not self._session.is_refused:
                raise self._failure
            await self._change(left if left > 0 else None)
        await self._learn_name(deadline)

    async def _learn_name(self, deadline: float | None) -> None:
        """Whose token it is. Until that is known nothing is written to a store: it may be someone else's.

        A server that cannot say so now is asked again, until the deadline.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                profile = await self.user()
                break
            except Unavailable as error:
                wait = max(error.retry_after_ms / 1000, NAME_SECONDS)
                if self.is_over or (deadline is not None and loop.time() + wait > deadline):
                    raise
                await asyncio.sleep(wait)
        if self._local is not None:
            self._local.claim(profile.user)
        self.name = self._session.user = profile.user
        self.is_known = True
        early, self._early = self._early, []
        self._catching_up.keep_owed()
        self._put(early)
        if self._catching_up.is_owed:
            self._spawn(self._catching_up.pay())
        self._wake()

    async def _learn_name_or_end(self) -> None:
        self._is_learning = True
        try:
            await self._learn_name(None)
        except Conflict as error:
            self._do(self._session.leave(now_ms()))
            self._ended = (error,)
            self._wake()
        finally:
            self._is_learning = False

    @property
    def is_over(self) -> bool:
        """Was it closed, or ended by the server?"""
        return self._is_closed or self._ended is not None

    async def close(self) -> None:
        """End the session and every task; what was not acked comes again next time."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.end()
        if self._local is not None:
            self._local.close()

    @property
    def local(self) -> Store:
        """The local store. Raises ``ConfigError`` if the client has none."""
        if self._local is None:
            raise ConfigError('this client has no store; give one: connect(url, token, store="me.db")')
        return self._local

    @property
    def cursor(self) -> str:
        """How far this client has acked: what the next one takes to go on from there."""
        return str(self._session.cursor)

    # What arrives.

    def messages(self) -> AsyncIterator[Message]:
        """Messages in order, each once: first what waited, then what is said. Ends when the client is closed.

        Raises what has ended the session: ``Kicked``, ``Unauthenticated``.
        """
        return Stream(self._next_message)

    def events(self) -> AsyncIterator[Event]:
        """What is told beside messages: receipts, recalls, presence, typing, gaps, how the connection stands."""
        return Stream(self._next_event)

    async def next_message(self, timeout_seconds: float | None = None) -> Message:
        """The next message; ``TimeoutError`` if none comes in time, ``Unavailable`` if the client is closed."""
        async with asyncio.timeout(timeout_seconds):
            return await or_error(self._next_message())

    async def next_event(self, timeout_seconds: float | None = None) -> Event:
        """The next event; ``TimeoutError`` if none comes in time, ``Unavailable`` if the client is closed."""
        async with asyncio.timeout(timeout_seconds):
            return await or_error(self._next_event())

    async def _next_message(self) -> Message:
        if self._auto_ack:
            self._finish()
        while True:
            if self._is_closed:
                raise Over(None)
            taken = self._shelf.take()
            if taken is not None:
                if self._auto_ack:
                    self._hand = taken.hand
                self._hush()
                done = partial(self._finished, taken.hand)
                return Message.read(taken.message, is_late=taken.is_late, done=done)
            await self._change_or_end()

    async def _next_event(self) -> Event:
        while not self._events:
            await self._change_or_end()
        return self._events.popleft()

    def _finish(self) -> None:
        hand, self._hand = self._hand, None
        if hand is not None:
            self._finished(hand)

    def _finished(self, hand: Hand) -> None:
        if not hand.is_done:
            with self._keeping("how far the program has read"):
                self._shelf.finish(hand)

    async def _change_or_end(self) -> None:
        if self._ended is not None:
            raise Over(self._ended[0])
        await self._change(None)

    async def _change(self, seconds: float | None) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            pass
        finally:
            self._changed.discard(future)

    def _wake(self) -> None:
        for future in self._changed:
            if not future.done():
                future.set_result(None)

    # Gaps.

    @property
    def gaps(self) -> list[Gap]:
        """What is known to be missing, newest first."""
        return self._catching_up.gaps()

    def close_gaps(self, *, with_: str | None = None, group: str | None = None) -> AsyncIterator[Page]:
        """Fetch what is missing, in one conversation or everywhere: pages, newest first; each is kept as it comes."""
        return self._catching_up.close(with_=with_, group=group)

    async def catch_up(self, after: int = 0) -> None:
        """Ask every conversation for what is newer than the message ``after``, and show it as late messages.

        Where that is more than a page it is the newest page, and a gap below it: so on a new device. After an inbox
        has lost something a client does this by itself, from the last message that it has.
        """
        await self._catching_up.catch_up(after)

    # Asking.

    def new_send_id(self) -> str:
        """A token that no other send has."""
        self._sends += 1
        return f"{self._prefix}-{self._sends}"

    async def act(self, action: str, *, timeout_seconds: float | None = None, **params: Any) -> dict[str, Any]:
        """Any action, by its name on the wire."""
        given = {name.rstrip("_"): value for name, value in params.items() if value is not None}
        answer = await self.ask(action, given, self._timeout if timeout_seconds is None else timeout_seconds)
        self._learn(action, given, answer)
        return answer

    def _learn(self, action: str, params: dict[str, Any], answer: dict[str, Any]) -> None:
        """Remember what a reconnect has to do again, and what this client said itself."""
        if action == "enter":
            self._session.rooms[str(params.get("room"))] = None
        elif action == "leave":
            self._session.rooms.pop(str(params.get("room")), None)
        elif action == "presence":
            self._session.watches, self._session.watched = True, params.get("users")
        elif action == "recall" and self._local is not None:
            with self._keeping("a recall"):  # its notice does not come back to this session
                self._local.recalled(number(params.get("message_id")))
        elif action in ("send", "gsend"):
            message_id = number(answer.get("message_id"))
            self._session.sent(message_id)
            if self._local is not None and message_id:
                own = {"message_id": str(message_id), "from": self.name, "at": answer.get("at")}
                with self._keeping("what was sent"):
                    self._local.add([{"kind": "text", **params, **own}])

    @contextmanager
    def _keeping(self, what: str) -> Iterator[None]:
        """For what the server has already: a store that cannot be written (a full disk) does not undo it."""
        try:
            yield
        except Unavailable as error:
            log.error("%s could not be kept", what, extra={"reason": str(error)})

    # What the session tells.

    def _arrive(self, items: list[Incoming]) -> bool:
        """Put what has arrived on the shelf, once it is known whose it is."""
        if not self.is_known:
            self._early += items
            return True
        return self._put(items)

    def _hurry(self, message: dict[str, Any]) -> None:
        if self.is_known:  # before that the message's own place is early enough
            self._shelf.hurry(message)

    def _put(self, items: list[Incoming]) -> bool:
        try:
            self._shelf.put(items)
        except Unavailable as error:
            log.error("what arrived could not be kept", extra={"reason": str(error)})
            self._do(self._session.not_held(str(error), now_ms()))
            return False
        for item in items:
            message = item.message
            if message is not None and "room" not in message:
                self._catching_up.note(_place_of(message, self.name))
        self._hush()
        return True

    def _is_full(self, *, was_full: bool) -> bool:
        return self._shelf.waiting >= (self._buffer // 2 if was_full else self._buffer)

    def _tell(self, event: Event) -> None:
        match event:
            case Online():
                self.is_online = True
                self._failure = None
                if self._patience is None and not self.is_known and not self._is_learning:
                    self._spawn(self._learn_name_or_end())
            case Closed(reason):
                self.is_online = False
                if self._failure is None:
                    self._failure = Unavailable(reason)
            case ContactsEvent(contacts):
                self.known = contacts
                if contacts.has_more:
                    self._spawn(self._learn_contacts())
            case GapEvent(gap):
                if not self._catching_up.found(gap):
                    missed = self._session.take_missed()
                    if missed is not None:
                        self._catching_up.owe(missed)
                        if self.is_known:
                            self._spawn(self._catching_up.pay())
                    return
                if self._closes_gaps and not gap.is_trimmed:
                    self._spawn(self._catching_up.close_and_show())
            case ReceiptEvent(_, ids, kind, at) if self._local is not None:
                names = {"delivered": ("delivered_at",), "read": ("read_at",)}.get(kind, ("delivered_at", "read_at"))
                with self._keeping("a receipt"):
                    self._local.receipt(ids, dict.fromkeys(names, at))
            case _:
                pass
        self._events.append(event)

    async def _learn_contacts(self) -> None:
        """The push at login is the first page of a long list: fetch the others, and tell of the whole list."""
        contacts = await self.contacts()
        self.known = contacts
        self._events.append(ContactsEvent(contacts))
        self._wake()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except PixiuError as error:
                log.warning("catching up failed", extra={"reason": str(error)})

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_news(self, message: dict[str, Any]) -> bool:
        """Was this never shown, and not said by this client?"""
        if self._local is not None and self._local.has(number(message.get("message_id"))):
            return False
        return self._session.is_news(message)

    def show_gap(self, gap: Gap) -> None:
        """A gap was found while catching up."""
        self._tell(GapEvent(gap))
        self._wake()

    def shown_late(self) -> None:
        """Late messages are on the shelf."""
        self._hush()
        self._wake()

    async def room_for_more(self) -> None:
        """Wait until the program has taken enough of what waits."""
        while self._shelf.waiting >= self._buffer and self._ended is None:
            await self._change(1.0)

    def _talk_missed(self, room: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Missed) and last.room == room:
            self._events[-1] = Missed(last.count + 1, room)
        else:
            self._events.append(Missed(1, room))


def _place_of(message: dict[str, Any], own: str) -> Place:
    """Where a message belongs, without reading all of it."""
    if "group" in message:
        return Place("group", str(message["group"]))
    sender = str(message.get("from"))
    return Place("with", str(message.get("to")) if sender == own else sender)
