"""Sessions: one authenticated connection of one client."""

from typing import NamedTuple

__all__ = ["Session"]


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
