"""Where two copies of a journal part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines import replication as r
from pixiu.machines.replication.history import Point, common_point, epoch_at


def written(epochs: list[int]) -> r.LogState:
    """A journal with one event_id per entry, each the epoch of its record."""
    starts = tuple(
        r.EpochStart(epoch, index + 1) for index, epoch in enumerate(epochs) if index == 0 or epochs[index - 1] != epoch
    )
    return r.LogState(tail_event_id=len(epochs), durable_event_id=len(epochs), epochs=starts)


@st.composite
def two_journals(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A common beginning, and then two leaders that never share an epoch."""
    shared = sorted(draw(st.lists(st.integers(1, 4), max_size=8)))
    start = shared[-1] if shared else 0
    odd = sorted(draw(st.lists(st.integers(0, 3), max_size=6)))
    even = sorted(draw(st.lists(st.integers(0, 3), max_size=6)))
    return shared + [start + 1 + 2 * n for n in odd], shared + [start + 2 + 2 * n for n in even]


@given(two_journals())
def test_two_journals_meet_at_their_last_common_record(journals: tuple[list[int], list[int]]) -> None:
    left, right = journals
    common = 0
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    ours, theirs = written(left), written(right)
    for _ in range(20):
        last = Point(theirs.tail_event_id, theirs.tail_epoch)
        point = common_point(ours, last)
        if point == last:
            break
        cut = common_point(theirs, point)
        assert cut.event_id < theirs.tail_event_id, "each round must cut something"
        theirs = written(right[: cut.event_id])
    assert theirs.tail_event_id == common


def test_the_epoch_of_an_event_id_is_that_of_the_last_start_before_it() -> None:
    epochs = (r.EpochStart(1, 1), r.EpochStart(4, 8))
    assert [epoch_at(epochs, event_id) for event_id in (0, 1, 7, 8, 99)] == [0, 1, 1, 4, 4]
