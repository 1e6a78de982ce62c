"""Who goes first in a burst, and for how long."""

from pixiu.config import CarrierSettings
from pixiu.roles.carrier.courtesy import BURST_US, SHORT_TURN_US, TURN_US, Courtesy

SETTINGS = CarrierSettings(yield_ms=500, yield_count=1000)


def test_the_carrier_waits_for_a_busy_writer_and_does_a_little_while_that_waits_for_the_disk() -> None:
    courtesy = Courtesy(SETTINGS)
    assert not courtesy.yields(0, 10, is_writer_busy=False)
    assert courtesy.turn_us == TURN_US
    assert courtesy.yields(1_000, 10, is_writer_busy=True)
    assert not courtesy.yields(2_000, 10, is_writer_busy=False), "it waits for the disk"
    assert courtesy.turn_us == SHORT_TURN_US
    assert courtesy.yields(3_000, 10, is_writer_busy=True)


def test_patience_has_an_end_though_the_writer_was_idle_for_moments() -> None:
    courtesy = Courtesy(SETTINGS)
    for now_us in range(0, 500_000, 10_000):
        assert courtesy.yields(now_us, 10, is_writer_busy=True)
        assert not courtesy.yields(now_us + 5_000, 10, is_writer_busy=False)
    assert not courtesy.yields(500_000, 10, is_writer_busy=True)
    assert courtesy.turn_us == TURN_US, "both take turns now"
    assert not courtesy.yields(10_000_000, 10, is_writer_busy=True), "until there are no sends for a moment"
    assert not courtesy.yields(10_000_001 + BURST_US, 10, is_writer_busy=False)
    assert courtesy.yields(10_100_000, 10, is_writer_busy=True)


def test_nobody_waits_when_many_events_do() -> None:
    courtesy = Courtesy(SETTINGS)
    assert courtesy.yields(0, 999, is_writer_busy=True)
    assert not courtesy.yields(0, 1000, is_writer_busy=True)
    assert courtesy.turn_us == TURN_US


def test_who_has_caught_up_begins_anew() -> None:
    courtesy = Courtesy(SETTINGS)
    assert courtesy.yields(0, 1, is_writer_busy=True)
    courtesy.caught_up()
    assert courtesy.yields(499_999 + BURST_US, 1, is_writer_busy=True)
    assert courtesy.yields(600_000, 1, is_writer_busy=True)
