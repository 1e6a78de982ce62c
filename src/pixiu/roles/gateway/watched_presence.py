"""The users whose presence each connection follows, asked for again when the connection gets another session.

The node that has the sessions forgets them when a link ends, and another node may have the next ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Actor, Params
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway
    from pixiu.roles.gateway.needs import Done

__all__ = ["WatchedPresence"]


class WatchedPresence:
    """Performs ``presence`` for a gateway whose node is in another process."""

    def __init__(self, gateway: Gateway, act: Callable[[Actor, str, Params, Done], object]) -> None:
        """``act`` performs an action at the node: the ``act`` of a ``Messaging``."""
        self._act = act
        self._watched: dict[int, Params] = {}
        gateway.offer("presence", self._presence)
        gateway.when_left.append(lambda connection: self._watched.pop(connection.number, None))
        gateway.when_rejoined.append(self._rejoined)

    def _presence(self, connection: Connection, params: Params, done: Done) -> None:
        self._act(connection.actor, "presence", params, partial(self._answered, connection, params, done))

    def _answered(self, connection: Connection, params: Params, done: Done, answer: object) -> None:
        if isinstance(answer, dict):
            if not connection.is_closed:
                self._watched[connection.number] = params
            done(answer)
        elif isinstance(answer, PixiuError):
            done(answer)

    def _rejoined(self, connection: Connection, _before: int) -> None:
        params = self._watched.get(connection.number)
        if params is not None:
            self._act(connection.actor, "presence", params, lambda _answer: None)
