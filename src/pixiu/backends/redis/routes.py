"""``Routes`` of one node, shown in Redis: who listens in which room, and through which gateway.

As with sessions, memory is the truth and nobody who enters a room waits for Redis. What has changed is written a little
later, many changes in one round trip.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pixiu.backends.redis.connection import RedisClient
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.server import Command
    from pixiu.ports.routes import Route

__all__ = ["WRITE_MAX", "RedisRoutes"]

WRITE_MAX = 2000
"""Changes written in one round trip."""


class RedisRoutes(MemoryRoutes):
    """A hash per room: session to user and gateway."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        super().__init__()
        self._client = client
        self._keys = keys
        self._unwritten: dict[tuple[int, int], None] = {}
        """Room and session in the order of their first change: at most as many as have changed since Redis answered."""
        self._swept: list[int] | None = None
        """Rooms that a life before has left; None until Redis was asked."""

    @property
    def unwritten(self) -> int:
        """How many changes wait to be written."""
        return len(self._unwritten)

    def enter(self, room: int, route: Route) -> bool:
        """A session enters. False if a newer enter or leave of it is known."""
        is_new = super().enter(room, route)
        if is_new:
            self._unwritten[room, route.session_id] = None
        return is_new

    def write(self) -> None:
        """Write some of what has changed. A Redis that is down gets it later."""
        try:
            if self._swept is None:
                self._swept = [int(room) for room in self._client.ask([("SMEMBERS", self._keys.rooms)])[0]]
            rooms = self._swept[:WRITE_MAX]
            if rooms:
                self._client.ask([*(("DEL", self._keys.room % room) for room in rooms), self._gone(rooms)])
                del self._swept[: len(rooms)]
                return
            changes = list(islice(self._unwritten, WRITE_MAX))
            if changes:
                self._client.ask(self._commands(changes))
        except Unavailable:
            return
        for change in changes:
            del self._unwritten[change]

    def write_all_again(self) -> None:
        """Redis has lost what it had."""
        self._unwritten |= dict.fromkeys((room, session) for room, routes in self._rooms.items() for session in routes)

    def close(self) -> None:
        """The node stops: nobody listens any more."""
        for room in list(self._rooms):
            for session in list(self._rooms[room]):
                self._drop(room, session)
        while self._unwritten:
            before = len(self._unwritten)
            self.write()
            if len(self._unwritten) == before and not self._swept:
                return

    def _drop(self, room: int, session_id: int) -> None:
        if session_id in self._rooms.get(room, ()):
            self._unwritten[room, session_id] = None
        super()._drop(room, session_id)

    def _commands(self, changes: list[tuple[int, int]]) -> list[Command]:
        commands: list[Command] = []
        gone: dict[int, list[int]] = {}
        for room, session in changes:
            route = self._rooms.get(room, {}).get(session)
            if route is None:
                gone.setdefault(room, []).append(session)
            else:
                commands.append(("HSET", self._keys.room % room, session, f"{route.user}-{route.gateway}"))
        commands += [("HDEL", self._keys.room % room, *sessions) for room, sessions in gone.items()]
        rooms = {room for room, _ in changes}
        present = sorted(room for room in rooms if room in self._rooms)
        if present:
            commands.append(("SADD", self._keys.rooms, *present))
        empty = sorted(rooms.difference(present))
        if empty:
            commands.append(self._gone(empty))
        return commands

    def _gone(self, rooms: list[int]) -> Command:
        return ("SREM", self._keys.rooms, *rooms)
