"""Groups and their members."""

from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["Group", "Member", "Role"]


class Role(IntEnum):
    """What a member may do."""

    MEMBER = 0
    ADMIN = 1
    OWNER = 2


@dataclass(frozen=True, slots=True)
class Group:
    """A durable set of members with a timeline."""

    number: int
    public_id: str
    name: str
    avatar: str
    owner: int
    needs_approval: bool = False
    is_large: bool = False
    """Its messages enter no inboxes: they are pushed through the room, and read by sync. Large once, large for good."""
    fields: dict[str, str] = field(default_factory=dict)
    created_at: int = 0
    message_count: int = 0
    """Messages said so far."""
    last_message_id: int = 0
    large_since: int = 0
    """The event id of the record that made it large: a lane that applies an older one asks what the group was then."""
    is_since_join: bool = False
    """Members read what was said since they joined, and nothing of before."""

    def is_large_at(self, event_id: int) -> bool:
        """Was it large when that record was written?"""
        return self.is_large and self.large_since <= event_id


@dataclass(frozen=True, slots=True)
class Member:
    """One user's place in a group, from ``joined`` (event id) until ``left`` (0: still there)."""

    user: int
    role: Role
    joined: int
    joined_at: int
    left: int = 0
    is_muted: bool = False
    count_at_read: int = 0
    """The group's ``message_count`` when this member last read it (or joined)."""
    joined_message: int = 0
    """The message id of the record that made them a member: what came before has a smaller one."""

    def is_member_at(self, event_id: int) -> bool:
        """Was this a member when that record was written?"""
        return self.joined <= event_id and (self.left == 0 or event_id < self.left)
