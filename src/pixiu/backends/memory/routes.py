"""``Routes`` on dicts.

Who has left is remembered with its version, so that an older enter that comes late loses. Those memories are bounded:
the oldest goes first, and by then its news is long past.
"""

from pixiu.ports.routes import Route

__all__ = ["LEFT_MAX", "MemoryRoutes"]

LEFT_MAX = 65_536
"""Leaves remembered."""


class MemoryRoutes:
    """Routes by room and session."""

    def __init__(self) -> None:
        self._rooms: dict[int, dict[int, Route]] = {}
        self._left: dict[tuple[int, int], int] = {}

    def enter(self, room: int, route: Route) -> bool:
        """A session enters. False if a newer enter or leave of it is known."""
        if self._newest(room, route.session_id) > route.version:
            return False
        self._left.pop((room, route.session_id), None)
        self._rooms.setdefault(room, {})[route.session_id] = route
        return True

    def leave(self, room: int, session_id: int, version: int) -> bool:
        """A session leaves. False if a newer enter is known."""
        routes = self._rooms.get(room, {})
        entered = routes.get(session_id)
        if entered is not None and entered.version > version:
            return False
        known = max(version, self._left.pop((room, session_id), version))
        self._left[room, session_id] = known
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]
        self._drop(room, session_id)
        return True

    def of(self, room: int) -> list[Route]:
        """Everyone in the room, by (user, session_id)."""
        return sorted(self._rooms.get(room, {}).values(), key=lambda route: (route.user, route.session_id))

    def count(self, room: int) -> int:
        """How many sessions are in the room."""
        return len(self._rooms.get(room, ()))

    def drop_gateway(self, gateway: str) -> int:
        """A gateway is gone, and its routes with it. Returns how many."""
        gone = [
            (room, route.session_id)
            for room, routes in self._rooms.items()
            for route in routes.values()
            if route.gateway == gateway
        ]
        for room, session_id in gone:
            self._drop(room, session_id)
        return len(gone)

    def _newest(self, room: int, session_id: int) -> int:
        entered = self._rooms.get(room, {}).get(session_id)
        return entered.version if entered else self._left.get((room, session_id), -1)

    def _drop(self, room: int, session_id: int) -> None:
        routes = self._rooms.get(room)
        if routes is not None and routes.pop(session_id, None) is not None and not routes:
            del self._rooms[room]
