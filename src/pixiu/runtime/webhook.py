"""Notifications as HTTP requests to a server of yours, which knows how to reach your users' phones.

::

    POST /your/path HTTP/1.1
    Content-Type: application/json
    Idempotency-Key: 7461…/alice/ios

    {"user": "alice", "platform": "ios", "message_id": "7461…", "conversation": "u:17", "sender": "bob",
     "text": "hi", "badge": 3}

One for a phone (``horn.provider = "phones"``) has ``"device"``, ``"token"`` and ``"topic"`` as well. Any status below
300 means that it was taken; 410 for a phone, that its token is dead. Everything else, and no answer in time, is a
failure: it is tried again later, so the server may see one twice, under the same key.
"""

import asyncio
import json
from collections import deque

from pixiu.model.errors import Unavailable
from pixiu.ports.notifications import Notification, Refused, Told
from pixiu.runtime.http_client import JsonPoster

__all__ = ["WebhookNotifications"]

REQUESTS_MAX = 64
"""Requests under way at a time; more wait."""
WAITING_MAX = 10_000
"""Notifications that wait for their turn; more are refused, and tried again later."""


class WebhookNotifications:
    """``Notifications`` over HTTP, on an event loop. One connection per request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, *, timeout_ms: int) -> None:
        self._loop = loop
        self._poster = JsonPoster(url, setting="horn.webhook_url", timeout_ms=timeout_ms)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[Notification, Told]] = deque()

    def send(self, notification: Notification, done: Told) -> None:
        """Post it as soon as there is room."""
        if len(self._waiting) >= WAITING_MAX:
            self._loop.call_soon(done, Refused(f"{WAITING_MAX} notifications wait already"))
            return
        self._waiting.append((notification, done))
        self._fill()

    async def close(self) -> None:
        """Give up what is under way, and tell nobody."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < REQUESTS_MAX:
            task = self._loop.create_task(self._perform(*self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._fill()

    async def _perform(self, notification: Notification, done: Told) -> None:
        # Ids may be any UTF-8; a header may not.
        phone = notification.push_token
        words = f"{notification.message_id}/{notification.user}/{notification.platform}"
        key = json.dumps(f"{words}/{phone.device}" if phone else words).strip('"')
        content: dict[str, object] = {
            "user": notification.user,
            "platform": notification.platform,
            "message_id": str(notification.message_id),
            "conversation": notification.conversation,
            "sender": notification.sender,
            "text": notification.text,
            "badge": notification.badge,
        }
        if phone:
            content |= {"device": phone.device, "token": phone.token, "topic": phone.topic}
        try:
            status = await self._poster.post_for_status(content, {"Idempotency-Key": key})
            reason = f"the server answered with status {status}"
            refused = None if status < 300 else Refused(reason, is_token_dead=phone is not None and status == 410)
        except Unavailable as error:
            refused = Refused(str(error))
        done(refused)
