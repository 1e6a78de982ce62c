"""When a leader's next batch leaves: with what a turn brings, and not behind a larger one."""

from pixiu.queue.gathering import GATHER_TURNS_MAX, UNCOMMITTED_BATCHES_MAX, Gathering


def turns_until_it_leaves(gathering: Gathering, *waiting: int) -> int:
    """In how many turns a batch gathers, when so much waits in each; the last stays."""
    turns = 0
    while gathering.grows(waiting[min(turns, len(waiting) - 1)]):
        turns += 1
    return turns


def test_a_lone_request_waits_for_one_turn_that_brings_nothing() -> None:
    assert turns_until_it_leaves(Gathering(), 10) == 1


def test_it_is_gathered_as_long_as_each_turn_brings_more() -> None:
    assert turns_until_it_leaves(Gathering(), 10, 20, 30, 30) == 3


def test_it_is_not_gathered_for_ever() -> None:
    assert turns_until_it_leaves(Gathering(), *range(1, 1000)) == GATHER_TURNS_MAX


def test_the_next_batch_gathers_anew() -> None:
    gathering = Gathering()
    turns_until_it_leaves(gathering, *range(1, 1000))
    gathering.left(999)
    assert turns_until_it_leaves(gathering, 10) == 1


def test_one_that_had_to_wait_gathers_anew_when_it_is_looked_at_again() -> None:
    gathering = Gathering()
    turns_until_it_leaves(gathering, 10)
    assert turns_until_it_leaves(gathering, 10, 20) == 2, "answers have gone out, and bring requests"


def test_a_second_batch_leaves_if_it_is_as_large_as_the_first() -> None:
    gathering = Gathering()
    gathering.left(100)
    assert not gathering.may_leave(99, under_way=1)
    assert gathering.may_leave(100, under_way=1)


def test_no_more_than_two_are_under_way() -> None:
    gathering = Gathering()
    gathering.left(1)
    assert not gathering.may_leave(10**9, under_way=UNCOMMITTED_BATCHES_MAX)


def test_behind_nothing_any_batch_leaves() -> None:
    gathering = Gathering()
    gathering.left(100)
    assert gathering.may_leave(1, under_way=0)
