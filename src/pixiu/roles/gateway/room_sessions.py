"""``Messaging`` of a gateway in a cluster that has live rooms only: it stores nothing.

In a cluster with shards the sessions are at the shards instead (``shards``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.rooms import room_number
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.names import check_platform, check_public_id
from pixiu.model.session import LogoutCause, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Actor, Params
    from pixiu.roles.gateway.needs import Done, SessionSink

__all__ = ["RoomSessions"]


class RoomSessions:
    """Who is connected here."""

    def __init__(self, boot: int, new_session_id: Callable[[], int]) -> None:
        """``new_session_id`` gives numbers that no other gateway gives."""
        self._boot = boot
        self._new_session_id = new_session_id
        self._names: dict[int, str] = {}
        self._number = 0

    def has(self, session_id: int) -> bool:
        """Is this session here?"""
        return session_id in self._names

    def name_of(self, actor: Actor) -> str:
        """The public id of whoever acts."""
        return self._names.get(actor.session_id, str(actor.user))

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Nothing that is stored can be done here."""
        if action == "contacts":
            done({"contacts": []})
        else:
            done(Unavailable(f"{action} needs a shard, and this cluster has none; live rooms work"))

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
        try:
            check_public_id(user, what="user")
            check_platform(platform)
        except PixiuError as error:
            done(error)
            return
        self._number += 1
        session_id = self._new_session_id()
        self._names[session_id] = user
        number = room_number(user)  # users get numbers as rooms do, where nobody gives them
        done(Session(session_id, number, platform, device, self._number, f"{self._boot:x}", self._boot))

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        """A connection is gone; nobody counts why."""
        self._names.pop(session_id, None)

    def ack(self, session_id: int, cursor: int) -> bool:
        """Nothing is waited for."""
        return session_id in self._names

    def heartbeat(self, session_id: int) -> bool:
        """It lives."""
        return session_id in self._names

    def writing(self, session_id: int) -> None:
        """Nothing is waited for."""
