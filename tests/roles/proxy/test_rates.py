"""Token buckets: exact at the edges, bounded in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.errors import RateLimited
from pixiu.roles.proxy.rates import Rates
from pixiu.testing.scheduler import SimulatedClock


def taken(rates: Rates, user: int = 1) -> bool:
    try:
        rates.take(user)
    except RateLimited:
        return False
    return True


@given(
    per_second=st.integers(1, 1000),
    burst=st.integers(1, 50),
    waits_us=st.lists(st.integers(0, 2_000_000), min_size=1, max_size=60),
)
def test_a_bucket_gives_what_a_counted_bucket_gives(per_second: int, burst: int, waits_us: list[int]) -> None:
    clock = SimulatedClock()
    rates = Rates(clock, per_second=per_second, burst=burst)
    token_us = 1_000_000 // per_second
    level_us, last_us = burst * token_us, clock.now_us
    for wait_us in waits_us:
        clock.now_us += wait_us
        level_us = min(level_us + clock.now_us - last_us, burst * token_us)
        last_us = clock.now_us
        expected = level_us >= token_us
        if expected:
            level_us -= token_us
        assert taken(rates) == expected


def test_whoever_waits_as_told_is_served() -> None:
    clock = SimulatedClock()
    rates = Rates(clock, per_second=3, burst=1)
    rates.take(1)
    with pytest.raises(RateLimited) as caught:
        rates.take(1)
    clock.now_us += (caught.value.retry_after_ms - 1) * 1000
    assert not taken(rates)
    clock.now_us += 1000
    assert taken(rates)


def test_no_rate_is_no_limit() -> None:
    rates = Rates(SimulatedClock(), per_second=0, burst=1)
    assert all(taken(rates) for _ in range(1000))
    assert len(rates) == 0


def test_memory_is_bounded_and_forgets_those_who_are_quiet_first() -> None:
    clock = SimulatedClock()
    rates = Rates(clock, per_second=1, burst=2, buckets_max=100)
    for user in range(100):
        rates.take(user)
    clock.now_us += 2_000_000
    rates.take(1000)
    assert len(rates) == 1
    for user in range(10_000):
        rates.take(user)
        assert len(rates) <= 100
    assert taken(rates, 9_999)
    assert not taken(rates, 9_999)
