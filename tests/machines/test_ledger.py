"""Ledger rows: merged by inbox, in columns, cut into records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.ledger import ROWS_MAX, LedgerRows
from pixiu.model.pixiu_pb2 import Ledger, Record, Rows

AT = 1_760_000_000_000
WEB = (1, "web")
IOS = (1, "ios")


def rows_of(ledger: Ledger, rows: Rows) -> list[tuple[int, str, int, int]]:
    names = [ledger.platforms[index] for index in rows.platform]
    return list(zip(rows.user, names, rows.first, rows.through, strict=True))


def take_one(rows: LedgerRows) -> Ledger:
    (payload,) = rows.take(AT)
    record = Record.FromString(payload)
    assert record.at == AT
    assert record.WhichOneof("what") == "ledger"
    return record.ledger


def test_no_rows_make_no_record() -> None:
    assert LedgerRows().take(AT) == []


def test_ranges_that_adjoin_become_one_row_per_inbox() -> None:
    rows = LedgerRows()
    rows.acked.add(WEB, 1, 3)
    rows.acked.add(IOS, 4, 4)
    rows.acked.add(WEB, 4, 9)
    rows.acked.add(WEB, 11, 12)
    ledger = take_one(rows)
    assert rows_of(ledger, ledger.acked) == [(1, "web", 1, 9), (1, "ios", 4, 4), (1, "web", 11, 12)]
    assert rows.count == 0
    assert rows.take(AT) == []


def test_kinds_are_apart() -> None:
    rows = LedgerRows()
    for index, kind in enumerate((rows.handed, rows.acked, rows.resent, rows.expired, rows.dead), 1):
        kind.add(WEB, index, index)
    assert rows.count == 5
    ledger = take_one(rows)
    assert rows_of(ledger, ledger.handed) == [(1, "web", 1, 1)]
    assert rows_of(ledger, ledger.acked) == [(1, "web", 2, 2)]
    assert rows_of(ledger, ledger.resent) == [(1, "web", 3, 3)]
    assert rows_of(ledger, ledger.expired) == [(1, "web", 4, 4)]
    assert rows_of(ledger, ledger.dead) == [(1, "web", 5, 5)]
    assert list(ledger.platforms) == ["web"]


def test_what_is_sent_again_twice_is_two_rows() -> None:
    rows = LedgerRows()
    rows.resent.add(WEB, 1, 3)
    rows.resent.add(WEB, 1, 3)
    ledger = take_one(rows)
    assert rows_of(ledger, ledger.resent) == [(1, "web", 1, 3)] * 2


def test_a_record_is_bounded_and_acks_come_last() -> None:
    rows = LedgerRows()
    for user in range(ROWS_MAX):
        rows.acked.add((user, "web"), 1, 1)
    for user in range(ROWS_MAX + 5):
        rows.expired.add((user, "ios"), 1, 1)
    ledgers = [Record.FromString(payload).ledger for payload in rows.take(AT)]
    assert [(len(each.expired.user), len(each.acked.user)) for each in ledgers] == [
        (ROWS_MAX, 0),
        (5, ROWS_MAX - 5),
        (0, 5),
    ]
    assert rows_of(ledgers[1], ledgers[1].acked)[0] == (0, "web", 1, 1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["handed", "acked", "dead"]), st.integers(1, 3), st.sampled_from(["web", "ios"])),
        max_size=60,
    )
)
def test_merging_keeps_every_useq(events: list[tuple[str, int, str]]) -> None:
    rows = LedgerRows()
    expected: dict[str, set[tuple[int, str, int]]] = {"handed": set(), "acked": set(), "dead": set()}
    for useq, (kind, user, platform) in enumerate(events, 1):
        getattr(rows, kind).add((user, platform), useq, useq)
        expected[kind].add((user, platform, useq))
    found: dict[str, set[tuple[int, str, int]]] = {kind: set() for kind in expected}
    for payload in rows.take(AT):
        ledger = Record.FromString(payload).ledger
        for kind, covered in found.items():
            for user, platform, first, through in rows_of(ledger, getattr(ledger, kind)):
                covered |= {(user, platform, useq) for useq in range(first, through + 1)}
    assert found == expected
