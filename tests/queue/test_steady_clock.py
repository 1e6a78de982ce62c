"""A delay is never fired early, even by a millisecond: not by the process that took it, not by the next one."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pixiu.queue.delays import SteadyClock


@dataclass
class Wall:
    """A clock with microseconds that shows milliseconds, and is interrupted now and then while it is read."""

    us: int
    started_us: int
    interruptions: list[int] = field(default_factory=list)

    def now_ms(self) -> int:
        shown = self.us // 1000
        self.us += self.interruptions.pop() if self.interruptions else 0
        return shown

    def monotonic_us(self) -> int:
        return self.us - self.started_us


SOON = st.integers(min_value=0, max_value=5_000_000)


@given(SOON, SOON, st.lists(st.integers(0, 50_000), max_size=4), st.lists(st.integers(0, 50_000), max_size=4))
def test_what_one_process_delays_the_next_one_never_fires_early(
    asked_us: int, started_us: int, first: list[int], second: list[int]
) -> None:
    wall = Wall(us=10_000_000 + asked_us, started_us=started_us, interruptions=first)
    taker = SteadyClock(wall)
    asked_ms = wall.now_ms()
    due_ms = taker.now_ms() + 1 + 7000

    wall = Wall(us=wall.us + 1_000_000, started_us=wall.us, interruptions=second)
    firer = SteadyClock(wall)
    wall.us += due_ms * 1000 - wall.us - 3000
    while firer.now_ms() < due_ms:
        wall.us += 100
    assert wall.now_ms() >= asked_ms + 7000


def test_it_is_at_most_a_millisecond_behind_though_most_readings_were_interrupted() -> None:
    wall = Wall(us=10_000_999, started_us=3, interruptions=[40_000, 40_000, 40_000, 40_000])
    steady = SteadyClock(wall)
    assert steady.now_ms() >= wall.now_ms() - 1
