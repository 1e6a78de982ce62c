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


class WatchedLink(Link, Protocol):
    """A connection whose output can be looked at, so that it can have a bound."""

    def pending(self) -> int:
        """Bytes that were written and that the system has not taken yet."""
        ...


class WatchedReceiver(Protocol):
    """The end of a ``WatchedLink``; also told when much waits in it."""

    def opened(self, link: WatchedLink) -> None:
        """The connection is there; write to it."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes from the peer."""
        ...

    def paused(self) -> None:
        """More waits than the peer takes."""
        ...

    def resumed(self) -> None:
        """It takes it again."""
        ...

    def lost(self, reason: str) -> None:
        """It could not be made, or has ended. Told once; not told after ``close``."""
        ...


class Links(Protocol):
    """A way to reach other nodes."""

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> Link:
        """Begin to connect to ``HOST:PORT``."""
        ...
