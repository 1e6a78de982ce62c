"""``Users`` on dicts."""

from pixiu.model.user import Profile

__all__ = ["MemoryUsers"]


class MemoryUsers:
    """Profiles by number, numbers by public id."""

    def __init__(self) -> None:
        self._profiles: dict[int, Profile] = {}
        self._numbers: dict[str, int] = {}

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        return self._numbers.get(public_id)

    def get(self, user: int) -> Profile | None:
        """A user's profile."""
        return self._profiles.get(user)

    def put(self, profile: Profile) -> None:
        """Create or change a user."""
        self._profiles[profile.number] = profile
        self._numbers[profile.public_id] = profile.number

    def all(self) -> list[int]:
        """Every number, in order."""
        return sorted(self._profiles)
