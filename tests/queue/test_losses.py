"""What a follower's log says of a leader that is not there."""

import logging

import pytest

from pixiu.machines.queue_wire.commands import KEY_NEEDED, WRONG_KEY
from pixiu.queue.replication.leader_link import Losses
from pixiu.queue.server.key_refusals import AGAIN_US, KeyRefusals
from pixiu.testing.scheduler import SimulatedClock


def test_a_leader_that_stays_away_is_told_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    losses = Losses()
    for reason in ("refused", "refused", "refused", "timed out", "refused"):
        losses.note(reason)
    losses.heard()
    losses.note("refused")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "DEBUG", "INFO", "INFO", "INFO"]


def test_a_key_that_the_leader_does_not_take_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It does not pass by itself."""
    caplog.set_level(logging.DEBUG)
    losses = Losses()
    for reason in (f"refused: {WRONG_KEY}", f"refused: {WRONG_KEY}", KEY_NEEDED, "timed out"):
        losses.note(reason)
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "WARNING", "INFO"]
    assert "same --secret-file" in caplog.records[0].message


def test_who_shows_a_wrong_key_is_named_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimulatedClock()
    refusals = KeyRefusals(clock)
    refusals.peer_of = str
    for number in range(100):
        refusals.note("wrong", number)
    clock.now_us += AGAIN_US
    refusals.note("wrong", "last")
    refusals.note("another kind", "x")
    said = [(record.message, record.__dict__["peer"], record.__dict__["count"]) for record in caplog.records]
    assert said == [("wrong", "0", 1), ("wrong", "last", 100), ("another kind", "x", 1)]
