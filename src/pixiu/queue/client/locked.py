"""One of several programs reads a topic; when it goes, another goes on where it was.

::

    async with LockedSubscriber("127.0.0.1:12301", "order", "billing", lock="redis://127.0.0.1:6379") as orders:
        async for delivery in orders:
            handle(delivery)

Start it wherever you like, as often as you like. Who holds the lock ``sub_lock@<topic>@<who>`` reads; the others wait,
and try every twenty seconds. The queue stores the position with each ack, so whoever comes next resumes after the last
event that was handled: at least once, nothing left out. A holder that cannot renew its lock stops reading before the
lock runs out. With ``lock="server"`` the queue itself is asked, which keeps a second subscriber of a name waiting.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from pixiu.machines.tenure import Renew, Stop, Tenure, TenureRules, Try
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.queue.client.asynchronous import Client
from pixiu.queue.client.locks import lock_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pixiu.queue.client.delivery import Delivery
    from pixiu.queue.client.locks import Lock
    from pixiu.queue.client.subscription import Subscription

__all__ = ["LockedSubscriber"]

SERVER = "server"


class LockedSubscriber:
    """Iterate over it, once, inside ``async with``."""

    def __init__(
        self,
        servers: str,
        topic: str,
        who: str,
        *,
        lock: str,
        rules: TenureRules | None = None,
        batch: int = 100,
        ack_timeout: int = 30_000,
    ) -> None:
        """``servers`` as a ``Client`` takes them; raises ``ConfigError`` for a lock that nobody knows."""
        try:
            self._tenure = Tenure(rules or TenureRules())
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._rules = rules or TenureRules()
        self._lock: Lock | None = None if lock == SERVER else lock_of(lock)
        self._client = Client(servers)
        self._topic, self._who = topic, who
        self._batch, self._ack_timeout = batch, ack_timeout
        self.key = f"sub_lock@{topic}@{who}"
        """What the lock is called in its store."""
        self.holder = secrets.token_hex(16)
        """Who we are there."""
        self._subscription: Subscription | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_granted = asyncio.Event()
        self._is_closed = False

    @property
    def is_reading(self) -> bool:
        """Is it this one that reads now?"""
        return self._subscription is not None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        if self._lock is not None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep(self._lock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while not self._is_closed:
            subscription = await self._reading()
            if subscription is None:
                break
            delivery = subscription.take() if self._may_read() else None
            if delivery is not None:
                return delivery
            if not self._may_read():
                self._stop_reading()
            elif await subscription.next_batch() is None and subscription.has_ended:
                break
        raise StopAsyncIteration

    async def close(self) -> None:
        """Stop reading, free the lock and end. What was given out and not followed by another comes again."""
        self._is_closed = True
        self._stop_reading()
        self._is_granted.set()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._lock is not None:
            try:
                await self._lock.release(self.key, self.holder)
            except Unavailable:
                pass  # it runs out by itself
            await self._lock.close()
        await self._client.close()

    def _may_read(self) -> bool:
        return self._lock is None or (self._tenure.is_held(_now_ms()) and self._lock.is_sure())

    async def _reading(self) -> Subscription | None:
        """The subscription, as soon as this one may have it."""
        if self._subscription is None and self._lock is not None:
            await self._is_granted.wait()
        if self._subscription is None and not self._is_closed:
            self._subscription = self._client.subscribe(
                self._topic, name=self._who, from_stored=True, remember=True, take_over=True,
                batch=self._batch, ack_timeout=self._ack_timeout,
            )  # fmt: skip
        return self._subscription

    def _stop_reading(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._is_granted.clear()
        if subscription is not None:
            subscription.close()

    async def _keep(self, lock: Lock) -> None:
        """Do what the machine says, until this one is closed."""
        tenure = self._tenure
        while True:
            command = tenure.poll(_now_ms())
            if isinstance(command, Try | Renew):
                command = await self._ask(lock, command)
            if isinstance(command, Stop):
                self._stop_reading()
            elif tenure.is_held(_now_ms()):
                self._is_granted.set()
            await asyncio.sleep(tenure.due_ms(_now_ms()) / 1000)

    async def _ask(self, lock: Lock, command: Try | Renew) -> Stop | None:
        ask = lock.acquire if isinstance(command, Try) else lock.renew
        try:
            # A store that hangs must not keep us from noticing that time is up.
            is_ours = await asyncio.wait_for(
                ask(self.key, self.holder, self._rules.expire_ms), self._rules.margin_ms / 1000
            )
        except (Unavailable, TimeoutError):
            self._tenure.failed(_now_ms())
            return None
        return self._tenure.granted(_now_ms()) if is_ours else self._tenure.refused(_now_ms())


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody sets, and that goes on while the machine sleeps: a lock runs out meanwhile."""


def _now_ms() -> int:
    return int(time.clock_gettime(_CLOCK) * 1000)
