"""Authentication by a server of yours (P24).

::

    POST /your/path            {"token": "…"}
    200                        {"user": "alice", "platform": "web", "device": "d1", "admin": false, "expires_at": …}
    401 or 403                 the token is not valid: Unauthenticated

Every other answer, and none in time, is ``Unavailable``: the caller may try again. New logins may reuse an answer for
``auth_cache_ms``; a recheck of an open session always asks. Concurrent requests about one token are one request.
An identity expires ``auth_identity_ms`` after it was confirmed, or at ``expires_at`` if that is earlier. Tokens whose
header names a key of this node are verified here, so that operators can log in while your server is down.
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
        self._identity_ms = settings.auth_identity_ms
        self._is_failing = False
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
        if known is not None and self._clock.monotonic_us() < known.until_us and not self._has_expired(known.answer):
            done(known.answer)
        else:
            self._ask_once(token, digest, done)

    @property
    def generation(self) -> int:
        """``Authentication``: rises with every change of the keys."""
        return 0 if self._tokens is None else self._tokens.generation

    def recheck(self, identity: Identity, done: Callable[[Identity | PixiuError], object]) -> None:
        """``Authentication``: the keys decide about their own tokens; about the others the server is asked again."""
        if identity.token:
            self._ask_once(identity.token, sha256(identity.token.encode()).digest(), done)
        elif self._tokens is not None:
            self._tokens.recheck(identity, done)

    def _has_expired(self, answer: Identity | TokenRefused) -> bool:
        return isinstance(answer, Identity) and answer.expires_at <= self._clock.now_ms()

    def _ask_once(self, token: str, digest: bytes, done: Callable[[Identity | PixiuError], object]) -> None:
        """Ask, or wait for the answer to the same question."""
        if digest in self._waiting:
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
            answer = self._identity(token, *await self._poster.post({"token": token}))
        except PixiuError as error:
            if not self._is_failing:  # one line per outage, not one per request
                self._is_failing = True
                log.warning("auth_url_failed", extra={"reason": str(error)})
            answer = Unavailable("the authentication server does not answer; try again", retry_after_ms=1000)
        else:
            if self._is_failing:
                self._is_failing = False
                log.info("auth_url_recovered")
        if isinstance(answer, Identity | TokenRefused):
            good_ms = self._cache_ms if isinstance(answer, Identity) else min(self._cache_ms, REFUSAL_MS_MAX)
            until_us = self._clock.monotonic_us() + good_ms * 1000
            remember(self._known, digest, _Known(answer, until_us), REMEMBERED_MAX)
        for done in self._waiting.pop(digest):
            done(answer)

    def _identity(self, token: str, status: int, body: bytes) -> Identity | TokenRefused:
        """The server's answer, with the time at which it ends; raises ``Unavailable`` if it is not as agreed."""
        if status in (401, 403):
            return TokenRefused("refused")
        if status != 200:
            raise Unavailable(f"it answered with status {status}")
        identity = _understood(body)
        now_ms = self._clock.now_ms()
        if identity.expires_at and identity.expires_at <= now_ms:
            return TokenRefused("expired")
        latest = now_ms + self._identity_ms
        return identity._replace(expires_at=min(identity.expires_at or latest, latest), token=token)


def _understood(body: bytes) -> Identity:
    """What the server says; raises ``Unavailable`` if that makes no sense."""
    try:
        said = json.loads(body)
        user, platform = said["user"], said.get("platform", "web")
        device, is_admin = said.get("device", ""), said.get("admin", False)
        expires_at = said.get("expires_at", 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unavailable("its answer is not as agreed") from None
    if type(user) is not str or type(platform) is not str or type(device) is not str or type(is_admin) is not bool:
        raise Unavailable("its answer has fields of wrong types")
    if type(expires_at) is not int or expires_at < 0:
        raise Unavailable("expires_at in its answer is not a time in milliseconds")
    try:
        return checked_identity(Identity(user, platform, device, is_admin, expires_at))
    except RequestError as error:
        raise Unavailable(f"its answer is not as agreed: {error}") from error
