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
    key: str = ""
    """The signing key that verified the token: its id and a digest of it. Empty if a server decided."""
    token: str = ""
    """The token itself if a server decided about it, so that the server can be asked again."""

    def __repr__(self) -> str:
        """Without the token, which must not reach a log."""
        return f"Identity({self.user!r}, {self.platform!r}, {self.device!r}, {self.is_admin}, {self.expires_at})"


class Authentication(Protocol):
    """Decides about tokens: by keys of its own, or by asking a server."""

    @property
    def generation(self) -> int:
        """Rises with every change of the keys: every identity that a key verified must then be rechecked."""
        ...

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        """Tell ``done`` whose it is, or ``Unauthenticated``, or ``Unavailable``. May do so before it returns."""
        ...

    def recheck(self, identity: Identity, done: Callable[[Identity | PixiuError], object]) -> None:
        """Decide again about an identity that ``authenticate`` gave; answers as ``authenticate`` does.

        The cost is a dictionary lookup if a key verified the token (``identity.key``), and a request to the server
        otherwise.
        """
        ...
