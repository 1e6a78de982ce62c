"""Traces: rows in columns, one record, bounds that are told."""

from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.ledger import LedgerRows, stamps_of
from pixiu.machines.traces import ACCEPT, PUSH, ROOMS_MAX, ROWS_MAX, Flush, TraceRows, flushes_in
from pixiu.model.pixiu_pb2 import Flushes, Record, Traces

AT = 1_760_000_000_000
WEB = (1, "web")


def taken(rows: TraceRows) -> Traces:
    (payload,) = rows.take(AT)
    record = Record.FromString(payload)
    assert (record.at, record.WhichOneof("what")) == (AT, "traces")
    return record.traces


def test_no_rows_make_no_record() -> None:
    rows = TraceRows(hop_sample=1)
    assert rows.take(AT) == rows.take_rooms(AT) == rows.take_sessions(AT) == []


@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**43), st.integers(0, 2**32 - 1)), min_size=1))
def test_flushes_come_back_as_they_were(flushes: list[tuple[int, int, int]]) -> None:
    rows = TraceRows(node=5, hop_sample=1)
    rows.begin_after(7)
    for each in flushes:
        rows.flushed(*each)
    traces = taken(rows)
    assert traces.node == 5
    before = [7, *(event for event, _, _ in flushes)]
    assert list(flushes_in(traces.flushes)) == [
        Flush(after, *each) for after, each in zip(before, flushes, strict=False)
    ]
    rows.flushed(2**41, AT, 1)
    assert taken(rows).flushes.after == flushes[-1][0]  # the next record goes on where this one ended


def test_columns_that_do_not_fit_make_no_rows() -> None:
    assert list(flushes_in(Flushes(event=[1, 2], at=[1], applied_us=[1, 2]))) == []


def test_one_in_so_many_timings_is_kept() -> None:
    rows = TraceRows(hop_sample=3)
    for number in range(7):
        rows.timed(ACCEPT if number % 2 else PUSH, f"link{number}", number)
    timings = taken(rows).timings
    assert list(timings.us) == [0, 3, 6]
    assert [timings.links[index] for index in timings.link] == ["link0", "link3", "link6"]
    assert list(timings.hop) == [PUSH, ACCEPT, PUSH]


def test_without_a_sample_there_are_no_hops_but_sessions() -> None:
    rows = TraceRows()
    rows.flushed(1, AT, 1)
    rows.timed(ACCEPT, "0", 1)
    assert rows.take(AT) == []
    rows.session(9, 1, "web", "local", AT, is_open=True)
    assert taken(rows).sessions.now == 1


def test_the_peak_is_that_since_the_record_before() -> None:
    rows = TraceRows()
    for number in range(3):
        rows.session(number, 1, "web", "local", AT + number, is_open=True)
    rows.session(0, 1, "web", "local", AT + 9, is_open=False)
    sessions = taken(rows).sessions
    assert (sessions.now, sessions.peak) == (2, 3)
    assert list(sessions.is_open) == [True, True, True, False]
    (payload,) = rows.take_sessions(AT)
    again = Record.FromString(payload).traces.sessions
    assert (again.now, again.peak, len(again.session)) == (2, 2, 0)


def test_the_first_row_and_a_full_record_are_told() -> None:
    told: list[bool] = []
    rows = TraceRows(hop_sample=1, added=told.append)
    for number in range(ROWS_MAX):
        rows.timed(ACCEPT, "0", number)
    assert told == [False, True]
    rows.take(AT)
    rows.timed(ACCEPT, "0", 1)
    assert told == [False, True, False]


def test_rooms_are_summed_up() -> None:
    rows = TraceRows()
    assert not rows.room("hall", AT, 2, 20, 100, 10, 9)
    rows.room("hall", AT + 1000, 3, 36, 50, 12, 8)
    (payload,) = rows.take_rooms(AT + 60_000)
    rooms = Record.FromString(payload).traces.rooms
    assert (rooms.since, list(rooms.room), list(rooms.messages), list(rooms.deliveries)) == (AT, ["hall"], [5], [56])
    assert (list(rooms.bytes), list(rooms.members), list(rooms.users)) == ([150], [12], [9])
    full = [rows.room(f"room{number}", AT, 1, 1, 1, 1, 1) for number in range(ROOMS_MAX)]
    assert full.index(True) == ROOMS_MAX - 1


def test_hand_overs_name_their_last_message() -> None:
    rows = LedgerRows()
    rows.handed.add(WEB, 1, 2, 1000, "local")
    rows.handed.add(WEB, 3, 3, 1001, "local")  # adjoins: one row, with the newer message
    rows.handed.add((2, "ios"), 1, 1, 900, "local")
    rows.handed.add(WEB, 4, 4, 1002, "local", True)  # had waited: another row
    rows.handed.add((3, "ios"), 1, 1, 1003, "far")
    (payload,) = rows.take(AT)
    ledger = Record.FromString(payload).ledger
    assert list(ledger.handed.through) == [3, 1, 4, 1]
    messages, gateways, waited = stamps_of(ledger.handed, ledger.gateways)
    assert messages == [1001, 900, 1002, 1003]
    assert gateways == ["local", "local", "local", "far"]
    assert waited == [False, False, True, False]


def test_what_is_the_same_for_all_is_left_out_and_old_rows_have_no_stamps() -> None:
    rows = LedgerRows()
    rows.handed.add(WEB, 1, 1, 1000, "local")
    (payload,) = rows.take(AT)
    ledger = Record.FromString(payload).ledger
    assert not ledger.handed.gateway
    assert not ledger.handed.waited
    assert stamps_of(ledger.handed, ledger.gateways) == ([1000], ["local"], [False])
    del ledger.handed.message[:]
    assert stamps_of(ledger.handed, ledger.gateways) == ([0], [None], [None])
