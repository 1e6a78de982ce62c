"""How much one commit holds is learnt from what commits take."""

import pytest

from pixiu.config.messaging import CarrierSettings
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.commit_pace import COMMIT_US, CommitPace
from tests.roles.carrier.world import ALL, ANNA, BERT, World, send, user


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


def commits_at_wakes(monkeypatch: pytest.MonkeyPatch, settings: CarrierSettings) -> tuple[World, list[int]]:
    """Eighty messages in one go, as much as a commit may hold: how many commits there were at each wake."""
    world = World(settings)
    world.start(*map(user, ALL))
    monkeypatch.setattr(type(world.stores), "pending_bytes", settings.commit_bytes)
    seen: list[int] = []
    world.wake = lambda _wakes: seen.append(world.carrier.counters.commits)
    for _ in range(80):
        world.append(send(ANNA, BERT))
    return world, seen


def test_a_commit_does_not_hold_the_loop_in_one_go_with_the_turn_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = commits_at_wakes(monkeypatch, CarrierSettings(commit_ms=10_000, commit_bytes=65536))
    world.run()
    assert seen == [0], "who is woken does not wait for the commit"
    assert world.carrier.counters.commits == 1
    assert world.stores.applied(Lane.INBOXES) == world.log.committed


def test_whoever_is_behind_commits_before_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for its loop, and what it holds stays within the bound."""
    world, seen = commits_at_wakes(monkeypatch, CarrierSettings(commit_ms=10_000, commit_bytes=65536, batch_count=8))
    world.run()
    assert seen[0] == 0, "eight are not looked at yet"
    assert 0 < seen[3] <= world.carrier.counters.commits, "32 are, and more than one turn takes is still to come"


def test_forgetting_is_due_now_and_then() -> None:
    pace = CommitPace(CarrierSettings(), now_us=5)
    assert not pace.is_forgetting_due(60_000_004)
    assert pace.is_forgetting_due(60_000_005)
    assert not pace.is_forgetting_due(60_000_006)
