"""What a follower's log says of a leader that is not there."""

import logging

import pytest

from pixiu.queue.replication.leader_link import Losses


def test_a_leader_that_stays_away_is_told_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    losses = Losses()
    for reason in ("refused", "refused", "refused", "timed out", "refused"):
        losses.note(reason)
    losses.heard()
    losses.note("refused")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "DEBUG", "INFO", "INFO", "INFO"]
