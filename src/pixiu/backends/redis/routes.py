"""``Routes`` in Redis: who listens where, for several processes.

A room that nobody enters or leaves for a day is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.ports.routes import Route

if TYPE_CHECKING:
    from pixiu.backends.redis.connection import RedisClient
    from pixiu.backends.redis.layout import Keys

__all__ = ["RedisRoutes"]

_KEPT_SECONDS = 86_400


class RedisRoutes:
    """A hash per room: session to version, user and gateway; of those who left, the version alone."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def enter(self, room: int, route: Route) -> bool:
        """A session enters. False if a newer enter or leave of it is known."""
        key = self._keys.room % room
        rest = f"{route.user} {route.gateway}"
        if not self._client.call("enter", key, route.session_id, route.version, rest):
            return False
        index = self._keys.gateway_routes % route.gateway
        self._client.ask(
            [
                ("SADD", index, f"{room}:{route.session_id}"),
                ("EXPIRE", index, _KEPT_SECONDS),
                ("EXPIRE", key, _KEPT_SECONDS),
            ]
        )
        return True

    def leave(self, room: int, session_id: int, version: int) -> bool:
        """A session leaves. False if a newer enter is known."""
        return bool(self._client.call("leave", self._keys.room % room, session_id, version))

    def of(self, room: int) -> list[Route]:
        """Everyone in the room, by (user, session_id)."""
        answer = self._client.ask([("HGETALL", self._keys.room % room)])[0]
        found: list[Route] = []
        for session, value in zip(answer[::2], answer[1::2], strict=True):
            version, _, rest = value.decode().partition(" ")
            if rest:
                user, _, gateway = rest.partition(" ")
                found.append(Route(int(user), int(session), gateway, int(version)))
        return sorted(found)

    def count(self, room: int) -> int:
        """How many sessions are in the room."""
        return len(self.of(room))

    def drop_gateway(self, gateway: str) -> int:
        """A gateway is gone, and its routes with it."""
        index = self._keys.gateway_routes % gateway
        places = [tuple(map(int, member.split(b":"))) for member in self._client.ask([("SMEMBERS", index)])[0]]
        gone = 0
        for room in sorted({room for room, _ in places}):
            sessions = {session for place, session in places if place == room}
            for route in self.of(room):
                if route.gateway == gateway and route.session_id in sessions:
                    gone += self.leave(room, route.session_id, route.version)
        self._client.ask([("DEL", index)])
        return gone
