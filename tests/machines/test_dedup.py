"""Have we seen this message: bounded by time and by count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.dedup import Seen

WINDOW_MS = 1000


def seen(count_max: int = 100) -> Seen:
    return Seen(window_ms=WINDOW_MS, count_max=count_max)


def test_a_copy_is_known_within_the_window_and_not_after_it() -> None:
    memory = seen()
    assert not memory.has(1, "room", 0)
    assert memory.mark(1, "room", 0)
    assert memory.has(1, "room", WINDOW_MS - 1)
    assert not memory.mark(1, "room", WINDOW_MS - 1), "known already"
    assert not memory.has(1, "room", WINDOW_MS)
    assert len(memory) == 0


def test_a_repeat_does_not_make_an_entry_younger() -> None:
    memory = seen()
    memory.mark(1, "room", 0)
    memory.mark(1, "room", 900)
    assert not memory.has(1, "room", WINDOW_MS)


def test_the_id_alone_is_not_the_key() -> None:
    # E6: slices of one big room carry one id to different people.
    memory = seen()
    memory.mark(1, ("slice", 3), 0)
    assert not memory.has(1, ("slice", 4), 0)
    assert not memory.has(2, ("slice", 3), 0)


def test_what_must_be_forgotten_before_its_time_is_counted() -> None:
    memory = seen(count_max=3)
    for message_id in range(1, 6):
        memory.mark(message_id, 0, message_id)
    assert [message_id for message_id in range(1, 6) if memory.has(message_id, 0, 6)] == [3, 4, 5]
    assert memory.forgotten_early == 2
    assert len(memory) == 3


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 8), st.integers(1, 3)), max_size=60))
def test_it_agrees_with_a_list_of_everything(steps: list[tuple[int, int, int]]) -> None:
    memory = seen(count_max=1000)
    marked: dict[tuple[int, int], int] = {}
    now = 0
    for passed, message_id, key in steps:
        now += passed
        at = marked.get((message_id, key))
        is_known = at is not None and now - at < WINDOW_MS
        assert memory.has(message_id, key, now) == is_known
        assert memory.mark(message_id, key, now) != is_known
        if not is_known:
            marked[message_id, key] = now
        assert len(memory) == sum(1 for at in marked.values() if now - at < WINDOW_MS)
    assert memory.forgotten_early == 0
