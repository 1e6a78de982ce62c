"""Connections that this node opens to others."""

from typing import Protocol


class Receiver(Protocol):
    """Whoever opened a connection: told what becomes of it."""

    def opened(self, link: "Link") -> None:
        """The connection is there; write to it."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        ...

    def lost(self, reason: str) -> None:
        """It could not be made, or has ended. Told once; not told after ``close``."""
        ...


class Link(Protocol):
    """One connection to another node."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def close(self) -> None:
        """End it; the receiver hears no more."""
        ...


class Links(Protocol):
    """A way to reach other nodes."""

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> Link:
        """Begin to connect to ``HOST:PORT``."""
        ...
