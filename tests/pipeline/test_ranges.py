"""What a table still needs of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.errors import Conflict
from pixiu.pipeline.lake.ranges import needed_after


@pytest.mark.parametrize(
    ("held", "after", "through", "needed"),
    [(0, 0, 10, 0), (10, 0, 10, None), (10, 10, 20, 10), (15, 10, 20, 15), (30, 10, 20, None), (5, 5, 5, None)],
)
def test_needed(held: int, after: int, through: int, needed: int | None) -> None:
    assert needed_after("t", held, after, through) == needed


def test_a_hole_is_refused_by_name() -> None:
    with pytest.raises(Conflict, match="events 11 to 20 would be missing"):
        needed_after("messages", 10, 20, 30)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30))
def test_whatever_batches_come_each_event_is_taken_once(batches: list[tuple[int, int]]) -> None:
    held = 0
    taken: list[int] = []
    for after, through in batches:
        try:
            needed = needed_after("t", held, after, through)
        except Conflict:
            continue
        if needed is not None:
            taken += range(needed + 1, through + 1)
            held = through
    assert taken == list(range(1, held + 1))
