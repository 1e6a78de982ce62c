"""How often someone may do something: token buckets by user or address, each kept as one number.

The number is the time at which the bucket will be full again. A bucket that is full is like one that was never used, so
it may be forgotten; the table is bounded.
"""

from collections.abc import Hashable

from pixiu.model.errors import RateLimited

__all__ = ["BUCKETS_MAX", "Buckets"]

BUCKETS_MAX = 50_000


class Buckets:
    """Token buckets by key."""

    def __init__(self, what: str, *, per_second: int, burst: int, buckets_max: int = BUCKETS_MAX) -> None:
        """``what`` names the thing in the error; ``per_second`` 0 is no limit."""
        self._what = what
        self._per_second = per_second
        self._token_us = 1_000_000 // per_second if per_second else 0
        self._burst_us = burst * self._token_us
        self._buckets_max = buckets_max
        self._full_at: dict[Hashable, int] = {}

    def take(self, key: Hashable, now_us: int, cost: int = 1) -> RateLimited | None:
        """Take tokens. The error, if there are not enough; then none is taken.

        A request that costs more than a whole bucket needs a full one, and leaves a debt.
        """
        if not self._token_us:
            return None
        full_at = max(self._full_at.get(key, now_us), now_us)
        needed_us = cost * self._token_us
        over_us = full_at - now_us + min(needed_us, self._burst_us) - self._burst_us
        if over_us > 0:
            wait_ms = (over_us + 999) // 1000
            return RateLimited(
                f"at most {self._per_second} {self._what} a second; try again in {wait_ms} ms", retry_after_ms=wait_ms
            )
        self._full_at[key] = full_at + needed_us
        if len(self._full_at) > self._buckets_max:
            self._forget(now_us)
        return None

    def owe(self, key: Hashable, now_us: int, cost: int) -> int:
        """Take tokens for work that cannot be refused. Returns the milliseconds until the bucket is out of debt."""
        if not self._token_us:
            return 0
        full_at = max(self._full_at.get(key, now_us), now_us) + cost * self._token_us
        self._full_at[key] = full_at
        if len(self._full_at) > self._buckets_max:
            self._forget(now_us)
        return max(full_at - now_us - self._burst_us, 0) // 1000

    def __len__(self) -> int:
        return len(self._full_at)

    def _forget(self, now_us: int) -> None:
        """Forget buckets that are full; if there are not enough of them, those that were used first."""
        self._full_at = {key: full_at for key, full_at in self._full_at.items() if full_at > now_us}
        excess = len(self._full_at) - self._buckets_max * 3 // 4
        for key in list(self._full_at)[: max(excess, 0)]:
            del self._full_at[key]
