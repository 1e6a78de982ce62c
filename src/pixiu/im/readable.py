"""What a user may read: one rule, for ``history``, ``sync`` and ``search`` alike.

Private: the messages that one sent or received, for good. Groups: those that one is a member of now; all of it, or what
was said since the newest join, as the group has it (``history = all | since_join``). Who has quit reads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.messages import member_of

if TYPE_CHECKING:
    from pixiu.im.context import Context

__all__ = ["HISTORIES", "first_readable", "readable_groups"]

HISTORIES = {"all": False, "since_join": True}
"""What members read of a group, by name; does it begin with their join?"""


def first_readable(context: Context, group: int, user: int) -> int:
    """The smallest message id that a member may read; 0 is all. Raises unless the user is a member."""
    member = member_of(context, group, user)
    found = context.stores.groups.get(group)
    return member.joined_message if found is not None and found.is_since_join else 0


def readable_groups(context: Context, user: int) -> dict[int, int]:
    """Every group that a user may read, with the smallest message id of it."""
    return {group: first_readable(context, group, user) for group in context.stores.groups.groups_of(user)}
