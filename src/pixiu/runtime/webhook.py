"""Notifications as HTTP requests to a server of yours, which knows how to reach your users' phones.

::

    POST /your/path HTTP/1.1
    Content-Type: application/json
    Idempotency-Key: 7461…/alice/ios

    {"user": "alice", "platform": "ios", "message_id": "7461…", "conversation": "u:17", "sender": "bob",
     "text": "hi", "badge": 3}

Any status below 300 means that it was taken. Everything else, and no answer in time, is a failure: it is tried again
later, so the server may see one twice, under the same key.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

import h11

from pixiu.model.errors import ConfigError
from pixiu.ports.notifications import Notification

__all__ = ["WebhookNotifications"]

REQUESTS_MAX = 64
"""Requests under way at a time; more wait."""
WAITING_MAX = 10_000
"""Notifications that wait for their turn; more are refused, and tried again later."""
ANSWER_BYTES_MAX = 64 * 1024
_READ_BYTES = 16 * 1024


class WebhookNotifications:
    """``Notifications`` over HTTP, on an event loop. One connection per request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, *, timeout_ms: int) -> None:
        self._loop = loop
        self._url = _checked(url)
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._timeout_seconds = timeout_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[Notification, Callable[[str | None], None]]] = deque()

    def send(self, notification: Notification, done: Callable[[str | None], None]) -> None:
        """Post it as soon as there is room."""
        if len(self._waiting) >= WAITING_MAX:
            self._loop.call_soon(done, f"{WAITING_MAX} notifications wait already")
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

    async def _perform(self, notification: Notification, done: Callable[[str | None], None]) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                status = await self._post(notification)
            reason = None if status < 300 else f"the server answered with status {status}"
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
        except (OSError, h11.ProtocolError) as error:
            reason = str(error) or type(error).__name__
        done(reason)

    async def _post(self, notification: Notification) -> int:
        url = self._url
        assert url.hostname is not None
        port = url.port or (443 if self._tls else 80)
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=self._tls)
        try:
            client = h11.Connection(h11.CLIENT)
            writer.write(_request(client, url, notification))
            await writer.drain()
            return await _status(client, reader)
        finally:
            writer.close()


def _checked(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        is_good = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
        is_good = is_good and split.username is None
    except ValueError:
        is_good = False
    if not is_good or any(ord(character) <= 32 for character in url):
        raise ConfigError(f"horn.webhook_url must be an http or https URL without credentials, not {url!r}")
    return split


def _request(client: h11.Connection, url: SplitResult, notification: Notification) -> bytes:
    body = json.dumps(
        {
            "user": notification.user,
            "platform": notification.platform,
            "message_id": str(notification.message_id),
            "conversation": notification.conversation,
            "sender": notification.sender,
            "text": notification.text,
            "badge": notification.badge,
        },
        ensure_ascii=False,
    ).encode()
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    # Ids may be any UTF-8; a header may not.
    key = json.dumps(f"{notification.message_id}/{notification.user}/{notification.platform}").strip('"')
    head = h11.Request(
        method="POST",
        target=target,
        headers=[
            ("Host", url.netloc),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Idempotency-Key", key),
            ("Connection", "close"),
        ],
    )
    return client.send(head) + client.send(h11.Data(data=body)) + client.send(h11.EndOfMessage())


async def _status(client: h11.Connection, reader: asyncio.StreamReader) -> int:
    """The status of the answer; its content is read over, up to a bound, so that the server sees no reset."""
    status = 0
    size = 0
    while size < ANSWER_BYTES_MAX:
        event = client.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_READ_BYTES)
            size += len(data)
            client.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            break
    if not status:
        raise h11.RemoteProtocolError("the server sent no answer")
    return status
