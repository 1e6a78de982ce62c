"""How much each user may do: a token bucket per user, kept as one number.

The number is the time at which the bucket will be full again. Taking a token moves it by the time one token needs to
grow; the bucket is empty when it would lie further ahead than a whole bucket needs. A bucket that is full again is like
one that was never used, so it may be forgotten.
"""

from pixiu.model.errors import RateLimited
from pixiu.ports.clock import Clock

__all__ = ["BUCKETS_MAX", "Rates"]

BUCKETS_MAX = 100_000


class Rates:
    """Token buckets by user, in bounded memory."""

    def __init__(self, clock: Clock, *, per_second: int, burst: int, buckets_max: int = BUCKETS_MAX) -> None:
        self._clock = clock
        self._per_second = per_second
        self._token_us = 1_000_000 // per_second if per_second else 0
        self._burst_us = burst * self._token_us
        self._buckets_max = buckets_max
        self._full_at: dict[int, int] = {}

    def take(self, user: int, cost: int = 1) -> None:
        """Take tokens. Raises ``RateLimited`` if there are not enough; then none is taken.

        An action that costs more than a whole bucket needs a full one, and leaves a debt: the next one waits longer.
        """
        token_us = self._token_us
        if not token_us:
            return
        now = self._clock.monotonic_us()
        full_at = self._full_at.get(user, now)
        if full_at < now:
            full_at = now
        needed_us = cost * token_us
        over_us = full_at - now + (needed_us if needed_us < self._burst_us else self._burst_us) - self._burst_us
        if over_us > 0:
            wait_ms = (over_us + 999) // 1000
            counts = f", and this one counts as {cost}" if cost > 1 else ""
            raise RateLimited(
                f"at most {self._per_second} actions a second{counts}; try again in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )
        self._full_at[user] = full_at + needed_us
        if len(self._full_at) > self._buckets_max:
            self._forget(now)

    def charge(self, user: int, cost: int) -> None:
        """Take tokens, whether there are enough or not. What is missing is a debt: the next action waits longer."""
        if self._token_us:
            now = self._clock.monotonic_us()
            self._full_at[user] = max(self._full_at.get(user, now), now) + cost * self._token_us
            if len(self._full_at) > self._buckets_max:
                self._forget(now)

    def wait_ms(self, user: int) -> int:
        """The time until all tokens that were taken have grown again; 0 if the bucket is full."""
        return max(0, -((self._clock.monotonic_us() - self._full_at.get(user, 0)) // 1000))

    def give_back(self, user: int, cost: int) -> None:
        """Return tokens that were taken for work that is not done."""
        full_at = self._full_at.get(user)
        if full_at is not None:
            self._full_at[user] = full_at - cost * self._token_us

    def __len__(self) -> int:
        return len(self._full_at)

    def _forget(self, now: int) -> None:
        """Forget buckets that are full; if there are not enough of them, those that were used first."""
        self._full_at = {user: full_at for user, full_at in self._full_at.items() if full_at > now}
        excess = len(self._full_at) - self._buckets_max * 3 // 4
        if excess > 0:
            for user in list(self._full_at)[:excess]:
                del self._full_at[user]
