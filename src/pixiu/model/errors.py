"""The one error tree. Each name tells whoever catches it what to do next.

::

    PixiuError
    ├── ProtocolError
    │   ├── LocalProtocolError     we broke the protocol: a bug of ours       crash this role
    │   └── RemoteProtocolError    the peer did                               close the connection
    ├── RequestError               well-formed, refused; has a wire code      answer the caller
    │   ├── NotFound  NotAllowed  Conflict  TooLarge  Gone
    │   └── Unauthenticated        nobody knows who asks                      log in, ask again
    ├── Unavailable                later, or elsewhere (retry_after_ms)       retry with backoff
    │   ├── Overloaded             shed load
    │   ├── RateLimited            this caller asks too often                 wait retry_after_ms
    │   └── NotLeader              carries the leader's address               go there
    ├── CorruptData                read is not what was written               quarantine, ask a replica
    └── ConfigError                refuse to start                            exit 2 with the key's path

A message names the thing, the value and the bound. Drivers' exceptions never cross a port: backends translate
them into this tree.
"""

from typing import ClassVar

__all__ = [
    "ConfigError",
    "Conflict",
    "CorruptData",
    "Gone",
    "LocalProtocolError",
    "NotAllowed",
    "NotFound",
    "NotLeader",
    "Overloaded",
    "PixiuError",
    "ProtocolError",
    "RateLimited",
    "RemoteProtocolError",
    "RequestError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
]


class PixiuError(Exception):
    """Everything that Pixiu raises on purpose."""

    code: ClassVar[str] = "internal"
    """What a caller on the network is told; a fixed, small set."""


class ProtocolError(PixiuError):
    """Bytes or calls that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """We broke the protocol. A bug of ours: crash this role rather than go on."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol. Close its connection."""

    code = "bad_request"


class RequestError(PixiuError):
    """Well-formed, and refused. Answer the caller; asking again gives the same answer."""

    code = "bad_request"


class NotFound(RequestError):
    """There is no such thing."""

    code = "not_found"


class NotAllowed(RequestError):
    """It is there, and this caller may not have it."""

    code = "forbidden"


class Conflict(RequestError):
    """It clashes with what is there already."""

    code = "conflict"


class TooLarge(RequestError):
    """Over a stated limit."""

    code = "too_large"


class Gone(RequestError):
    """It was there and was removed, by retention or deletion."""

    code = "not_found"


class Unauthenticated(RequestError):
    """Nobody knows who asks: the token is missing, wrong or too old, or names no user."""

    code = "unauthenticated"


class Unavailable(PixiuError):
    """Not now, or not here. Retry with backoff."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Overloaded(Unavailable):
    """Too much is waiting already; nothing was taken in."""

    code = "busy"


class RateLimited(Unavailable):
    """This caller asks more often than it may; nothing was taken in. Wait ``retry_after_ms``."""

    code = "rate_limited"


class NotLeader(Unavailable):
    """Only the leader does this. ``leader`` is its address, where it is known."""

    def __init__(self, message: str, *, leader: str | None = None, retry_after_ms: int = 0) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)
        self.leader = leader


class CorruptData(PixiuError):
    """What was read is not what was written. Never serve it; name the file and the position."""

    def __init__(self, message: str, *, path: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.position = position


class ConfigError(PixiuError):
    """The settings are wrong: refuse to start, and name the key."""

    code = "bad_request"
