"""Which rooms there are for whom, and how often one may act in them.

A room exists while someone is in it, so everyone may open one. ``g:`` and a group's public id is the live room of that
group: its members only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import NotAllowed, NotFound, RateLimited
from pixiu.model.names import check_public_id, new_public_id

if TYPE_CHECKING:
    from pixiu.ports.clock import Clock
    from pixiu.ports.groups import Groups

__all__ = ["GROUP_PREFIX", "RoomRates", "check_member", "group_of", "room_name"]

GROUP_PREFIX = "g:"

BUCKETS_MAX = 100_000


def room_name(room: str) -> str:
    """The name of an open room in its normal form; of a group's room as it is, since it names an existing group."""
    return room if room.startswith(GROUP_PREFIX) else new_public_id(room, what="room")


def group_of(room: str, groups: Groups | None) -> int:
    """The number of the group whose room this is, 0 for an open room. Raises if there can be no such room."""
    if not room.startswith(GROUP_PREFIX):
        check_public_id(room, what="room")
        return 0
    public_id = check_public_id(room.removeprefix(GROUP_PREFIX), what="group")
    number = groups.number_of(public_id) if groups is not None else None
    if number is None:
        raise NotFound(f"there is no group {public_id!r}")
    return number


def check_member(groups: Groups | None, group: int, user: int, *, is_talking: bool) -> None:
    """Raise unless the user is a member of the group; of one who is muted, unless only to listen."""
    member = groups.member(group, user) if groups is not None else None
    if member is None:
        raise NotAllowed("the room is for members of the group")
    if is_talking and member.is_muted:
        raise NotAllowed("you are muted in the group")


class RoomRates:
    """A token bucket per user, kept as the time at which it will be full again. Bounded: full ones are forgotten."""

    def __init__(self, clock: Clock, *, per_second: int, burst: int, buckets_max: int = BUCKETS_MAX) -> None:
        self._clock = clock
        self._per_second = per_second
        self._token_us = 1_000_000 // per_second if per_second else 0
        self._burst_us = burst * self._token_us
        self._buckets_max = buckets_max
        self._full_at: dict[int, int] = {}

    def take(self, user: int) -> None:
        """Take a token, or raise ``RateLimited``."""
        if not self._token_us:
            return
        now = self._clock.monotonic_us()
        full_at = max(self._full_at.get(user, now), now) + self._token_us
        over_us = full_at - now - self._burst_us
        if over_us > 0:
            wait_ms = (over_us + 999) // 1000
            raise RateLimited(
                f"at most {self._per_second} a second in rooms; try again in {wait_ms} ms", retry_after_ms=wait_ms
            )
        self._full_at[user] = full_at
        if len(self._full_at) > self._buckets_max:
            used = [(each, at) for each, at in self._full_at.items() if at > now]
            self._full_at = dict(used[-self._buckets_max * 3 // 4 :])
