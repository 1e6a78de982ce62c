"""The writer's memory of keys: bounded, complete behind its floor, read back when asked."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.errors import Unavailable
from pixiu.queue.storage.keys import PAUSE_US, SLICE, Numbers, RecentKeys
from pixiu.queue.storage.messages import key_digest


def memory(limit: int, log: list[tuple[bytes, Numbers]], now_us: Callable[[], int] = lambda: 0) -> RecentKeys:
    def read_back(after: int, through: int) -> Iterator[tuple[bytes, Numbers]]:
        return iter([row for row in log if after < row[1].event_id <= through])

    return RecentKeys(limit=limit, read_back=read_back, now_us=now_us)


@given(
    steps=st.lists(st.tuples(st.sampled_from(b"abcdefgh"), st.booleans(), st.integers(0, 30)), max_size=60),
    limit=st.integers(1, 6),
)
def test_a_key_is_found_or_the_memory_says_that_it_does_not_reach(
    steps: list[tuple[int, bool, int]], limit: int
) -> None:
    log: list[tuple[bytes, Numbers]] = []
    keys = memory(limit, log)
    for step, (letter, restart, back) in enumerate(steps, 1):
        if restart:
            keys = memory(limit, log)
            keys.start(log[-1][1].event_id if log else 0)
        key = bytes([letter])
        unless_after = max(step - back, 0)
        try:
            found = keys.find(key_digest(key), unless_after)
        except LookupError:
            continue
        expected = [numbers for each, numbers in log if each == key and numbers.event_id > unless_after]
        assert (found is None) == (not expected)
        if found is None:
            numbers = Numbers(step, step * 100)
            keys.add(key_digest(key), *numbers)
            log.append((key, numbers))
        else:
            assert found in expected


def test_an_empty_key_is_never_a_repeat() -> None:
    keys = memory(10, [])
    assert keys.add(b"", 1, 1) is None
    assert keys.find(b"", 0) is None


def test_undoing_an_append_brings_back_what_was_known_before() -> None:
    keys = memory(10, [])
    keys.add(key_digest(b"k"), 5, 50)
    assert keys.find(key_digest(b"k"), 7) is None
    before = keys.add(key_digest(b"k"), 9, 90)
    assert keys.find(key_digest(b"k"), 7) == Numbers(9, 90)
    keys.forget(key_digest(b"k"), before)
    assert keys.find(key_digest(b"k"), 7) is None
    assert keys.find(key_digest(b"k"), 0) == Numbers(5, 50)
    keys.forget(key_digest(b"k"), None)
    assert keys.find(key_digest(b"k"), 0) is None


def test_too_much_to_read_back_is_told() -> None:
    log = [(b"%d" % n, Numbers(n, n)) for n in range(1, 40)]
    keys = memory(10, log)
    keys.start(39)
    with pytest.raises(LookupError, match="more than 10 keys"):
        keys.find(key_digest(b"1"), 0)
    assert keys.find(key_digest(b"35"), 34) == Numbers(35, 35)
    keys.start(1000)
    with pytest.raises(LookupError, match="too many to read back"):
        keys.find(key_digest(b"1"), 0)


def test_a_long_past_is_read_back_in_slices_with_pauses() -> None:
    count = 2 * SLICE + 5
    log = [(b"%d" % n, Numbers(n, n)) for n in range(1, count + 1)]
    now_us = [0]
    keys = memory(count, log, lambda: now_us[0])
    keys.start(count)
    with pytest.raises(Unavailable):
        keys.find(key_digest(b"1"), 0)
    assert keys.floor == count - SLICE
    assert keys.find(key_digest(b"%d" % count), count - SLICE) == Numbers(count, count)  # that much is known
    with pytest.raises(Unavailable):  # others have their turn first
        keys.find(key_digest(b"1"), 0)
    assert keys.floor == count - SLICE
    now_us[0] += PAUSE_US
    with pytest.raises(Unavailable):
        keys.find(key_digest(b"1"), 0)
    now_us[0] += PAUSE_US
    assert keys.find(key_digest(b"1"), 0) == Numbers(1, 1)
    assert keys.floor == 0


def test_beyond_the_bound_a_part_of_the_oldest_is_forgotten_and_the_floor_says_how_far() -> None:
    log = [(b"%d" % n, Numbers(n, n)) for n in range(1, 66)]
    keys = memory(64, log)
    for key, numbers in log:
        keys.add(key_digest(key), *numbers)
    assert keys.floor == 5
    assert keys.find(key_digest(b"6"), 5) == Numbers(6, 6)
    assert keys.find(key_digest(b"5"), 5) is None
    keys.add(key_digest(b"6"), 66, 66)
    for number in range(67, 75):
        keys.add(key_digest(b"%d" % number), number, number)
    assert keys.find(key_digest(b"6"), keys.floor) == Numbers(66, 66), "what is used again is not among the oldest"


def test_many_are_new_only_if_memory_reaches_back_and_none_is_there_twice() -> None:
    keys = memory(4, [])
    one, other, third = map(key_digest, (b"1", b"2", b"3"))
    assert keys.has_none([one, other], 0)
    assert not keys.has_none([one, one], 0)
    assert not keys.has_none([one, b""], 0)
    keys.add_all([one, other], 1, [10, 20])
    assert keys.find(one, 0) == Numbers(1, 10)
    assert not keys.has_none([third, other], 0)
    assert keys.has_none([third], 0)
    keys.add_all([third, *map(key_digest, (b"4", b"5"))], 3, [30, 40, 2**63 - 1])
    assert keys.find(key_digest(b"5"), 4) == Numbers(5, 2**63 - 1)
    assert keys.floor == 1
    assert not keys.has_none([one], 0)
    assert keys.has_none([one], 1)
