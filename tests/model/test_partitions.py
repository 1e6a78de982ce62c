"""Partitions, replicas, slices: every rule by its checklist id."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.partitions import (
    SLICE_ROOMS_BEGIN,
    SLICES,
    check_count,
    owners,
    owns,
    partition_of,
    ranked,
    replica_of,
    router_partitions,
    slice_of,
    slices,
)

COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
keys = st.integers(0, 2**63 - 1)


@pytest.mark.feature("X08")
@given(keys, st.sampled_from(COUNTS))
def test_exactly_one_partition_answers_for_a_key(key: int, count: int) -> None:
    # X08.
    assert [partition for partition in range(count) if owns(partition, key, count)] == [partition_of(key, count)]


@pytest.mark.feature("X14")
@given(keys, st.sampled_from(COUNTS[:-1]))
def test_while_a_count_doubles_both_twins_get_every_write_and_one_afterwards(key: int, count: int) -> None:
    # X14.
    assert owners(key, count, range(2 * count)) == [key % count, key % count + count]
    assert owners(key, 2 * count, range(2 * count)) == [key % (2 * count)]


@pytest.mark.feature("X18")
@pytest.mark.parametrize("count", [0, -2, 3, 6, 12, 512])
def test_a_count_is_a_power_of_two(count: int) -> None:
    # X18.
    with pytest.raises(ValueError, match="power of two"):
        check_count(count)


@pytest.mark.feature("X18")
def test_a_count_only_doubles() -> None:
    # X18.
    check_count(8, before=4)
    for wrong in (4, 16, 2):
        with pytest.raises(ValueError, match="double to 8"):
            check_count(wrong, before=4)


@pytest.mark.feature("X09")
def test_every_replica_of_every_partition_gets_its_share() -> None:
    # X09, E3: with a plain remainder half of the replicas and more would never be asked.
    for replicas in range(1, 9):
        ids = [3 + 7 * index for index in range(replicas)]
        rooms = 8 * 1_500 * replicas
        chosen = [replica_of(room, ids) for room in range(rooms)]
        for count in (1, 2, 4, 8):
            shares = Counter((partition_of(room, count), replica) for room, replica in enumerate(chosen))
            fair = rooms / count / replicas
            assert len(shares) == count * replicas
            assert all(abs(share - fair) <= 0.1 * fair for share in shares.values())


@given(keys, st.sets(st.integers(0, 10**10), min_size=2, max_size=12))
def test_when_a_replica_goes_only_its_own_keys_move(key: int, replicas: set[int]) -> None:
    # E4.
    chosen = replica_of(key, sorted(replicas))
    for gone in replicas - {chosen}:
        assert replica_of(key, sorted(replicas - {gone})) == chosen
    assert ranked(key, replicas)[0] == chosen
    assert ranked(key, replicas)[1] == replica_of(key, sorted(replicas - {chosen}))


def test_shares_follow_weights_and_only_what_must_move_moves() -> None:
    replicas = [1, 2, 3]
    even = {room: replica_of(room, replicas, dict.fromkeys(replicas, 1.0)) for room in range(30_000)}
    slow = {room: replica_of(room, replicas, {1: 1.0, 2: 0.125, 3: 1.0}) for room in range(30_000)}
    shares = Counter(slow.values())
    assert shares[2] == pytest.approx(30_000 * 0.125 / 2.125, rel=0.1)
    assert all(even[room] == 2 or slow[room] == even[room] for room in even)
    assert replica_of(7, replicas, {1: 0.0, 2: 0.0, 3: 1.0}) == 3


def test_nobody_to_choose_from_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no replica"):
        replica_of(1, [])


@pytest.mark.feature("X33")
@pytest.mark.parametrize("broker_count", COUNTS[:7])
@pytest.mark.parametrize("router_count", COUNTS[:7])
def test_a_broker_asks_exactly_the_routers_that_carry_its_rooms(broker_count: int, router_count: int) -> None:
    # X33, E17: also for brokers that are joining, whose number is not below the count yet.
    rooms = range(4 * max(broker_count, router_count))
    for broker in range(2 * broker_count):
        mine = {partition_of(room, router_count) for room in rooms if owns(broker, room, broker_count)}
        assert set(router_partitions(broker, broker_count, router_count)) == mine


@pytest.mark.feature("X23")
def test_a_big_room_is_64_rooms_that_nothing_else_uses() -> None:
    # X23, E7.
    assert len(slices(0)) == SLICES == 64
    assert slices(1)[0] == slices(0)[-1] + 1 >= SLICE_ROOMS_BEGIN
    users = Counter(slice_of(5, user) for user in range(10_000))
    assert set(users) == set(slices(5))
    assert all(abs(count - 10_000 / 64) <= 0.2 * 10_000 / 64 for count in users.values())
    with pytest.raises(ValueError, match="big room"):
        slices(-1)
