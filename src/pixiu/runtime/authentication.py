"""Authentication by a server of yours (P24).

::

    POST /your/path            {"token": "…"}
    200                        {"user": "alice", "platform": "web", "device": "d1", "admin": false}
    401 or 403                 nobody knows it: Unauthenticated

Every other answer, and none in time, is ``Unavailable``: the caller may try again. An answer is good for a short,
bounded time; many who ask about one token at once are one request. Tokens that a key of this node claims to have signed
are decided here: operators come in while your server is down.
"""

from __future__ import annotations

import asyncio
import json
import logging
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import Overloaded, PixiuError, RequestError, Unavailable
from pixiu.ports.authentication import Identity
from pixiu.runtime.http_client import JsonPoster
from pixiu.runtime.tokens import TOKEN_BYTES_MAX, TokenRefused, checked_identity, remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.security import SecuritySettings
    from pixiu.ports.authentication import Authentication
    from pixiu.ports.clock import Clock
    from pixiu.runtime.tokens import Tokens

__all__ = ["AskedAuthentication", "make_authentication"]

log = logging.getLogger(__name__)

ASKED_MAX = 64
"""Questions on their way at a time; more are refused as busy."""
REMEMBERED_MAX = 10_000
REFUSAL_MS_MAX = 5_000
"""A refused token may be accepted again a little later: it may have been made a moment ago."""


def make_authentication(tokens: Tokens, clock: Clock, settings: SecuritySettings) -> Authentication:
    """What the settings ask for: the keys of this node, or your server with them."""
    if not settings.auth_url:
        return tokens
    return AskedAuthentication(asyncio.get_running_loop(), clock, settings, tokens)


class _Known(NamedTuple):
    answer: Identity | TokenRefused
    until_us: int


class AskedAuthentication:
    """``Authentication`` over HTTP, on an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: SecuritySettings,
        tokens: Tokens | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._cache_ms = settings.auth_cache_ms
        self._poster = JsonPoster(settings.auth_url, setting="security.auth_url", timeout_ms=settings.auth_timeout_ms)
        self._tokens = tokens
        self._known: dict[bytes, _Known] = {}
        self._waiting: dict[bytes, list[Callable[[Identity | PixiuError], object]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        """Answer from memory, or ask."""
        if not token or len(token) > TOKEN_BYTES_MAX or not token.isascii():
            done(TokenRefused("malformed" if token else "missing"))
            return
        if self._tokens is not None and self._tokens.knows(token):
            self._tokens.authenticate(token, done)
            return
        digest = sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._clock.monotonic_us() < known.until_us:
            done(known.answer)
        elif digest in self._waiting:
            self._waiting[digest].append(done)
        elif len(self._tasks) >= ASKED_MAX:
            done(Overloaded(f"{ASKED_MAX} questions to security.auth_url wait already", retry_after_ms=1000))
        else:
            self._waiting[digest] = [done]
            task = self._loop.create_task(self._ask(token, digest))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, token: str, digest: bytes) -> None:
        answer: Identity | PixiuError
        try:
            answer = _understood(*await self._poster.post({"token": token}))
        except PixiuError as error:
            log.warning("authentication server failed", extra={"reason": str(error)})
            answer = Unavailable("the authentication server does not answer; try again", retry_after_ms=1000)
        if isinstance(answer, Identity | TokenRefused):
            good_ms = self._cache_ms if isinstance(answer, Identity) else min(self._cache_ms, REFUSAL_MS_MAX)
            until_us = self._clock.monotonic_us() + good_ms * 1000
            remember(self._known, digest, _Known(answer, until_us), REMEMBERED_MAX)
        for done in self._waiting.pop(digest):
            done(answer)


def _understood(status: int, body: bytes) -> Identity | TokenRefused:
    """What the server says; raises if that makes no sense."""
    if status in (401, 403):
        return TokenRefused("refused")
    if status != 200:
        raise Unavailable(f"it answered with status {status}")
    try:
        said = json.loads(body)
        user, platform = said["user"], said.get("platform", "web")
        device, is_admin = said.get("device", ""), said.get("admin", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unavailable("its answer is not as agreed") from None
    if type(user) is not str or type(platform) is not str or type(device) is not str or type(is_admin) is not bool:
        raise Unavailable("its answer has fields of wrong types")
    try:
        return checked_identity(Identity(user, platform, device, is_admin))
    except RequestError as error:
        raise Unavailable(f"its answer is not as agreed: {error}") from error
