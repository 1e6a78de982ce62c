"""How patient a session is, where it stands, and its errors by their codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from pixiu.machines.client_session.values import number, text
from pixiu.model.errors import (
    Conflict,
    NotAllowed,
    NotFound,
    Overloaded,
    PixiuError,
    RateLimited,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

__all__ = ["ClientRules", "State", "error_of", "why_refused"]

_ERRORS: dict[str, type[PixiuError]] = {
    kind.code: kind for kind in (RequestError, Unauthenticated, NotAllowed, NotFound, Conflict, TooLarge)
}
_LATER: dict[str, type[Unavailable]] = {kind.code: kind for kind in (Unavailable, Overloaded, RateLimited)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """How patient a client is, and how much it remembers. Times in milliseconds."""

    retry_ms: int = 200
    retry_ms_max: int = 30_000
    stable_ms: int = 5_000
    """A connection that stood this long was a good one: the next wait is short again."""
    open_ms: int = 15_000
    """From the start of a connection to its first push."""
    ping_ms: int = 30_000
    """Ask for a sign of life after so much silence."""
    seen_max: int = 10_000


class State(Enum):
    """Where a session stands."""

    IDLE = "idle"
    CONNECTING = "connecting"
    LIVE = "live"
    WAITING = "waiting"
    ENDED = "ended"


def error_of(said: dict[str, Any]) -> PixiuError:
    """The error that an answer tells, of the one tree."""
    code, message = text(said.get("code")), text(said.get("message"))
    if code in _LATER:
        return _LATER[code](message, retry_after_ms=number(said.get("retry_after_ms")))
    return _ERRORS.get(code, PixiuError)(message)


def why_refused(reason: str, *, was_live: bool) -> str:
    """Only a token that was good before is taken no more."""
    if reason == "expired":
        return "the server does not take this token any more: it has expired"
    return (
        f"the server does not take this token{' any more' if was_live else ': is it of this server, and not expired?'}"
    )
