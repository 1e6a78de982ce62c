"""``Users``: a hash per user as seed 003 has it, with the profiles and public ids of the busy ones decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pixiu.backends.embedded.cache import Cache
from pixiu.backends.redis.layout import Keys, hex_of
from pixiu.model.user import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.backends.redis.overlay import Overlay

__all__ = ["OWN", "RedisUsers", "put_words", "words_of"]

OWN = "pixiu:"
"""What the names of Pixiu's own fields begin with."""
_MORE = "pixiu:fields"
_PAGE = 10_000


def put_words(
    overlay: Overlay, key: str, named: Mapping[str, str | int], fields: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Write named values and free fields of a user or group into its hash.

    A free field is a field of the hash, as the seed has it. One that would hide a named one, or one of Pixiu's, is
    kept aside.
    """
    for name, value in named.items():
        overlay.put_field(key, name, value)
    aside: dict[str, str] = {}
    for name, text in fields.items():
        if name in named or name.startswith(OWN):
            aside[name] = text
        else:
            overlay.put_field(key, name, text)
    for name in before:
        if name not in fields and name not in named and not name.startswith(OWN):
            overlay.put_field(key, name, None)
    overlay.put_field(key, _MORE, msgspec.json.encode(aside) if aside else None)


def words_of(found: dict[str, bytes], named: frozenset[str]) -> dict[str, str]:
    """The free fields of a hash."""
    fields = {name: value.decode() for name, value in found.items() if name not in named and not name.startswith(OWN)}
    aside = found.get(_MORE)
    if aside is not None:
        fields |= msgspec.json.decode(aside, type=dict[str, str])
    return fields


_NAMED = frozenset({"name", "avatar"})


class RedisUsers:
    """Profiles by number, numbers by public id."""

    def __init__(self, overlay: Overlay, keys: Keys, *, cached_max: int = 40_000) -> None:
        self._overlay = overlay
        self._keys = keys
        self._profiles: Cache[int, Profile] = Cache(cached_max)
        self._numbers: Cache[str, int] = Cache(cached_max)
        overlay.attach(self)

    def number_of(self, public_id: str) -> int | None:
        """The number behind a public id."""
        found = self._numbers.find(public_id)
        if found is None:
            value = self._overlay.get(self._keys.user_id % public_id)
            if value is not None:
                found = int(value)
                self._numbers.keep(public_id, found)
        return found

    def get(self, user: int) -> Profile | None:
        """A user's profile."""
        profile = self._profiles.find(user)
        if profile is None:
            found = self._overlay.fields([self._keys.user % user])[0]
            if OWN + "id" in found:
                profile = _profile(user, found)
                self._profiles.keep(user, profile)
        return profile

    def put(self, profile: Profile) -> None:
        """Create or change a user."""
        self._overlay.check_room()
        before = self.get(profile.number)
        named: dict[str, str | int] = {
            "name": profile.name,
            "avatar": profile.avatar,
            OWN + "id": profile.public_id,
            OWN + "at": profile.created_at,
            OWN + "erased": int(profile.is_erased),
            OWN + "banned": int(profile.is_banned),
        }
        overlay, keys = self._overlay, self._keys
        put_words(overlay, keys.user % profile.number, named, profile.fields, before.fields if before else {})
        overlay.put(keys.user_id % profile.public_id, profile.number)
        if before is None:
            overlay.put_score(keys.all_users, hex_of(profile.number), 0)
        self._profiles.keep(profile.number, profile)
        self._numbers.keep(profile.public_id, profile.number)

    def all(self) -> list[int]:
        """Every number, in order."""
        found: list[int] = []
        after = ""
        while page := self._overlay.names_after(self._keys.all_users, after, _PAGE):
            found += [int(name, 16) for name in page]
            after = page[-1]
        return found

    def save(self) -> None:
        """All is in the overlay."""

    def written(self) -> None:
        """The caches bound themselves."""

    def forget(self) -> None:
        """Begin anew."""
        self._profiles.clear()
        self._numbers.clear()


def _profile(user: int, found: dict[str, bytes]) -> Profile:
    return Profile(
        user,
        found[OWN + "id"].decode(),
        found["name"].decode(),
        found["avatar"].decode(),
        words_of(found, _NAMED),
        int(found[OWN + "at"]),
        found[OWN + "erased"] == b"1",
        found.get(OWN + "banned") == b"1",  # rows of older versions do not have it
    )
