"""Users, as everyone may see them."""

from dataclasses import dataclass, field

__all__ = ["Profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """One user: a public id that people use, a number that everything is keyed by."""

    number: int
    public_id: str
    name: str
    avatar: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    created_at: int = 0
    is_erased: bool = False
    """All that is left is the number and the public id, which nobody gets again."""
    is_banned: bool = False
    """The user may not log in or act until an admin lifts the ban."""
