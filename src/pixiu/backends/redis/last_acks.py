"""The newest message that a user has acked on any platform, in the user's hash: what seed 004 leaves to choice.

For programs that read along; Pixiu itself goes by cursors. It is written with a commit, at most once in
``PERIOD_SECONDS`` per user, and Redis only ever raises it: a log that is applied again does not take it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.redis.users import OWN

if TYPE_CHECKING:
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay
    from pixiu.ports.clock import Clock

__all__ = ["FIELD", "PERIOD_SECONDS", "LastAcks"]

FIELD = OWN + "last_ack"
PERIOD_SECONDS = 30
USERS_MAX = 100_000
"""Who acks beyond this many within a period is noted by the next ack."""


class LastAcks:
    """What was acked since it was written last. A ``Table`` of the overlay."""

    def __init__(self, overlay: Overlay, keys: Keys, clock: Clock, *, users_max: int = USERS_MAX) -> None:
        self._overlay = overlay
        self._keys = keys
        self._clock = clock
        self._users_max = users_max
        self._newest: dict[int, int] = {}
        self._next_us = 0
        overlay.attach(self)

    def acked(self, user: int, message_id: int) -> None:
        """A user holds this message."""
        newest = self._newest
        if message_id > newest.get(user, 0) and (user in newest or len(newest) < self._users_max):
            newest[user] = message_id

    def save(self) -> None:
        """Everybody at once, so that nobody is written twice within a period."""
        now_us = self._clock.monotonic_us()
        if not self._newest or now_us < self._next_us:
            return
        self._next_us = now_us + PERIOD_SECONDS * 1_000_000
        newest, self._newest = self._newest, {}
        for user, message_id in newest.items():
            self._overlay.step("RAISE", self._keys.user % user, FIELD, message_id)

    def written(self) -> None:
        """Nothing is kept."""

    def forget(self) -> None:
        """The log brings it again."""
        self._newest.clear()
