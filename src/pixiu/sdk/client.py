"""A client on asyncio: the session machine, a WebSocket under it, and what a program sees of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import secrets
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pixiu.machines.client_session import (
    Answered,
    Arrived,
    ClientRules,
    ClientSession,
    Connect,
    Drop,
    Ended,
    State,
    Tell,
    Write,
)
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
    ReceiptEvent,
    number,
)
from pixiu.model.errors import ConfigError, Conflict, PixiuError, Unauthenticated, Unavailable
from pixiu.sdk.actions import Actions
from pixiu.sdk.catching_up import CatchingUp
from pixiu.sdk.shelves import MemoryShelf, StoreShelf
from pixiu.sdk.socket import Socket, open_socket, websocket_url
from pixiu.sdk.store import MESSAGES_MAX, Store
from pixiu.sdk.streams import Over, Stream, or_error

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path
    from types import TracebackType
    from typing import Literal

    from pixiu.machines.client_session import Command, Incoming
    from pixiu.sdk.options import TokenSource
    from pixiu.sdk.shelves import Hand, Shelf

__all__ = ["EVENTS_MAX", "Client"]

log = logging.getLogger(__name__)

EVENTS_MAX = 1_000
"""Events that wait for a program that takes none; the oldest go."""
CLOSE_SECONDS = 0.2


class Client(Actions):
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
        self.url = websocket_url(url)
        if gaps not in ("keep", "close"):
            raise ConfigError(f"gaps must be keep or close, not {gaps!r}")
        if cursor and (store is not None or not cursor.isdecimal()):
            raise ConfigError("cursor must be one that a client of yours had, and a store has its own")
        self.name = ""
        """The user's public id, once it is known."""
        self.known: Contacts = Contacts(())
        """One's list as it was when the connection began."""
        self.is_online = False
        self._token = token
        self._auto_ack = auto_ack
        self._closes_gaps = gaps == "close"
        self._patience = patience_seconds
        self._timeout = timeout_seconds
        self._buffer = max(buffer, 1)
        self._tls = tls
        self._local = None if store is None else Store(store, messages_max=store_messages_max)
        self._session = ClientSession(
            rules or ClientRules(), jitter=random.SystemRandom().random,
            cursor=self._local.cursor if self._local is not None else int(cursor or 0),
            last_id=self._local.last_id if self._local is not None else 0,
        )  # fmt: skip
        self._open_seconds = (rules or ClientRules()).open_ms / 1000
        self._shelf: Shelf = (
            MemoryShelf(self._held, self._talk_missed)
            if self._local is None
            else StoreShelf(self._local, self._held, self._talk_missed)
        )
        self._catching_up = CatchingUp(self, self._local, self._shelf)
        if self._local is not None and self._local.user:
            self.name = self._session.user = self._local.user
        self._is_known = False
        self._early: list[Incoming] = []
        self._prefix = secrets.token_hex(8)
        self._sends = 0
        self._socket: Socket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._changed: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hand: Hand | None = None
        self._ended: tuple[PixiuError | None] | None = None
        self._failure: PixiuError | None = None
        self._is_hushed = False

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
        self._do(self._session.start(_now()))
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
        await self._learn_name()

    async def _learn_name(self) -> None:
        """Whose token it is. Until that is known nothing is written to a store: it may be someone else's."""
        profile = await self.user()
        if self._local is not None:
            self._local.claim(profile.user)
        self.name = self._session.user = profile.user
        self._is_known = True
        early, self._early = self._early, []
        self._put(early)
        self._wake()

    async def _learn_name_or_end(self) -> None:
        try:
            await self._learn_name()
        except Conflict as error:
            self._do(self._session.leave(_now()))
            self._ended = (error,)
            self._wake()

    async def close(self) -> None:
        """End the session and every task; what was not acked comes again next time."""
        socket = self._socket
        self._do(self._session.leave(_now()))
        tasks = [*self._tasks, *([self._connecting] if self._connecting is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        if socket is not None:
            await socket.gone(CLOSE_SECONDS)
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
        now = _now()
        seconds = self._timeout if timeout_seconds is None else timeout_seconds
        asked, commands = self._session.request(action, given, now + int(seconds * 1000), now)
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
        elif action in ("send", "gsend"):
            message_id = number(answer.get("message_id"))
            self._session.sent(message_id)
            if self._local is not None and message_id:
                said = {name: params[name] for name in params}
                kept = {
                    "kind": "text",
                    **said,
                    "message_id": str(message_id),
                    "from": self.name,
                    "at": answer.get("at"),
                }
                self._local.add([kept])

    # What the session tells.

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Write(payload):
                    if self._socket is not None:
                        self._socket.write(payload)
                case Arrived(items):
                    if not self._is_known:
                        self._early += items
                    elif not self._put(items):
                        break
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
                    self._connecting = asyncio.create_task(self._connect(cursor, needs_token=needs_token))
                case Drop():
                    self._drop()
                case Ended(error):
                    self._ended = (error,)
        if commands:
            self._wake()
        self._arm()

    def _put(self, items: list[Incoming]) -> bool:
        try:
            self._shelf.put(items)
        except Unavailable as error:
            log.error("what arrived could not be kept", extra={"reason": str(error)})
            self._do(self._session.not_held(str(error), _now()))
            return False
        self._hush()
        return True

    def _tell(self, event: Event) -> None:
        match event:
            case Online():
                self.is_online = True
                self._failure = None
                if self._patience is None and not self._is_known:
                    self._spawn(self._learn_name_or_end())
            case Closed(reason):
                self.is_online = False
                if self._failure is None:
                    self._failure = Unavailable(reason)
            case ContactsEvent(contacts):
                self.known = contacts
            case GapEvent(gap):
                if not self._catching_up.found(gap):
                    self._spawn(self._catching_up.catch_up(self._session.last_id))
                    return
                if self._closes_gaps and not gap.is_trimmed:
                    self._spawn(self._catching_up.close_and_show())
            case ReceiptEvent(_, ids, kind, at) if self._local is not None:
                names = {"delivered": ("delivered_at",), "read": ("read_at",)}.get(kind, ("delivered_at", "read_at"))
                self._local.receipt(ids, dict.fromkeys(names, at))
            case _:
                pass
        self._events.append(event)

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

    def _held(self, cursor: int, generation: int) -> None:
        if cursor:
            self._do(self._session.held(cursor, generation))

    def _hush(self) -> None:
        """Read on, unless too much waits for the program; but an answer that it waits for must be read."""
        if self._socket is None:
            return
        is_full = not self._waiting and self._shelf.waiting >= (self._buffer // 2 if self._is_hushed else self._buffer)
        if is_full != self._is_hushed:
            self._is_hushed = is_full
            self._session.deaf(_now(), is_deaf=is_full)
            self._socket.hush(is_hushed=is_full)

    # The connection.

    async def _connect(self, cursor: int, *, needs_token: bool) -> None:
        socket = Socket(self._received, self._closed)
        try:
            if isinstance(self._token, str):
                if needs_token:
                    raise Unauthenticated("the server does not take this token any more")
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
                self._do(self._session.opened(_now()))

    def _failed(self, socket: Socket, error: PixiuError) -> None:
        if self._socket is socket:
            self._socket = None
        self._failure = error
        self._do(self._session.failed(error, _now()))

    def _received(self, payload: bytes) -> None:
        self._do(self._session.received(payload, _now()))

    def _closed(self, code: int, reason: str) -> None:
        self._socket = None
        self._is_hushed = False
        self._session.deaf(_now(), is_deaf=False)
        self._do(self._session.closed(code, reason, _now()))

    def _drop(self) -> None:
        socket, self._socket = self._socket, None
        self._is_hushed = False
        self._session.deaf(_now(), is_deaf=False)
        if socket is not None:
            socket.drop()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._session.due()
        if due is not None and self._session.state is not State.ENDED:
            seconds = max(due - _now(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds + 0.001, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._session.tick(_now()))


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
