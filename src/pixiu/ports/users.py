"""Users by number and by public id."""

from typing import Protocol

from pixiu.model.user import Profile

__all__ = ["Users"]


class Users(Protocol):
    """Every user. Implementations pass ``tests/contracts/users.py``."""

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        ...

    def get(self, user: int) -> Profile | None:
        """A user's profile."""
        ...

    def put(self, profile: Profile) -> None:
        """Create or change a user. The public id of a number never changes."""
        ...

    def all(self) -> list[int]:
        """Every number, in order: for audits and rebuilds."""
        ...
