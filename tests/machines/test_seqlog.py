"""Numbered news: whatever is lost, doubled and reordered, all of it comes in the end, or a snapshot is asked for."""

import random

import pytest

from pixiu.machines.seqlog import ASKED_MAX, Heard, Missing, Told


def lacks(heard: Heard) -> bool:
    return heard.needs_snapshot


def test_numbers_are_dense_and_repeats_are_known() -> None:
    told: Told[str] = Told(1)
    heard = Heard()
    assert [told.tell(each) for each in "abc"] == [1, 2, 3]
    assert [heard.heard(1, number) for number in (1, 3, 3, 2, 2, 1)] == [True, True, False, True, False, False]
    assert heard.position == 3
    assert heard.missing() == []


def test_holes_are_named_and_filled() -> None:
    told: Told[str] = Told(1)
    for each in "abcdefghij":
        told.tell(each)
    heard = Heard()
    for number in (1, 4, 5, 9):
        heard.heard(1, number)
    assert heard.missing() == [Missing(2, 3), Missing(6, 8)]
    assert told.again(Missing(6, 8)) == [(6, "f"), (7, "g"), (8, "h")]
    assert told.again(Missing(9, 99)) == [(9, "i"), (10, "j")]
    heard.reaches(1, 10)
    assert heard.missing()[-1] == Missing(10, 10), "what is lost at the end shows by a heartbeat"
    for hole in heard.missing():
        for number, _ in told.again(hole) or ():
            assert heard.heard(1, number)
    assert (heard.position, heard.missing()) == (10, [])


def test_what_is_not_kept_any_more_needs_a_snapshot() -> None:
    told: Told[int] = Told(1, kept_max=3)
    for number in range(10):
        told.tell(number)
    assert told.after(7) == [(8, 7), (9, 8), (10, 9)]
    assert told.after(10) == []
    assert told.after(6) is None
    heard = Heard()
    heard.reaches(1, 10)
    heard.gone()
    assert lacks(heard)
    heard.begin(1, 10)
    assert not lacks(heard)
    assert heard.missing() == []


def test_a_new_life_counts_anew_and_the_old_one_is_over() -> None:
    heard = Heard()
    heard.begin(5, 100)
    assert heard.heard(5, 101)
    assert not lacks(heard)
    assert heard.heard(6, 3)
    assert lacks(heard), "nobody tells the end of the life before"
    assert heard.missing() == [Missing(1, 2)]
    assert not heard.heard(5, 102)
    heard.begin(5, 200)
    heard.reaches(5, 300)
    assert (heard.life, heard.position) == (6, 0)


def test_a_hole_that_stays_too_long_is_given_up_by_name() -> None:
    heard = Heard(ahead_max=10)
    heard.begin(1, 0)
    for number in range(2, 12):
        assert heard.heard(1, number)
    assert not lacks(heard)
    assert heard.heard(1, 12)
    assert lacks(heard)
    assert heard.position == 12


def test_holes_are_asked_for_in_bounded_numbers() -> None:
    heard = Heard()
    for number in range(2, 1_000, 2):
        heard.heard(1, number)
    assert heard.missing() == [Missing(number, number) for number in range(1, 2 * ASKED_MAX, 2)]


@pytest.mark.feature("X34")
@pytest.mark.parametrize("seed", range(60))
def test_everything_comes_over_a_bad_link(seed: int) -> None:
    # X34: also over a change of source and a restart of the origin.
    dice = random.Random(seed)
    told: Told[int] = Told(1, kept_max=60)
    heard, got, truth = Heard(), set[int](), set[int]()
    link: list[tuple[int, int, int]] = []
    serial = 0
    for step in range(600):
        if step < 400 and dice.random() < 0.5:
            serial += 1
            truth.add(serial)
            link += [(told.life, told.tell(serial), serial)] * dice.choice([0, 1, 1, 1, 2])
        if step < 400 and dice.random() < 0.01:
            told = Told(told.life + 1, kept_max=60)
        if link and dice.random() < 0.7:
            life, number, news = link.pop(dice.randrange(min(len(link), 6)))
            if heard.heard(life, number):
                got.add(news)
        if dice.random() < 0.2:
            heard.reaches(told.life, told.position)
            for hole in heard.missing():
                again = told.again(hole)
                if again is None:
                    heard.gone()
                    break
                link += [(told.life, number, news) for number, news in again if dice.random() < 0.8]
                del link[200:]
        if heard.needs_snapshot:
            got |= truth
            heard.begin(told.life, told.position)
    heard.reaches(told.life, told.position)
    if heard.needs_snapshot:
        got |= truth
        heard.begin(told.life, told.position)
    while link or heard.missing():
        for hole in heard.missing():
            link += [(told.life, number, news) for number, news in told.again(hole) or ()]
        life, number, news = link.pop()
        if heard.heard(life, number):
            got.add(news)
    assert got == truth
