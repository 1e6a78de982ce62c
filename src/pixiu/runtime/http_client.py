"""One HTTP POST on the event loop: JSON there, status and JSON back, bounded in time and size."""

import asyncio
import json
import ssl
from urllib.parse import SplitResult, urlsplit

import h11

from pixiu.model.errors import ConfigError, Unavailable

__all__ = ["JsonPoster", "get"]

ANSWER_BYTES_MAX = 64 * 1024
_READ_BYTES = 16 * 1024


class JsonPoster:
    """Posts to one URL, one connection per request. Redirects are not followed."""

    def __init__(self, url: str, *, setting: str, timeout_ms: int) -> None:
        self._url = _checked(url, setting)
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._timeout_seconds = timeout_ms / 1000

    async def post(self, content: object) -> tuple[int, bytes]:
        """Status and body; raises ``Unavailable`` if there is no answer in time, or one that is too long."""
        status, body = await self._exchange(content, {})
        if len(body) > ANSWER_BYTES_MAX:
            raise Unavailable(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        return status, body

    async def post_for_status(self, content: object, headers: dict[str, str]) -> int:
        """The status alone, however long the answer is: not much more of it than the bound is read."""
        return (await self._exchange(content, headers))[0]

    async def _exchange(self, content: object, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._send(json.dumps(content, ensure_ascii=False).encode(), headers)
        except TimeoutError:
            raise Unavailable(f"no answer within {self._timeout_seconds:g} s") from None
        except (OSError, h11.ProtocolError) as error:
            raise Unavailable(str(error) or type(error).__name__) from error

    async def _send(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        url = self._url
        assert url.hostname is not None
        port = url.port or (443 if self._tls else 80)
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=self._tls)
        try:
            client = h11.Connection(h11.CLIENT)
            writer.write(_request(client, url, body, headers))
            await writer.drain()
            return await _answer(client, reader)
        finally:
            writer.close()


async def get(url: str, *, timeout_seconds: float, bytes_max: int = ANSWER_BYTES_MAX) -> tuple[int, bytes]:
    """Status and body of a page; raises ``Unavailable`` if there is no answer in time, or one that is too long."""
    split = _checked(url, "the address")
    assert split.hostname is not None
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(split.hostname, split.port or 80)
            try:
                client = h11.Connection(h11.CLIENT)
                head = h11.Request(
                    method="GET", target=split.path or "/", headers=[("Host", split.netloc), ("Connection", "close")]
                )
                writer.write(client.send(head) + client.send(h11.EndOfMessage()))
                status, body = await _answer(client, reader, bytes_max)
            finally:
                writer.close()
    except TimeoutError:
        raise Unavailable(f"no answer within {timeout_seconds:g} s") from None
    except (OSError, h11.ProtocolError) as error:
        raise Unavailable(str(error) or type(error).__name__) from error
    if len(body) > bytes_max:
        raise Unavailable(f"the answer has more than {bytes_max} bytes")
    return status, body


def _checked(url: str, setting: str) -> SplitResult:
    try:
        split = urlsplit(url)
        is_good = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
        is_good = is_good and split.username is None
    except ValueError:
        is_good = False
    if not is_good or any(ord(character) <= 32 for character in url):
        raise ConfigError(f"{setting} must be an http or https URL without credentials, not {url!r}")
    return split


def _request(client: h11.Connection, url: SplitResult, body: bytes, headers: dict[str, str]) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = h11.Request(
        method="POST",
        target=target,
        headers=[
            ("Host", url.netloc),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            *headers.items(),
            ("Connection", "close"),
        ],
    )
    return client.send(head) + client.send(h11.Data(data=body)) + client.send(h11.EndOfMessage())


async def _answer(
    client: h11.Connection, reader: asyncio.StreamReader, bytes_max: int = ANSWER_BYTES_MAX
) -> tuple[int, bytes]:
    """Status and body, of which no more is read once it is longer than the bound."""
    status, body = 0, b""
    while len(body) <= bytes_max:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            break
    if not status:
        raise h11.RemoteProtocolError("the server sent no answer")
    return status, body
