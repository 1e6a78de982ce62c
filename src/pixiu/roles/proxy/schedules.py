"""Who has scheduled what. The log keeps it; this is its index by user, built when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import Record
from pixiu.ports.log import SCHEDULE, Scheduled

if TYPE_CHECKING:
    from pixiu.ports.log import Log

__all__ = ["Schedules"]


class Schedules:
    """Scheduled sends by user. Everything that waits was put there by this proxy, or found in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_user: dict[int, dict[int, Scheduled]] | None = None
        self._users: dict[int, int] = {}

    def of(self, user: int) -> list[Scheduled]:
        """What a user has scheduled that is not due yet, by due time."""
        waiting = self._index().get(user, {})
        return sorted(waiting.values(), key=lambda each: (each.due, each.schedule_id))

    def add(self, user: int, scheduled: Scheduled) -> None:
        """One more waits."""
        self._index().setdefault(user, {})[scheduled.schedule_id] = scheduled
        self._users[scheduled.schedule_id] = user

    def fired(self, user: int, payload: bytes) -> None:
        """One has come due. The log gives it a new event id, so it is known by what it says; of equals the first."""
        waiting = self._by_user.get(user, {}) if self._by_user is not None else {}
        equals = [each for each in waiting.values() if each.payload == payload]
        if equals:
            self.remove(min(equals, key=lambda each: (each.due, each.schedule_id)).schedule_id)

    def remove(self, schedule_id: int) -> None:
        """It waits no more."""
        user = self._users.pop(schedule_id, None)
        if user is not None and self._by_user is not None:
            waiting = self._by_user.get(user, {})
            waiting.pop(schedule_id, None)
            if not waiting:
                self._by_user.pop(user, None)

    def forget(self) -> None:
        """Another log, or a log that others have written to: read it again when asked."""
        self._by_user = None
        self._users.clear()

    def _index(self) -> dict[int, dict[int, Scheduled]]:
        if self._by_user is None:
            self._by_user = {}
            for each in self._log.scheduled(SCHEDULE):
                try:
                    user = Record.FromString(each.payload).actor
                except DecodeError:
                    continue
                self._by_user.setdefault(user, {})[each.schedule_id] = each
                self._users[each.schedule_id] = user
        return self._by_user
