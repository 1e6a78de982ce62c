"""Who listens in which room, and through which gateway: soft state of the room roles."""

from typing import NamedTuple, Protocol

__all__ = ["Route", "Routes"]


class Route(NamedTuple):
    """One session in one room."""

    user: int
    session_id: int
    gateway: str
    version: int
    """Rises with each enter and leave of a session: old news loses."""


class Routes(Protocol):
    """Routes by room. Implementations pass ``tests/contracts/routes.py``."""

    def enter(self, room: int, route: Route) -> bool:
        """A session enters. False if a newer enter or leave of it is known."""
        ...

    def leave(self, room: int, session_id: int, version: int) -> bool:
        """A session leaves. False if a newer enter is known."""
        ...

    def of(self, room: int) -> list[Route]:
        """Everyone in the room, by (user, session_id)."""
        ...

    def count(self, room: int) -> int:
        """How many sessions are in the room."""
        ...

    def drop_gateway(self, gateway: str) -> int:
        """A gateway is gone, and its routes with it. Returns how many."""
        ...
