"""An audit names each row of a timeline and each body that is missing, and nothing else, whatever goes on meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.pixiu_pb2 import HistoryTrimmed, Record, UserErased
from pixiu.model.timeline import GroupRow, PrivateRow
from pixiu.roles.carrier import histories
from pixiu.roles.carrier.appliers import LANES
from pixiu.roles.carrier.audit import NAMED_MAX, Audit, AuditReport
from pixiu.roles.carrier.cut import take_cut
from tests.roles.carrier.test_replay import USERS, numbers, randoms, records, trims
from tests.roles.carrier.world import (
    ANNA,
    AT,
    BERT,
    CARL,
    Applied,
    group_made,
    push,
    recall,
    say,
    send,
    user,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.ports.stores import Stores

BEGINNING = [*map(user, USERS), group_made(7, 1, [2, 3]), group_made(8, 2, [1, 4])]
erased = st.builds(lambda number: Record(at=AT, actor=number, erased=UserErased(user=number)), numbers)
scripts = st.lists(st.one_of(records, records, records, trims, erased), min_size=1, max_size=36)


@pytest.fixture(params=["memory", "embedded"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "memory":
        yield MemoryStores()
        return
    opened = EmbeddedStores(RocksKeyValue(tmp_path / "stores"))
    yield opened
    opened.close()


def trio(stores: Stores) -> tuple[Applied, list[int], list[int]]:
    """A group of three; what was said between two of them, and in the group."""
    world = Applied(*map(user, (ANNA, BERT, CARL)), group_made(7, ANNA, [BERT, CARL]), stores=stores)
    private = [world.apply(send(ANNA, BERT, at=AT + number)) for number in range(5)]
    in_group = [world.apply(say(BERT, 7)) for _ in range(5)]
    stores.commit(dict.fromkeys(LANES, len(world.log)))
    return world, private, in_group


def audited(
    world: Applied,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    catch_up: Callable[[], object] = lambda: None,
    at_least: int = 0,
    before: int | None = None,
) -> AuditReport:
    """The books as of now; then something happens before every page, and where the stores must have caught up."""
    audit = Audit(MemoryStores(), at_least=at_least, before=before)
    for record in world.log:
        audit.take(record)
    audit.close(take_cut(world.stores, len(world.log)))
    left = audit.histories(world.stores)
    for has_doubts in left.comparing():
        if has_doubts:
            catch_up()
            for _ in left.replaying(world.log[left.through :]):
                pass
            left.through = len(world.log)
        else:
            meanwhile()
    return audit.report


def found(report: AuditReport) -> list[tuple[object, ...]]:
    assert not report.balanced
    assert (report.lost_count, report.duplicate_count) == (len(report.lost), len(report.duplicates))
    return named(report)


def named(report: AuditReport) -> list[tuple[object, ...]]:
    """What is not in an inbox is found by the first half."""
    return [
        (kind, row.get("user", row.get("group")), int(str(row["message_id"])), row["reason"])
        for kind, rows in (("lost", report.lost), ("twice", report.duplicates))
        for row in rows
        if "platform" not in row
    ]


def test_all_that_is_there_is_compared(stores: Stores) -> None:
    world, private, in_group = trio(stores)
    report = audited(world)
    assert report.balanced, report.as_json()
    assert report.histories == 2 * len(private) + len(in_group) + 1  # with the notice that the group was made
    assert report.as_json()["histories"] == report.histories


@pytest.mark.parametrize("reader", [ANNA, BERT])
def test_a_row_that_is_missing_at_one_side_is_named(stores: Stores, reader: int) -> None:
    world, private, _ = trio(stores)
    stores.timelines.drop_private(reader, through=private[1])
    assert found(audited(world)) == [("lost", reader, each, "not in the history") for each in private[:2]]


def test_a_row_that_is_missing_in_a_group_is_named(stores: Stores) -> None:
    world, _, in_group = trio(stores)
    notice, *_ = stores.timelines.drop_group(7, through=in_group[0])
    report = audited(world)
    assert [row.get("group") for row in report.lost] == [7, 7]
    assert found(report) == [("lost", 7, each, "not in the history") for each in (notice, in_group[0])]


def test_bodies_that_are_missing_are_named_once(stores: Stores) -> None:
    """Of a private message, of a group's, and of a push, which is in no history."""
    world, private, in_group = trio(stores)
    pushed = world.apply(push([ANNA]))
    gone = [private[2], in_group[2], pushed]
    for message_id in gone:
        stores.bodies.release(message_id, 100)
    assert found(audited(world)) == [("lost", None, each, "its body is missing") for each in gone]


def test_rows_that_the_log_does_not_have_are_named(stores: Stores) -> None:
    world, private, in_group = trio(stores)
    world.apply(Record(at=AT, trimmed=HistoryTrimmed(through=private[-1], users=[BERT])))
    stores.timelines.put_private(BERT, PrivateRow(private[0], ANNA, True))
    stores.timelines.put_group(7, GroupRow(private[0], CARL, 0))
    assert sorted(map(str, found(audited(world)))) == sorted(
        str(("twice", owner, private[0], "in the history, and the log has no such row")) for owner in (BERT, 7)
    )
    assert in_group


def test_of_one_who_was_erased_nothing_may_be_left() -> None:
    world, private, _ = trio(MemoryStores())
    world.apply(Record(at=AT, actor=BERT, erased=UserErased(user=BERT)))
    assert audited(world).balanced
    world.stores.timelines.put_private(BERT, PrivateRow(private[0], ANNA, True))
    assert found(audited(world)) == [
        ("twice", BERT, private[0], "in the history, and the log has no such row"),
    ]


