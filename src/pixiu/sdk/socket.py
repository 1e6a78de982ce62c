"""One WebSocket of a client, on whatever loop the program runs: callbacks, no task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from picows import WSCloseCode, WSFrame, WSHandshakeError, WSListener, WSMsgType, WSTransport, ws_connect

from pixiu.model.errors import ConfigError, PixiuError, RateLimited, RequestError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["Socket", "open_socket", "websocket_url"]

FRAME_BYTES_MAX = 64 * 2**20
"""A page of a hundred of the largest messages fits."""
CUT = 1006
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def websocket_url(url: str) -> str:
    """Where the WebSocket is: ``ws://HOST:PORT`` is enough, and http works as well. Raises ``ConfigError``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = None
        parts = urlsplit("")
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise ConfigError(f"a server is named as ws://HOST:PORT or wss://HOST, not {url!r}")
    return urlunsplit((scheme, parts.netloc, parts.path if parts.path not in ("", "/") else "/ws", "", ""))


class Socket(WSListener):
    """Hands frames and the end to two callables, until it is dropped."""

    def __init__(self, received: Callable[[bytes], object], closed: Callable[[int, str], object]) -> None:
        self._received = received
        self._closed = closed
        self._transport: WSTransport | None = None
        self._code, self._reason = CUT, ""
        self._is_over = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The handshake is done."""
        self._transport = transport
        if self._is_over:
            self._leave()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """A frame is here. A server of ours never splits one."""
        if self._is_over:
            return
        if frame.msg_type == WSMsgType.TEXT and frame.fin:
            self._received(frame.get_payload_as_bytes())
        elif frame.msg_type == WSMsgType.CLOSE:
            payload = frame.get_payload_as_bytes()
            if len(payload) >= 2:
                self._code, self._reason = int.from_bytes(payload[:2]), payload[2:].decode(errors="replace")
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """It is over."""
        if not self._is_over:
            self._is_over = True
            self._closed(self._code, self._reason)

    def write(self, payload: bytes) -> None:
        """Send a text frame."""
        if self._transport is not None and not self._is_over:
            self._transport.send(WSMsgType.TEXT, payload)

    def hush(self, *, is_hushed: bool) -> None:
        """Read nothing for a while, or go on."""
        if self._transport is not None and not self._is_over:
            reader = self._transport.underlying_transport
            if is_hushed:
                reader.pause_reading()
            else:
                reader.resume_reading()

    def drop(self) -> None:
        """End it from here, after what was written; nothing more is told."""
        if not self._is_over:
            self._is_over = True
            self._leave()

    def cut(self) -> None:
        """End it without a word, as a network does."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    async def gone(self, seconds: float) -> None:
        """Wait a little until the server has had the last word; then cut."""
        if self._transport is not None:
            try:
                await asyncio.wait_for(self._transport.wait_disconnected(), seconds)
            except TimeoutError:
                self.cut()

    def _leave(self) -> None:
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()


async def open_socket(
    socket: Socket, url: str, token: str, cursor: int, *, tls: ssl.SSLContext | None, timeout_seconds: float
) -> None:
    """Connect. Raises what a session can be told: ``Unavailable``, ``Unauthenticated``, ``RequestError``."""
    target = f"{url}?cursor={quote(str(cursor))}" if cursor else url
    headers = {"Authorization": f"Bearer {token}", "Sec-WebSocket-Protocol": "pixiu.json.v1"}
    try:
        await ws_connect(
            lambda: socket,
            target,
            ssl_context=tls,
            websocket_handshake_timeout=timeout_seconds,
            enable_auto_ping=False,
            enable_auto_pong=True,
            max_frame_size=FRAME_BYTES_MAX,
            extra_headers=headers,
            max_redirects=0,  # a token goes where it was meant to go
        )
    except WSHandshakeError as error:
        raise _refusal(url, error) from error
    except (OSError, TimeoutError, EOFError) as error:
        raise Unavailable(f"no answer from {url}: {str(error) or type(error).__name__}") from error


def _refusal(url: str, error: WSHandshakeError) -> PixiuError:
    response = error.response
    status = 0 if response is None else int(response.status)
    said = (error.raw_body or b"").decode(errors="replace").strip()[:200] or str(error)
    later = response.headers.get("Retry-After", "") if response is not None else ""
    retry_after_ms = int(later) * 1000 if later.isdecimal() and len(later) < 7 else 0
    if status == 429:
        return RateLimited(said, retry_after_ms=retry_after_ms)
    if status in (401, 403):
        return Unauthenticated(said)
    if 400 <= status < 500:
        return RequestError(f"{url} refuses this client ({status}): {said}")
    return Unavailable(f"no connection to {url}: {said}", retry_after_ms=retry_after_ms)
