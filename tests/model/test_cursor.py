"""Cursors have the epoch of an inbox's numbers in them."""

import pytest

from pixiu.model.cursor import EPOCH_MAX, USEQ_MAX, Cursors, epoch_of


@pytest.mark.parametrize("epoch", [1, 77, EPOCH_MAX])
@pytest.mark.parametrize("useq", [1, 42, USEQ_MAX])
def test_a_cursor_is_read_in_its_own_epoch_only(epoch: int, useq: int) -> None:
    cursor = Cursors(epoch).of(useq)
    assert cursor < 2**63 and Cursors(epoch).useq(cursor) == useq
    others = [0, 2, 78, EPOCH_MAX - 1]
    assert [Cursors(other).useq(cursor) for other in others] == [None] * 4


def test_the_own_log_has_plain_numbers_and_nothing_is_nothing_everywhere() -> None:
    assert [Cursors().of(useq) for useq in (0, 1, 42)] == [0, 1, 42]
    assert [Cursors().useq(cursor) for cursor in (0, 1, 42)] == [0, 1, 42]
    assert Cursors(9).of(0) == 0 and Cursors(9).useq(0) == 0
    assert Cursors(9).useq(42) is None, "a cursor from before there were epochs"


def test_a_log_has_the_same_epoch_on_every_node_and_never_that_of_an_own_one() -> None:
    assert epoch_of("cluster topic") == epoch_of("cluster topic") != epoch_of("cluster another")
    assert all(0 < epoch_of(str(name)) <= EPOCH_MAX for name in range(1000))
    with pytest.raises(ValueError, match="an epoch is from 0"):
        Cursors(EPOCH_MAX + 1)
