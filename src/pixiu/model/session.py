"""Sessions: one authenticated connection of one client."""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["PlatformPolicy", "Session"]


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


@dataclass(frozen=True, slots=True)
class PlatformPolicy:
    """How many sessions a platform may have per user, and what is kept for it while it is away."""

    sessions_max: int = 1
    """1: a new login kicks the older one. N: the oldest beyond N is kicked. The same device always replaces itself."""
    offline_max: int = 10_000
    """Keep the newest this many; -1 keeps all."""
    notify: bool = True
