"""How much one commit holds is learnt from what commits take."""

from pixiu.config.messaging import CarrierSettings
from pixiu.roles.carrier.commit_pace import COMMIT_US, CommitPace


def settled(pace: CommitPace, microseconds_per_kib: int) -> int:
    """What a pace comes to when every commit holds as much as it may, and costs so much."""
    for _ in range(30):
        pace.took(pace.bytes, pace.bytes // 1024 * microseconds_per_kib)
    return pace.bytes


def test_commits_come_to_take_as_long_as_they_may_and_no_longer() -> None:
    pace = CommitPace(CarrierSettings())
    assert 0.8 * COMMIT_US < settled(pace, 100) // 1024 * 100 <= COMMIT_US
    assert 0.8 * COMMIT_US < settled(pace, 20) // 1024 * 20 <= COMMIT_US, "and goes up again"


def test_the_bound_stays_within_reason_whatever_is_measured() -> None:
    settings = CarrierSettings()
    pace = CommitPace(settings)
    assert settled(pace, 0) == settings.commit_bytes
    pace.took(2**20, 10**9)
    assert settled(pace, 10**6) == 16 * 1024
    before = pace.bytes
    pace.took(100, 10**9)
    assert pace.bytes == before, "a small commit says nothing"


def test_whoever_is_behind_commits_as_much_as_the_settings_allow() -> None:
    settings = CarrierSettings()
    pace = CommitPace(settings)
    settled(pace, 1000)
    assert pace.bound(is_behind=False) < pace.bound(is_behind=True) == settings.commit_bytes


def test_it_is_looked_at_every_so_many_events() -> None:
    pace = CommitPace(CarrierSettings())
    looks = [pace.is_look_due(1) for _ in range(64)]
    assert (sum(looks), looks[31], looks[63]) == (2, True, True)
    assert pace.is_look_due(500)
