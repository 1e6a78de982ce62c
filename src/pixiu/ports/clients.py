"""Between a gateway and whatever carries its clients' bytes: sockets, or a test."""

from collections.abc import Callable
from typing import Protocol

from pixiu.model.errors import PixiuError
from pixiu.model.session import LogoutCause

__all__ = ["ClientTransport", "Clients", "CloseCode", "ConnectedClient"]


class CloseCode:
    """Why a connection was closed by the server, as a WebSocket says it."""

    GOING_AWAY = 1001
    """The server stops: reconnect, to another one if there is one."""
    TOO_LARGE = 1009
    INTERNAL = 1011
    TRY_LATER = 1013
    """Something that is needed is down: reconnect later."""
    BAD_REQUEST = 4400
    UNAUTHENTICATED = 4401
    """The token is missing, wrong or too old: get another."""
    KICKED = 4403
    """The push before it has the reason. After ``new_session`` do not reconnect by yourself."""
    IDLE = 4408
    """No sign of life for too long."""
    TOO_MANY = 4429
    """Too many connections, or too often: wait, then reconnect."""


class ClientTransport(Protocol):
    """One client's socket, seen from the gateway."""

    def write(self, data: bytes) -> None:
        """Send bytes that are frames already."""
        ...

    def close(self, code: int, reason: str) -> None:
        """End it, after what was written. A peer that takes too long to take it is cut off."""
        ...

    def pause_reading(self) -> None:
        """Take no more from this client."""
        ...

    def resume_reading(self) -> None:
        """Go on."""
        ...

    def pending(self) -> int:
        """Bytes that were written and that the system has not taken yet."""
        ...

    def outstanding(self) -> int:
        """Bytes that were written and that the client's system has not taken yet, as far as that is known."""
        ...


class ConnectedClient(Protocol):
    """A gateway's end of a connection, seen from the socket. Nothing here raises."""

    def received(self, payload: bytes, *, is_text: bool) -> None:
        """One whole frame."""
        ...

    def heard(self) -> None:
        """A sign of life that is no frame."""
        ...

    def failed(self, error: PixiuError) -> None:
        """What the client sent is no frame."""
        ...

    def pause_writing(self) -> None:
        """The socket is full."""
        ...

    def resume_writing(self) -> None:
        """The socket has room again."""
        ...

    def lost(self, cause: LogoutCause = "quit") -> None:
        """The connection is gone. Told once, whoever ended it."""
        ...


class Clients(Protocol):
    """A gateway, seen from the sockets."""

    frame_bytes_max: int

    def refusal(self, address: str) -> PixiuError | None:
        """Why nobody may connect from this address now; None: welcome."""
        ...

    def open(
        self, transport: ClientTransport, *, codec: str, is_websocket: bool, token: str, cursor: int, address: str
    ) -> ConnectedClient:
        """A client is here. Its token is checked before anything else."""
        ...

    def drain(self, done: Callable[[], object]) -> None:
        """Send everyone away, a batch at a time; then ``done``."""
        ...
