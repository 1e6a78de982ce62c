"""What a gateway needs of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pixiu.im.draft import Answer
from pixiu.model.errors import PixiuError
from pixiu.ports.authentication import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Actor, Params
    from pixiu.machines.delivery import Push
    from pixiu.model.session import LogoutCause, Session
    from pixiu.roles.gateway.connection import Connection

__all__ = ["Authenticate", "Done", "LinkOwner", "LiveCaller", "LiveGateway", "LocalAction", "Messaging", "SessionSink"]

Done = Callable[[Answer | PixiuError], object]
"""Told the answer, or the error; exactly once."""


class SessionSink(Protocol):
    """Where the relay puts what is for a client; the relay's own ``Sink`` says what it promises."""

    def push(self, session_id: int, pushes: list[Push]) -> None: ...
    def event(self, session_id: int, event: Mapping[str, object]) -> None: ...
    def close(self, session_id: int, reason: str) -> None: ...


class Messaging(Protocol):
    """Proxy and relay, here or elsewhere."""

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Do what a user asks for."""
        ...

    def connect(
        self,
        user: str,
        platform: str,
        device: str,
        sink: SessionSink,
        done: Callable[[Session | PixiuError], object],
        *,
        cursor: int = 0,
    ) -> None:
        """A client logs in."""
        ...

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> object:
        """A connection is gone, and why."""
        ...

    def ack(self, session_id: int, cursor: int) -> bool:
        """A client holds everything through this cursor. False: its session is not known."""
        ...

    def heartbeat(self, session_id: int) -> bool:
        """A client lives. False: its session is not known."""
        ...

    def writing(self, session_id: int) -> object:
        """Messages that were handed over have not reached the client yet: the time for its ack begins again."""
        ...


Authenticate = Callable[[str, Callable[[Identity | PixiuError], object]], object]
"""Tells whose a token is, at once or later: the ``authenticate`` of a ``ports.authentication.Authentication``."""

LocalAction = Callable[["Connection", "Params", Done], object]
"""An action that the gateway performs itself. It may raise ``PixiuError`` instead of calling ``done``."""


class LinkOwner(Protocol):
    """Whose sessions a link has: a ``Gateway``, or the part of one whose users are at this node."""

    def cut_off(self) -> object:
        """The node has dropped every session of this link, or will."""
        ...

    def reached(self) -> object:
        """The node is there again: sessions may be asked for."""
        ...

    def send_all_away(self) -> object:
        """The node could not be reached for as long as its lease."""
        ...

    def counted(self) -> tuple[int, Mapping[str, object]]:
        """How many connections there are, and what was counted since the start."""
        ...


class LiveCaller(Protocol):
    """A connection as typing and presence see it; the connection itself may be in another process."""

    actor: Actor
    typed_us: int
    """When it typed last; 0: never."""
    watched: tuple[int, ...]
    """The users whose presence it follows."""

    @property
    def number(self) -> int:
        """Its own among all connections."""
        ...

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Tell it something live."""
        ...


class LiveGateway(Protocol):
    """Where typing and presence are asked for: a gateway, or the node's end of several."""

    @property
    def settings(self) -> GatewaySettings: ...

    def offer(self, action: str, perform: Callable[[LiveCaller, Params, Done], object]) -> None:
        """From now on this action is performed so."""
        ...

    def watch(self, joined: Callable[[LiveCaller], object], left: Callable[[LiveCaller], object]) -> None:
        """Tell of every session that comes and goes."""
        ...
