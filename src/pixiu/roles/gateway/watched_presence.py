"""Whose presence the connections of a gateway process follow: the node that knew it may be another one soon."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from pixiu.im.draft import Params
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway
    from pixiu.roles.gateway.link import NodeLink
    from pixiu.roles.gateway.needs import Done

__all__ = ["WatchedPresence"]


class WatchedPresence:
    """Whose presence each connection follows, so that its next session can follow them too."""

    def __init__(self, gateway: Gateway, link: NodeLink) -> None:
        self._link = link
        self._watched: dict[int, Params] = {}
        gateway.offer("presence", self._presence)
        gateway.when_left.append(lambda connection: self._watched.pop(connection.number, None))
        gateway.when_rejoined.append(self._rejoined)

    def _presence(self, connection: Connection, params: Params, done: Done) -> None:
        self._link.act(connection.actor, "presence", params, partial(self._answered, connection, params, done))

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
            self._link.act(connection.actor, "presence", params, lambda _answer: None)
