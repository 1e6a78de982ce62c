"""Who hears what is said in a group, as of the record that says it.

Reading two hundred members for every message of a group would cost more than the message. Each lane applies every
change of members in order, so what it once read stays true until it meets the next change of that group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pixiu.model.pixiu_pb2 import Record
    from pixiu.ports.groups import Groups
    from pixiu.ports.log import LogRecord
    from pixiu.roles.carrier.reached import Reached

__all__ = ["Audience", "group_of"]

_REMEMBERED_MAX = 1_000_000
"""Members of all remembered groups together."""


class Audience:
    """One lane's memory of who is a member where."""

    def __init__(self, groups: Groups, reached: Reached) -> None:
        self._groups = groups
        self._reached = reached
        self._members: dict[int, list[int] | None] = {}
        self._count = 0

    def of(self, group: int, event_id: int) -> list[int] | None:
        """The members at this record, by number; None for a large group. The caller must not change the list."""
        try:
            return self._members[group]
        except KeyError:
            return self._read(group, event_id)

    def forget(self, group: int) -> None:
        """This lane has met a change of the group."""
        members = self._members.pop(group, None)
        if members is not None:
            self._count -= len(members)

    def _read(self, group: int, event_id: int) -> list[int] | None:
        if self._reached.rosters < event_id:
            # A join that is not applied yet may come before this record.
            raise Unavailable(f"rosters are at event {self._reached.rosters}, and {event_id} needs their members")
        found = self._groups.get(group)
        if found is None:
            raise ValueError(f"there is no group {group}")
        if found.is_large_at(event_id):
            members = None
        else:
            members = [member.user for member in self._groups.members(group, at=event_id)]
            self._count += len(members)
        if self._count > _REMEMBERED_MAX:
            self._members.clear()
            self._count = len(members or ())
        self._members[group] = members
        return members


def group_of(record: LogRecord, parsed: Record, what: str | None) -> int:
    """The group in whose timeline this record's chat is said; 0 if it says nothing, or says it to one user."""
    if parsed.to or not parsed.chat:
        return 0
    if what == "group_info":
        return parsed.group or parsed.group_info.group or record.message_id
    if what == "member":
        return parsed.group or parsed.member.group
    return parsed.group if what is None or what == "recalled" else 0
