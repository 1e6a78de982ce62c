"""Routes: any order, any repeats, the same table; snapshots and digests repair what is wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.machines.routes import Digest, RouteRow, RouteTable, nobody

histories = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6), st.booleans()), max_size=30).map(
    lambda steps: [
        RouteRow(room, f"room {room}", session, session, 1 + session % 2, version, is_in)
        for version, (room, session, is_in) in enumerate(steps, 1)
    ]
)


def table_of(rows: list[RouteRow]) -> RouteTable:
    table = RouteTable()
    for row in rows:
        table.apply(row)
    return table


def content(table: RouteTable) -> list[RouteRow]:
    return sorted(table.rows())


@pytest.mark.feature("X36", "X38")
@settings(max_examples=50)
@given(histories, st.randoms(use_true_random=False))
def test_any_order_and_any_repeats_give_the_same_table(rows: list[RouteRow], rng: object) -> None:
    mixed = rows * 2
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    told, came = table_of(rows), table_of(mixed)
    assert content(came) == content(told)
    assert came.digest() == told.digest()
    assert [came.digest_of(gateway) for gateway in (1, 2)] == [told.digest_of(gateway) for gateway in (1, 2)]


@settings(max_examples=50)
@given(histories)
def test_digests_are_what_the_rows_come_to(rows: list[RouteRow]) -> None:
    table = table_of(rows)
    again = RouteTable()
    for row in content(table):
        again.apply(row)
    for count in (1, 2, 4):
        parts = [table.digest(partition, count) for partition in range(count)]
        assert sum(part.size for part in parts) == len(table)
        assert parts == [again.digest(partition, count) for partition in range(count)]
    assert table.digest(1, 2, of=(1, 4)) == table.digest(1, 4)
    assert table.digest(0, 2, of=(1, 2)) == Digest(0, 0)


@settings(max_examples=50)
@given(histories, st.lists(st.booleans(), min_size=30, max_size=30))
def test_a_snapshot_makes_up_for_whatever_never_came(rows: list[RouteRow], came: list[bool]) -> None:
    truth = table_of(rows)
    other = table_of([row for row, has_come in zip(rows, came, strict=False) if has_come])
    mark = max((row.version for row in rows), default=0)
    other.snapshot(truth.rows(), {1: mark, 2: mark})
    assert content(other) == content(truth)
    assert other.digest() == truth.digest()


def test_what_is_newer_than_a_snapshot_stays() -> None:
    table = table_of([RouteRow(1, "r", 5, 5, 9, 7, is_in=True)])
    assert table.snapshot([], {9: 6}) == []
    assert len(table) == 1
    assert [row.is_in for row in table.snapshot([], {9: 7})] == [False]
    assert table.apply(RouteRow(1, "r", 5, 5, 9, 7, is_in=True)) == [], "late news does not bring it back"
    assert len(table) == 0


@pytest.mark.feature("X40", "X17")
def test_purge_and_keep() -> None:
    table = table_of([RouteRow(room, "", 1, room, 1 + room % 2, room, is_in=True) for room in range(1, 9)])
    gone = table.purge(1)
    assert {row.room for row in gone} == {2, 4, 6, 8} and not any(row.is_in for row in gone)
    assert table.digest_of(1) == Digest(0, 0)
    table.keep(1, 4)
    assert {row.room for row in table.rows()} == {1, 5}
    assert table.purge(1) == []
    again = RouteRow(2, "", 1, 2, 1, 2, is_in=True)
    assert table.apply(again) == [again], "a gateway that was only taken for dead comes back with the same versions"


@pytest.mark.feature("X39")
def test_nobody_is_about_what_was_before() -> None:
    rows = [RouteRow(1, "r", 5, 5, 9, 3, is_in=True), RouteRow(1, "r", 6, 6, 9, 8, is_in=True)]
    table = table_of(rows)
    assert [row.session_id for row in table.apply(nobody(1, "r", 9, 7))] == [5]
    assert [row.session_id for row in table.of(1)] == [6], "it has entered since"
    assert table.apply(nobody(1, "r", 8, 99)) == [], "another gateway's"


def test_leaves_are_remembered_within_a_bound() -> None:
    table = RouteTable(gone_max=2)
    for session_id in range(1, 5):
        table.apply(RouteRow(1, "r", 1, session_id, 9, 10 + session_id, is_in=False))
    assert table.apply(RouteRow(1, "r", 1, 4, 9, 1, is_in=True)) == []
    assert table.apply(RouteRow(1, "r", 1, 1, 9, 1, is_in=True)) != [], "forgotten; a digest will find it"
