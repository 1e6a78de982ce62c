"""Message ids: by time, unique, and always rising."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.ids import NODE_ID_MAX, SNOWFLAKE_EPOCH_MS, Snowflakes, snowflake_time_ms

NOW = SNOWFLAKE_EPOCH_MS + 200_000_000_000

pytestmark = pytest.mark.feature("B04")


@given(st.lists(st.integers(-10_000, 10_000), min_size=1, max_size=200))
def test_whatever_the_clock_does_ids_rise_and_none_is_zero(steps: list[int]) -> None:
    snowflakes, now, last = Snowflakes(7), NOW, 0
    for step in steps:
        now += step
        given_id = snowflakes.next(now)
        assert given_id > last
        last = given_id


def test_the_4097th_id_of_a_millisecond_belongs_to_the_next() -> None:
    snowflakes = Snowflakes(1)
    ids = [snowflakes.next(NOW) for _ in range(4097)]
    assert len(set(ids)) == 4097
    assert [snowflake_time_ms(each) - NOW for each in (ids[0], ids[4095], ids[4096])] == [0, 0, 1]


@given(st.integers(0, NODE_ID_MAX), st.integers(0, 2**40))
def test_an_id_tells_its_time_to_the_millisecond(node_id: int, after_ms: int) -> None:
    now = SNOWFLAKE_EPOCH_MS + 1 + after_ms
    assert abs(snowflake_time_ms(Snowflakes(node_id).next(now)) - now) <= 1


def test_nodes_never_give_the_same_id() -> None:
    nodes = [Snowflakes(number) for number in (0, 1, 1023)]
    ids = [node.next(NOW + tick) for tick in range(100) for node in nodes for _ in range(10)]
    assert len(set(ids)) == len(ids)


def test_a_clock_that_steps_back_five_seconds_gives_no_repeat_also_after_a_restart() -> None:
    first = Snowflakes(3)
    before = [first.next(NOW + tick) for tick in range(50)]
    again = Snowflakes(3, last=before[-1])
    after = [again.next(NOW - 5000 + tick) for tick in range(50)]
    assert min(after) > max(before)
    assert len(set(before + after)) == 100


@pytest.mark.parametrize("node_id", [-1, NODE_ID_MAX + 1])
def test_a_node_id_that_does_not_fit_is_refused(node_id: int) -> None:
    with pytest.raises(ValueError, match="node id must be"):
        Snowflakes(node_id)


@given(
    steps=st.lists(st.tuples(st.integers(-3, 3), st.one_of(st.integers(0, 5), st.integers(4000, 9000))), max_size=8),
)
def test_many_ids_at_once_are_those_that_would_be_given_one_by_one(steps: list[tuple[int, int]]) -> None:
    one_by_one, at_once, now = Snowflakes(7), Snowflakes(7), NOW
    for step_ms, count in steps:
        now += step_ms
        assert at_once.next_all(now, count) == [one_by_one.next(now) for _ in range(count)]
    assert at_once.next(now) == one_by_one.next(now)
