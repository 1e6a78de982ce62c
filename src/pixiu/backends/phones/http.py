"""HTTP/2 for the providers: one connection each, many requests on it at a time."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.config.phones import PhoneSettings

__all__ = ["HttpAnswer", "HttpConnection", "checked_url"]

ANSWER_BYTES_MAX = 64 * 1024
WHOLE_FACTOR = 4
"""A request as a whole may take this many times as long as each step of it: connecting, sending, silence."""


class HttpAnswer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None


class HttpConnection:
    """To one server: kept, opened again when it is lost. Redirects are not followed, proxies of the shell not used."""

    def __init__(self, settings: PhoneSettings, *, connections_max: int = 1) -> None:
        """More than one connection is of use to servers that do not speak HTTP/2."""
        try:
            import h2  # noqa: F401 - httpx says so only when it is too late
            import httpx
        except ImportError as error:
            needed = f"phones need the package {error.name}; install it with: {how_to_install('phones')}"
            raise ConfigError(needed) from error
        self._httpx = httpx
        self._timeout_seconds = settings.timeout_ms / 1000
        try:
            trust = ssl.create_default_context(cafile=settings.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"phones.ca_file: cannot use {settings.ca_file}: {error}") from None
        self._client = httpx.AsyncClient(
            http2=True,
            verify=trust,
            timeout=self._timeout_seconds,
            limits=httpx.Limits(max_connections=connections_max, keepalive_expiry=3600),
            trust_env=False,
        )

    async def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Raises ``Unavailable`` if there is no answer in time, or none that makes sense."""
        try:
            # Each step has its time, after which the connection counts as dead and is closed; this is the last resort.
            async with asyncio.timeout(WHOLE_FACTOR * self._timeout_seconds):
                async with self._client.stream("POST", url, content=content, headers=dict(headers)) as answer:
                    body = b""
                    async for piece in answer.aiter_bytes():
                        body += piece
                        if len(body) > ANSWER_BYTES_MAX:
                            break
                    return HttpAnswer(answer.status_code, body, answer.headers.get("retry-after"))
        except (TimeoutError, self._httpx.TimeoutException):
            raise Unavailable(f"no answer within {self._timeout_seconds:g} s") from None
        except self._httpx.HTTPError as error:
            raise Unavailable(f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


def checked_url(url: str, setting: str) -> str:
    """A URL without its last slash. Raises ``ConfigError`` for what is none."""
    try:
        split = urlsplit(url)
        is_good = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
        is_good = is_good and split.username is None and not split.query
    except ValueError:
        is_good = False
    if not is_good or any(ord(character) <= 32 for character in url):
        raise ConfigError(f"{setting} must be an http or https URL without credentials, not {url!r}")
    return url.rstrip("/")
