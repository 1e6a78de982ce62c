"""Around every request: how often, how long, what goes out with it, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pixiu.api.answers import error_answer, refusal
from pixiu.model.errors import CorruptData, PixiuError, RequestError, Unavailable
from pixiu.model.hosts import host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pixiu.api.metrics import HttpCounters

__all__ = ["API_POLICY", "Guard"]

log = logging.getLogger(__name__)

API_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""An answer of the API is never a page."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
WEBSOCKET_PATH = "/ws"
ADMIN_PATHS = "/v1/admin/"
_NO_UPGRADE = (
    f"{WEBSOCKET_PATH} is for WebSockets, and this request asks for none; "
    "a proxy in front has to pass Upgrade and Connection on"
)
_NOT_FIRST = "a WebSocket begins on a connection of its own, which has carried no other request: open a new one"
_FOR_A_YEAR = (b"strict-transport-security", b"max-age=31536000")


class Guard:
    """The outermost ASGI application. Nothing but an answer leaves it, and no answer without its headers."""

    def __init__(
        self,
        app: ASGIApp,
        counters: HttpCounters,
        *,
        admit: Callable[[str], object],
        timeout_seconds: float,
        longer: Mapping[str, float],
        policy: Callable[[str], str],
    ) -> None:
        """``admit`` raises for an address that asks too often. ``longer`` has paths with a timeout of their own.

        ``policy`` gives the Content-Security-Policy of a path.
        """
        self._app = app
        self._counters = counters
        self._admit = admit
        self._timeout_seconds = timeout_seconds
        self._longer = longer
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Routes then raise what they do not know, instead of answering in their own words.
        scope["app"] = self
        scope["pixiu.is_read"] = scope["method"] in ("GET", "HEAD", "OPTIONS")
        sending = _Sending(scope, send, self._counters, policy=self._policy(scope["path"]))
        self._counters.in_flight += 1
        try:
            answer = await self._answered(scope, receive, sending)
            if answer is not None:
                await answer(scope, receive, sending)
        finally:
            self._counters.in_flight -= 1

    async def _answered(self, scope: Scope, receive: Receive, sending: _Sending) -> Response | None:
        """Run the application; the answer to what went wrong, where there is still one to give."""
        seconds = self._longer.get(scope["path"], self._timeout_seconds)
        try:
            _check_head(scope)
            self._admit(scope["client"][0] if scope.get("client") else "")
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, sending)
        except ClientDisconnect:
            return None
        except TimeoutError:
            if sending.has_started:
                raise
            self._counters.timeouts += 1
            slow = Unavailable(f"no answer within {seconds:g} s; what was asked may still be done", retry_after_ms=1000)
            return error_answer(slow, is_read=False)
        except PixiuError as error:
            if error.code == "internal":
                log.exception("request failed", extra={"path": scope["path"]})
            if isinstance(error, CorruptData) and scope["path"].startswith(ADMIN_PATHS):
                error = Unavailable(str(error))  # an admin needs the file, the byte and the remedy
            return error_answer(error, is_read=scope["pixiu.is_read"])
        except HTTPException as error:
            return _routing_answer(error, scope)
        except Exception:
            if sending.has_started:
                raise
            log.exception("request failed", extra={"path": scope["path"]})
            return refusal(500, "internal", "the request failed; the log says why", {"Connection": "close"})
        return None


def _check_head(scope: Scope) -> None:
    """Refuse a malformed Host, and a body with a length and in chunks, which a proxy may have read differently."""
    headers = dict(scope["headers"])  # the server has refused a second Host
    try:
        host_name(headers.get(b"host", b"").decode("latin-1"))
    except ValueError as error:
        raise RequestError(str(error)) from None
    if b"transfer-encoding" in headers and b"content-length" in headers:
        scope["pixiu.is_read"] = False  # the rest of this connection may be part of the body
        raise RequestError("a body has a Content-Length or a Transfer-Encoding, not both")


class _Sending:
    """``send`` with the headers of every answer."""

    def __init__(self, scope: Scope, send: Send, counters: HttpCounters, *, policy: str) -> None:
        self._scope = scope
        self._send = send
        self._counters = counters
        self._policy = policy
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self._counters.answered(message["status"])
            headers = list(message.get("headers", ()))
            headers += _HEADERS
            headers.append((b"content-security-policy", self._policy.encode()))
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            if self._scope.get("scheme") == "https":
                headers.append(_FOR_A_YEAR)
            message = {**message, "headers": headers}
        await self._send(message)


def _no_websocket(scope: Scope, headers: dict[str, str]) -> Response:
    """Upgrades are taken before a request comes here, on a connection that begins with one."""
    if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
        return refusal(400, "bad_request", _NOT_FIRST, headers | {"Connection": "close"})
    return refusal(426, "bad_request", _NO_UPGRADE, headers | {"Upgrade": "websocket"})


def _routing_answer(error: HTTPException, scope: Scope) -> Response:
    """There is no such path, or not with this method."""
    headers = dict(error.headers or {})
    if not scope["pixiu.is_read"]:
        headers["Connection"] = "close"
    path, method = scope["path"][:200], scope["method"][:20]
    if error.status_code == 405:
        allowed = sorted(each.strip() for each in headers.get("Allow", "GET").split(","))
        headers["Allow"] = ", ".join(allowed)
        use = "POST with a JSON object as body" if "POST" in allowed else allowed[0]
        return refusal(405, "bad_request", f"{path} takes {headers['Allow']}, not {method}: use {use}", headers)
    if error.status_code == 404 and path == WEBSOCKET_PATH:
        return _no_websocket(scope, headers)
    if error.status_code == 404:
        return refusal(404, "not_found", f"there is no {path} here; /openapi.json says what there is", headers)
    return refusal(error.status_code, "bad_request", str(error.detail), headers)
