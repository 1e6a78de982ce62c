"""What strangers can make the HTTP server say as often as they like: at once for the first, then now and then.

uvicorn warns of every request that is none, and gives advice about its own packages to whoever asks for an upgrade it
does not know. A port scan would fill the log with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Strays", "UvicornLog"]

log = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0
NO_REQUEST = "Invalid HTTP request received."


class Strays:
    """Those of one server."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now`` gives seconds, as a loop does."""
        self._now = now
        self._counts: dict[str, int] = {}
        self._said_at: dict[str, float] = {}
        """By what is said: there are a handful of sentences."""

    def note(self, what: str, address: str = "") -> None:
        """One more of these."""
        self._counts[what] = count = self._counts.get(what, 0) + 1
        now = self._now()
        if what in self._said_at and now - self._said_at[what] < AGAIN_SECONDS:
            return
        log.warning(what, extra={"count": count} | ({"peer": address} if address else {}))
        self._counts[what], self._said_at[what] = 0, now


class UvicornLog:
    """What uvicorn takes for its logger: errors are said, warnings now and then, the rest to nobody."""

    level = logging.WARNING

    def __init__(self, strays: Strays) -> None:
        self._strays = strays

    def warning(self, message: str, *_: Any) -> None:
        """Of something that a stranger did. What is no request the connection says itself, with its address."""
        if message != NO_REQUEST:
            self._strays.note(message.rstrip(".").lower())

    def error(self, message: str, *words: Any, exc_info: BaseException | None = None) -> None:
        """Of something that went wrong here."""
        log.error(message.strip(), *words, exc_info=exc_info)
