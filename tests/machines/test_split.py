"""Doubling: who gets what, when it flips, and what is kept for how long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.split import Counts, Flip, SplitPhase, check_flip
from pixiu.model.errors import Conflict, RequestError

GRACE = 60_000
keys = st.integers(0, 2**63 - 1)


def counts(count: int, registered: int, *, version: int = 0) -> Counts:
    made = Counts(grace_ms=GRACE)
    made.seen(count, version, range(registered), 0)
    return made


def phase(split: Counts) -> SplitPhase:
    return split.phase


@pytest.mark.feature("X14")
@given(keys, st.sampled_from([1, 2, 4, 8, 64]))
def test_news_goes_to_both_twins_while_splitting_and_questions_to_the_old_one(key: int, count: int) -> None:
    # X14.
    splitting = counts(count, 2 * count)
    assert phase(splitting) is SplitPhase.SPLITTING
    assert splitting.writes_to(key) == [key % count, key % count + count]
    assert splitting.reads_from(key) == key % count
    assert splitting.seen(2 * count, 1, range(2 * count), 1_000)
    assert phase(splitting) is SplitPhase.FLIPPED
    assert splitting.writes_to(key) == [key % (2 * count)]
    assert splitting.reads_from(key) == key % (2 * count)


@pytest.mark.feature("X17")
@given(keys, st.sampled_from([1, 2, 4, 8]))
def test_what_moved_is_kept_for_a_grace_and_then_nobody_has_it_twice(key: int, count: int) -> None:
    # X17, E19.
    split = counts(count, 2 * count)
    split.seen(2 * count, 1, range(2 * count), 1_000)
    assert [each for each in range(2 * count) if split.keeps(each, key)] == [key % count, key % count + count]
    assert [each for each in range(2 * count) if split.answers(each, key)] == [key % (2 * count)]
    assert not split.cleans(GRACE)
    assert split.cleans(GRACE + 1_000)
    assert not split.cleans(GRACE + 1_000), "once"
    assert split.phase is SplitPhase.STABLE
    assert [each for each in range(2 * count) if split.keeps(each, key)] == [key % (2 * count)]


def test_a_process_that_starts_after_a_flip_has_nothing_to_clean() -> None:
    late = counts(4, 4, version=9)
    assert late.phase is SplitPhase.STABLE
    assert not late.cleans(10 * GRACE)


@pytest.mark.feature("X17")
def test_a_process_that_starts_during_the_grace_keeps_as_much_as_those_who_were_there() -> None:
    late = Counts(grace_ms=GRACE)
    late.seen(4, 9, range(4), 1_000, grace_left_ms=20_000)
    assert phase(late) is SplitPhase.FLIPPED
    assert late.keeps(1, 3) and late.reads_from(3) == 3
    late.seen(4, 9, range(4), 2_000, grace_left_ms=19_000)
    assert not late.cleans(20_999)
    assert late.cleans(21_000)
    assert not late.keeps(1, 3)
    long = Counts(grace_ms=GRACE)
    long.seen(4, 9, range(4), 0, grace_left_ms=10 * GRACE)  # the clocks of two machines differ
    assert long.cleans(GRACE)


def test_old_news_of_the_count_is_not_taken() -> None:
    split = counts(2, 4, version=5)
    split.seen(4, 6, range(4), 0)
    assert not split.seen(2, 5, range(4), 1)
    assert (split.count, split.version) == (4, 6)


def test_an_abandoned_doubling_goes_back_to_single_writes() -> None:
    split = counts(2, 4)
    split.seen(2, 0, range(2), 10)
    assert split.phase is SplitPhase.STABLE
    assert split.writes_to(5) == [1]


READY = {0: 2, 1: 2, 2: 2, 3: 2}


@pytest.mark.feature("X16")
def test_a_flip_needs_every_replica_of_every_new_partition() -> None:
    # X16, E51.
    assert check_flip(2, 7, READY, {}, replicas=2, is_clean=True) == Flip(4, 7)
    with pytest.raises(Conflict, match="partition 3 has 1 replicas that are not Running"):
        check_flip(2, 7, READY, {3: 1}, replicas=2, is_clean=True)
    with pytest.raises(Conflict, match="partition 3 has 1 of 2 replicas Running"):
        check_flip(2, 7, {**READY, 3: 1}, {}, replicas=2, is_clean=True)
    with pytest.raises(Conflict, match="partition 2 has 0 of 1"):
        check_flip(2, 7, {0: 1, 1: 1, 3: 1}, {}, replicas=1, is_clean=True)
    with pytest.raises(Conflict, match="not over"):
        check_flip(2, 7, READY, {}, replicas=2, is_clean=False)
    with pytest.raises(RequestError, match="partition 5 is beyond 4"):
        check_flip(2, 7, {**READY, 5: 1}, {}, replicas=2, is_clean=True)
    with pytest.raises(ValueError, match="power of two"):
        check_flip(256, 7, {}, {}, replicas=1, is_clean=True)