def test_only_rows_within_the_time_are_looked_at(stores: Stores) -> None:
    world, private, _ = trio(stores)
    stores.timelines.drop_private(BERT, through=private[0])
    stores.bodies.release(private[0], 100)
    report = audited(world, at_least=AT + 1)
    assert (named(report), report.histories) == ([], 8)
    assert named(audited(world, before=AT + 1)) == [
        ("lost", BERT, private[0], "not in the history"),
        ("lost", None, private[0], "its body is missing"),
    ]


def test_pages_end_where_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row per page, and a loss on each side of a page's end."""
    for page in (1, 2, 3, 5, 6):
        monkeypatch.setattr(histories, "HISTORY_PAGE", page)
        world, private, in_group = trio(MemoryStores())
        assert audited(world).balanced
        timelines = world.stores.timelines
        del timelines._private[BERT][private[2]], timelines._private[ANNA][private[4]]  # type: ignore[attr-defined]
        del timelines._group[7][in_group[4]]  # type: ignore[attr-defined]
        assert {row[1:3] for row in found(audited(world))} == {
            (BERT, private[2]), (ANNA, private[4]), (7, in_group[4]),
        }  # fmt: skip


def test_nobody_waits_for_more_than_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "HISTORY_TURN", 1)
    world, *_ = trio(MemoryStores())
    turns: list[int] = []
    assert audited(world, meanwhile=lambda: turns.append(1)).balanced
    assert len(turns) == 4  # two users, a group, bodies


def test_more_doubts_than_are_held_are_settled_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """And more losses than are named are counted."""
    monkeypatch.setattr(histories, "DOUBTS_MAX", 100)
    world = Applied(*map(user, (ANNA, BERT)))
    sent = [world.apply(send(ANNA, BERT)) for _ in range(NAMED_MAX)]
    for reader in (ANNA, BERT):
        world.stores.timelines.drop_private(reader, through=sent[-1])
    report = audited(world)
    assert (report.lost_count, len(report.lost), report.histories) == (2 * NAMED_MAX, NAMED_MAX, 2 * NAMED_MAX)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda ids: Record(at=AT, trimmed=HistoryTrimmed(through=ids[-1], users=[ANNA, BERT], groups=[7])),
        lambda _: Record(at=AT, actor=BERT, erased=UserErased(user=BERT)),
        lambda ids: recall(ANNA, ids[0], to=BERT),
    ],
)
def test_what_goes_behind_the_cut_is_not_lost(
    change: Callable[[list[int]], Record], is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows or bodies go, and the doubts that come of it are settled by the log; what was lost before, still is."""
    monkeypatch.setattr(histories, "HISTORY_TURN", 1)
    world, private, in_group = trio(MemoryStores())
    if is_lost:
        del world.stores.bodies._bodies[in_group[-1]]  # type: ignore[attr-defined]
    behind = [change(private)]
    report = audited(world, meanwhile=lambda: behind and world.apply(behind.pop()))
    assert not behind
    assert named(report) == ([("lost", None, in_group[-1], "its body is missing")] if is_lost else [])


def test_a_lane_that_is_behind_the_cut_catches_up_first() -> None:
    """A cut is of the inboxes: timelines may have rows that were trimmed before it, and lack some that it has."""
    world, private, _ = trio(MemoryStores())
    late = []
    for parsed in (Record(at=AT, trimmed=HistoryTrimmed(through=private[1], users=[BERT])), send(BERT, CARL)):
        record = world.number(parsed)
        (_, rosters), (_, inboxes), (_, timelines) = world.appliers.lanes
        rosters(record, parsed)
        inboxes(record, parsed)
        late.append((timelines, record, parsed))
    report = audited(world, catch_up=lambda: [timelines(record, parsed) for timelines, record, parsed in late])
    assert report.balanced, report.as_json()
    world.apply(send(BERT, CARL))
    assert audited(world).balanced


@given(scripts, scripts, randoms)
@settings(max_examples=60)
def test_nothing_is_found_while_records_are_applied(
    before: list[Record], behind: list[Record], dice: random.Random
) -> None:
    world = Applied(*BEGINNING, *before)

    def go_on() -> None:
        for _ in range(dice.choice([0, 1, 3])):
            if behind:
                world.apply(behind.pop(0))

    with (
        mock.patch.object(histories, "HISTORY_TURN", 1),
        mock.patch.object(histories, "HISTORY_PAGE", dice.choice([1, 2, 5])),
        mock.patch.object(histories, "DOUBTS_MAX", dice.choice([1, 3, 100])),
    ):
        report = audited(world, meanwhile=go_on)
    assert report.balanced, report.as_json()


@given(scripts, randoms)
@settings(max_examples=40)
def test_every_loss_is_found(script: list[Record], dice: random.Random) -> None:
    world = Applied(*BEGINNING, *script)
    assert audited(world).balanced
    timelines = world.stores.timelines
    private, groups = timelines._private, timelines._group  # type: ignore[attr-defined]
    places = [(tables, owner, each) for tables in (private, groups) for owner, rows in tables.items() for each in rows]
    for table, owner, message_id in dice.sample(places, min(3, len(places))):
        row = table[owner].pop(message_id)
        report = audited(world)
        assert found(report) == [("lost", owner, message_id, "not in the history")]
        table[owner][message_id] = row
