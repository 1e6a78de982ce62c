"""Who has scheduled what. The log keeps it; this is its index by user, built when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.pixiu_pb2 import MsgChat, Record
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
        self._by_send_id: dict[tuple[int, str], int] = {}
        """The schedule_id of a user's send_id; of several the first."""

    def find(self, user: int, send_id: str) -> Scheduled | None:
        """What a user has scheduled with this send_id that is not due yet. What else waits is not looked at."""
        waiting = self._index().get(user, {})
        schedule_id = self._by_send_id.get((user, send_id)) if send_id else None
        return None if schedule_id is None else waiting.get(schedule_id)

    def of(self, user: int) -> list[Scheduled]:
        """What a user has scheduled that is not due yet, by due time."""
        waiting = self._index().get(user, {})
        return sorted(waiting.values(), key=lambda each: (each.due, each.schedule_id))

    def add(self, user: int, scheduled: Scheduled) -> None:
        """One more waits."""
        self._index()
        self._note(user, scheduled, Record.FromString(scheduled.payload))

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
            removed = waiting.pop(schedule_id, None)
            if removed is not None:
                key = user, _send_id(Record.FromString(removed.payload))
                if self._by_send_id.get(key) == schedule_id:
                    del self._by_send_id[key]
            if not waiting:
                self._by_user.pop(user, None)

    def forget(self) -> None:
        """Another log, or a log that others have written to: read it again when asked."""
        self._by_user = None
        self._users.clear()
        self._by_send_id.clear()

    def _index(self) -> dict[int, dict[int, Scheduled]]:
        if self._by_user is None:
            self._by_user = {}
            for each in self._log.scheduled(SCHEDULE):
                try:
                    record = Record.FromString(each.payload)
                except DecodeError:
                    continue
                self._note(record.actor, each, record)
        return self._by_user

    def _note(self, user: int, scheduled: Scheduled, record: Record) -> None:
        assert self._by_user is not None
        self._by_user.setdefault(user, {})[scheduled.schedule_id] = scheduled
        self._users[scheduled.schedule_id] = user
        send_id = _send_id(record)
        if send_id:
            self._by_send_id.setdefault((user, send_id), scheduled.schedule_id)


def _send_id(record: Record) -> str:
    try:
        return MsgChat.FromString(record.chat).sendId
    except DecodeError:
        return ""
