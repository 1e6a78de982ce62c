"""A contender for a lock: never believes in it longer than the store does, never gives up for good."""

import random

import pytest

from pixiu.machines.tenure import Renew, Stop, Tenure, TenureRules, Try

RULES = TenureRules(expire_ms=30_000, renew_ms=25_000, retry_ms=20_000, again_ms=500, margin_ms=1_000)


def held(at_ms: int = 0) -> Tenure:
    tenure = Tenure(RULES)
    assert tenure.poll(at_ms) == Try()
    assert tenure.granted(at_ms + 10) is None
    return tenure


def test_it_tries_at_once_and_then_every_twenty_seconds() -> None:
    tenure = Tenure(RULES)
    assert not tenure.is_held(0)
    assert tenure.poll(0) == Try()
    assert tenure.poll(1) is None, "one request at a time"
    assert tenure.refused(5) is None
    assert tenure.poll(20_004) is None
    assert tenure.due_ms(20_004) == 1
    assert tenure.poll(20_005) == Try()


def test_a_grant_counts_from_when_it_was_asked_for() -> None:
    tenure = Tenure(RULES)
    tenure.poll(0)
    tenure.granted(4_000)  # the answer took four seconds
    assert tenure.is_held(28_999)
    assert not tenure.is_held(29_000), "the store may have granted at 0"


def test_an_answer_that_comes_after_the_end_is_no_grant() -> None:
    tenure = Tenure(RULES)
    tenure.poll(0)
    assert tenure.granted(29_000) is None
    assert not tenure.is_held(29_000)
    assert tenure.poll(29_000) == Try()


def test_it_is_renewed_after_twenty_five_seconds_and_again_and_again_until_time_is_up() -> None:
    tenure = held()
    assert tenure.poll(24_999) is None
    assert tenure.poll(25_000) == Renew()
    tenure.failed(26_000)
    assert tenure.poll(26_400) is None
    assert tenure.poll(26_500) == Renew()
    assert tenure.granted(26_600) is None
    assert tenure.is_held(55_499) and not tenure.is_held(55_500)


def test_without_an_answer_the_holder_stops_before_the_lock_runs_out() -> None:
    tenure = held()
    assert tenure.poll(25_000) == Renew()
    assert tenure.poll(28_999) is None
    assert tenure.poll(29_000) == Stop()
    assert not tenure.is_held(29_000)
    assert tenure.granted(29_001) is None, "the renewal of 25,000 holds until 54,000"
    assert tenure.is_held(29_001)


def test_a_refused_renewal_stops_at_once_and_tries_later() -> None:
    tenure = held()
    tenure.poll(25_000)
    assert tenure.refused(25_010) == Stop()
    assert not tenure.is_held(25_010)
    assert tenure.poll(45_009) is None
    assert tenure.poll(45_010) == Try()


def test_times_that_leave_no_room_for_a_renewal_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be renewed after 29500 ms"):
        Tenure(RULES._replace(renew_ms=29_500))


@pytest.mark.parametrize("seed", range(30))
def test_of_two_contenders_and_an_unreliable_store_at_most_one_believes(seed: int) -> None:
    """The store is honest and slow; requests and answers get lost."""
    chance = random.Random(seed)
    contenders = {name: Tenure(RULES) for name in "ab"}
    owner, until_ms = "", 0
    answers: list[tuple[int, str, bool | None]] = []
    turns = set()
    for now_ms in range(0, 400_000, 50):
        for at_ms, name, answer in [each for each in answers if each[0] <= now_ms]:
            answers.remove((at_ms, name, answer))
            if answer is None:
                contenders[name].failed(now_ms)
            else:
                (contenders[name].granted if answer else contenders[name].refused)(now_ms)
        for name, tenure in contenders.items():
            if isinstance(tenure.poll(now_ms), Try | Renew):
                is_lost = chance.random() < 0.2
                if not is_lost:
                    if owner == name or now_ms >= until_ms:
                        owner, until_ms = name, now_ms + RULES.expire_ms
                    is_granted = owner == name
                    is_lost = chance.random() < 0.2
                answers.append((now_ms + chance.randrange(50, 3_000), name, None if is_lost else is_granted))
        believers = [name for name, tenure in contenders.items() if tenure.is_held(now_ms)]
        assert len(believers) <= 1
        assert not believers or (believers[0] == owner and now_ms < until_ms)
        turns.update(believers)
        if chance.random() < 0.0005:
            contenders[chance.choice("ab")] = Tenure(RULES)  # a restart forgets
    assert turns, "somebody got it"
