"""Whose token is this?"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pixiu.model.errors import PixiuError

__all__ = ["Authentication", "Identity"]


class Identity(NamedTuple):
    """Whom a token names. What a caller does is done as this user, whatever else the request says."""

    user: str
    """The public id. An admin's may belong to no user: then it is a publisher."""
    platform: str = "web"
    device: str = ""
    is_admin: bool = False
    expires_at: int = 0
    """Milliseconds since the epoch; 0 is not known."""


class Authentication(Protocol):
    """Decides about tokens: by keys of its own, or by asking someone."""

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        """Tell ``done`` whose it is, or ``Unauthenticated``, or ``Unavailable``. May do so before it returns."""
        ...
