"""Datagrams: small, quick, and without any promise."""

from collections.abc import Callable
from typing import Protocol

__all__ = ["Datagrams"]


class Datagrams(Protocol):
    """One socket. What is received is told to whoever made it, with the address it came from (``HOST:PORT``)."""

    is_full: bool
    """The system takes no more for now; ``when_free`` is called once when it does again."""
    when_free: Callable[[], object]

    def send(self, address: str, data: bytes) -> bool:
        """Send one, or not: it may be lost in any case. False if the system takes no more for now."""
        ...
