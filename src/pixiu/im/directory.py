"""Public ids to numbers and back, remembered.

Neither ever changes once it is there, so what was found stays true; what was not found is looked up each time. The
memory is bounded: beyond the bound the names that were learnt first are forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pixiu.im.draft import UnknownUsers
from pixiu.im.params import public_id_text
from pixiu.model.errors import NotFound, Unauthenticated
from pixiu.model.names import SYSTEM, check_public_id, normalized

if TYPE_CHECKING:
    from pixiu.ports.stores import Stores

__all__ = ["NAMES_MAX", "Banned", "Directory", "Erased"]

NAMES_MAX = 200_000

K = TypeVar("K")
V = TypeVar("V")


class Erased(NotFound):
    """A user who was erased: nobody may write to one, and nobody gets the public id again."""

    def __init__(self, public_id: str) -> None:
        super().__init__(f"user {public_id!r} was erased")


class Banned(Unauthenticated):
    """A user whom an admin has banned: the user may not log in or act."""

    def __init__(self, public_id: str) -> None:
        super().__init__(f"user {public_id!r} is banned")


class Directory:
    """Who is behind a public id, and behind a number."""

    def __init__(self, stores: Stores, *, names_max: int = NAMES_MAX) -> None:
        self._stores = stores
        self._names_max = names_max
        self._user_numbers: dict[str, int] = {}
        self._user_names: dict[int, str] = {0: SYSTEM}
        self._present: dict[int, None] = {}
        """Users of whom it is known that they exist, and are neither erased nor banned: none of them is barred."""
        self._barred: dict[int, None] = {}
        """Users whose erasure is on its way, or has just been applied; the stores know of the others."""
        self._group_numbers: dict[str, int] = {}
        self._group_names: dict[int, str] = {}

    # Users.

    def knows_user(self, number: int) -> bool:
        """Is there a user with this number?"""
        if number in self._present:
            return True
        if number in self._user_names:
            return number != 0 and not self.is_erased(number)
        return self._learn_user(number) is not None and not self.is_erased(number)

    def is_erased(self, number: int) -> bool:
        """Was this user erased, or is that on its way?"""
        if number in self._barred:
            return True
        if number in self._present:
            return False
        profile = self._stores.users.get(number)
        if profile is None or not profile.is_erased:
            if profile is not None and not profile.is_banned:
                remember(self._present, number, None, self._names_max)
            return False
        remember(self._barred, number, None, self._names_max)
        return True

    def is_banned(self, number: int) -> bool:
        """Has an admin banned this user?"""
        if number in self._present:
            return False
        profile = self._stores.users.get(number)
        return profile is not None and profile.is_banned

    def banned(self, number: int) -> None:
        """A ban was applied or lifted: the next check looks at the user's profile."""
        self._present.pop(number, None)

    def bar(self, number: int) -> None:
        """An erasure begins, or was applied: from now on there is no such user."""
        remember(self._barred, number, None, self._names_max)
        self._present.pop(number, None)
        public_id = self.user_name(number)
        self._user_numbers.pop(public_id, None)

    def unbar(self, number: int) -> None:
        """An erasure has failed. Unless one was applied before, the user is there as ever."""
        self._barred.pop(number, None)

    def user(self, public_id: object, what: str = "user") -> int:
        """The number of a user who must exist. ``what`` is the param's name."""
        if type(public_id) is str:
            number = self._user_numbers.get(public_id)
            if number is not None:
                return number
        checked = check_public_id(public_id_text(public_id, what), what=what)
        number = self.find_user(checked)
        if number is None:
            raise UnknownUsers([normalized(checked)])
        return number

    def any_user(self, public_id: object, what: str = "user") -> int:
        """The number of a user who must have existed: what was said with one who was erased can still be read."""
        checked = check_public_id(public_id_text(public_id, what), what=what)
        number_of = self._stores.users.number_of
        number = self._user_numbers.get(checked) or number_of(checked) or number_of(normalized(checked))
        if number is None:
            raise UnknownUsers([checked])
        return number

    def users(self, public_ids: list[object], what: str) -> list[int]:
        """Numbers of users who must all exist, each once, in order of first mention."""
        checked = [check_public_id(public_id_text(each, what), what=what) for each in public_ids]
        numbers = [self.find_user(each) for each in checked]
        unknown = [normalized(each) for each, number in zip(checked, numbers, strict=True) if number is None]
        if unknown:
            raise UnknownUsers(list(dict.fromkeys(unknown)))
        return list(dict.fromkeys(number for number in numbers if number is not None))

    def find_user(self, public_id: str) -> int | None:
        """The number of a user who may exist: by this very id, which older ids may need, or else by its normal form."""
        number = self._find_user(public_id)
        if number is None and (normal := normalized(public_id)) != public_id:
            number = self._find_user(normal)
        return number

    def exact_user(self, public_id: str) -> int | None:
        """The number of a user with this very id. A token names a user exactly: it must not become someone else's."""
        return self._find_user(public_id)

    def known_exactly(self, public_id: str) -> int | None:
        """The number behind this very id, of an erased user too."""
        return self._stores.users.number_of(check_public_id(public_id, what="user"))

    def known_user(self, public_id: str) -> int | None:
        """The number of a user who may exist; none of one who was erased."""
        try:
            return self.find_user(public_id)
        except Erased:
            return None

    def user_name(self, number: int) -> str:
        """A user's public id; the number itself while the user is not there yet."""
        return self._user_names.get(number) or self._learn_user(number) or str(number)

    def _find_user(self, public_id: str) -> int | None:
        number = self._user_numbers.get(public_id)
        if number is None:
            number = self._stores.users.number_of(public_id)
            if number is not None:
                if self.is_erased(number):
                    raise Erased(public_id)
                remember(self._user_numbers, public_id, number, self._names_max)
        return number

    def _learn_user(self, number: int) -> str | None:
        profile = self._stores.users.get(number)
        if profile is None:
            return None
        remember(self._user_names, number, profile.public_id, self._names_max)
        return profile.public_id

    # Groups.

    def group(self, public_id: object) -> int:
        """The number of a group that must exist."""
        if type(public_id) is str:
            number = self._group_numbers.get(public_id)
            if number is not None:
                return number
        checked = check_public_id(public_id_text(public_id, "group"), what="group")
        number = self.find_group(checked)
        if number is None:
            raise NotFound(f"there is no group {checked!r}")
        return number

    def find_group(self, public_id: str) -> int | None:
        """The number of a group that may exist: by this very id, or else by its normal form."""
        number = self._find_group(public_id)
        if number is None and (normal := normalized(public_id)) != public_id:
            number = self._find_group(normal)
        return number

    def _find_group(self, public_id: str) -> int | None:
        number = self._group_numbers.get(public_id)
        if number is None:
            number = self._stores.groups.number_of(public_id)
            if number is not None:
                remember(self._group_numbers, public_id, number, self._names_max)
        return number

    def group_name(self, number: int) -> str:
        """A group's public id; the number itself while the group is not there yet."""
        name = self._group_names.get(number)
        if name is None:
            group = self._stores.groups.get(number)
            if group is None:
                return str(number)
            name = group.public_id
            remember(self._group_names, number, name, self._names_max)
        return name


def remember(memory: dict[K, V], key: K, value: V, limit: int) -> None:
    """Add, and forget what was learnt first beyond the bound."""
    memory[key] = value
    if len(memory) > limit:
        del memory[next(iter(memory))]
