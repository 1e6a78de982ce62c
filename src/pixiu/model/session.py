"""Sessions: one authenticated connection of one client."""

from typing import Literal, NamedTuple, get_args

__all__ = ["LOGOUT_CAUSES", "LogoutCause", "Session"]

LogoutCause = Literal["quit", "timeout", "send_error", "server"]
"""Why a session ends: its client has closed it; nothing was heard of it; what was sent to it did not arrive; the server
decided it (a kick, a token that ended, a shutdown)."""
LOGOUT_CAUSES: frozenset[LogoutCause] = frozenset(get_args(LogoutCause))


class Session(NamedTuple):
    """Who is connected where. ``number`` rises with each login of a user: the newest session has the largest."""

    session_id: int
    user: int
    platform: str
    device: str
    number: int
    gateway: str
    epoch: int
    """The gateway's life that this session belongs to: when the gateway has a newer one, the session is dead."""
