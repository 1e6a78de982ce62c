"""``Users`` on the overlay, with the profiles and public ids of the busy ones decoded."""

from struct import Struct

import msgspec

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.embedded.layout import USER, USER_NAME, key1, number, range_of
from pixiu.backends.embedded.overlay import Overlay
from pixiu.model.user import Profile

__all__ = ["EmbeddedUsers"]

_row = Struct(">q")
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class EmbeddedUsers:
    """A row per user, and one per public id."""

    def __init__(self, overlay: Overlay, *, cached_max: int = 20_000) -> None:
        self._overlay = overlay
        self._profiles: Cache[int, Profile] = Cache(cached_max)
        self._numbers: Cache[str, int] = Cache(cached_max)

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        found = self._numbers.young.get(public_id)
        if found is not None:
            return found
        found = self._numbers.find(public_id)
        if found is None:
            value = self._overlay.get(USER_NAME + public_id.encode())
            if value is not None:
                found = int.from_bytes(value, "big")
                self._numbers.keep(public_id, found)
        return found

    def get(self, user: int) -> Profile | None:
        """A user's profile."""
        profile = self._profiles.young.get(user) or self._profiles.find(user)
        if profile is None:
            value = self._overlay.get(key1(USER, user))
            if value is not None:
                profile = _decoded(user, value)
                self._profiles.keep(user, profile)
        return profile

    def put(self, profile: Profile) -> None:
        """Create or change a user."""
        self._overlay.put(key1(USER, profile.number), _encoded(profile))
        self._overlay.put(USER_NAME + profile.public_id.encode(), number.pack(profile.number))
        self._profiles.keep(profile.number, profile)
        self._numbers.keep(profile.public_id, profile.number)

    def all(self) -> list[int]:
        """Every number, in order."""
        return [int.from_bytes(key[1:], "big") for key, _ in self._overlay.scan(*range_of(USER))]


def _encoded(profile: Profile) -> bytes:
    words = [profile.public_id, profile.name, profile.avatar, profile.fields, profile.is_erased]
    if profile.is_banned:
        words.append(True)
    return _row.pack(profile.created_at) + _encode(words)


def _decoded(user: int, value: bytes) -> Profile:
    public_id, name, avatar, fields, is_erased, *banned = _decode(value[_row.size :])
    return Profile(user, public_id, name, avatar, fields, _row.unpack_from(value)[0], is_erased, bool(banned))
