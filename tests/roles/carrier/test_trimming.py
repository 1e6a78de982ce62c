"""History has an end: what is found too old, what a record of it removes, and what stays."""

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.config.messaging import MessagingSettings
from pixiu.model.errors import Unavailable
from pixiu.model.ids import first_id_of
from pixiu.model.pixiu_pb2 import HistoryTrimmed, Record
from pixiu.model.timeline import GroupRow, PrivateRow
from pixiu.ports.sendkeys import Sent
from pixiu.roles.carrier.apply_trim import last_trimmed
from pixiu.roles.carrier.audit import Audit
from pixiu.roles.carrier.cut import take_cut
from pixiu.roles.carrier.rebuild import rebuild
from pixiu.roles.carrier.trimming import KEY_BYTES_MAX, OWNERS_PER_TURN, ROWS_MAX, Trimming, TrimPlan
from tests.roles.carrier.world import (
    ANNA,
    AT,
    BERT,
    CARL,
    World,
    content,
    group_made,
    ledger,
    people,
    read,
    recall,
    rows,
    say,
    send,
    trio,
    user,
)

HISTORY_MS = 10_000
SWEEP_MS = 1_000


def trimmed(through: int, *, users: tuple[int, ...] = (), groups: tuple[int, ...] = (), keys: tuple[bytes, ...] = ()):  # type: ignore[no-untyped-def]
    return Record(at=AT, trimmed=HistoryTrimmed(through=through, users=users, groups=groups, keys=keys))


# What a record does.


def test_rows_go_and_with_the_last_one_the_body() -> None:
    world = people()
    old = world.apply(send(ANNA, BERT, "old"))
    new = world.apply(send(ANNA, BERT, "new"))
    world.apply(ledger(["first"], acked=rows((ANNA, 0, 1, 2), (BERT, 0, 1, 2))))
    timelines, bodies = world.stores.timelines, world.stores.bodies
    assert bodies.references(old) == 2
    world.apply(trimmed(old, users=(ANNA,)))
    assert (bodies.references(old), bodies.references(new)) == (1, 2)
    world.apply(trimmed(old, users=(BERT,)))
    assert (bodies.references(old), bodies.references(new)) == (0, 2)
    assert [row.message_id for row in timelines.private_forward(ANNA)] == [new]
    assert [row.message_id for row in timelines.private_forward(BERT)] == [new]


def test_what_waits_in_an_inbox_keeps_its_body() -> None:
    world = people()
    sent = world.apply(send(ANNA, BERT))
    world.apply(trimmed(sent, users=(ANNA, BERT)))
    assert world.waiting(BERT) == [sent]
    assert world.body(sent).data == b"hi"
    world.apply(ledger(["first"], acked=rows((ANNA, 0, 1, 1), (BERT, 0, 1, 1))))
    assert world.stores.bodies.get([sent]) == {}


def test_the_first_message_behind_a_cut_names_the_last_one_before_it_also_after_a_restart() -> None:
    world = trio()
    before = world.apply(say(ANNA, 7))
    world.apply(trimmed(before, groups=(7,)))
    assert world.stores.timelines.group_forward(7) == []
    assert last_trimmed(world.stores, 7) == before
    first = world.apply(say(BERT, 7))
    kept = type(world)(stores=world.stores)  # appliers that remember nothing
    kept.log = world.log
    world.apply(trimmed(first, groups=(7,)))
    kept.appliers.reached.timelines = len(world.log)
    kept.appliers.reached.rosters = kept.appliers.reached.inboxes = len(world.log)
    second = kept.apply(say(CARL, 7))
    assert world.stores.timelines.group_forward(7) == [GroupRow(second, CARL, first)]


def test_a_cut_that_leaves_something_notes_nothing() -> None:
    world = trio()
    old, new = world.apply(say(ANNA, 7)), world.apply(say(ANNA, 7))
    world.stores.recent.warm(7, [(new, b"new"), (old, b"old")], is_all=True)
    world.apply(trimmed(old, groups=(7,)))
    assert last_trimmed(world.stores, 7) == 0
    assert world.stores.timelines.group_forward(7) == [GroupRow(new, ANNA, old)]
    assert not world.stores.recent.is_warm(7)


def test_unread_counts_stay_and_a_reading_counts_what_is_there() -> None:
    world = people()
    ids = [world.apply(send(ANNA, BERT)) for _ in range(5)]
    world.apply(trimmed(ids[2], users=(ANNA, BERT)))
    [count] = world.stores.unread.of(BERT).values()
    assert count == 5
    world.apply(read(BERT, ids[0], peer=ANNA))
    assert list(world.stores.unread.of(BERT).values()) == [2]
    world.apply(trimmed(ids[4], users=(BERT,)))
    world.apply(read(BERT, ids[0], peer=ANNA))
    assert list(world.stores.unread.of(BERT).values()) == [0]


def test_a_recall_of_what_has_gone_changes_nothing() -> None:
    world = people()
    sent = world.apply(send(ANNA, BERT))
    world.apply(trimmed(sent, users=(ANNA, BERT)))
    world.apply(ledger(["first"], acked=rows((ANNA, 0, 1, 1), (BERT, 0, 1, 1))))
    notice = world.apply(recall(ANNA, sent, to=BERT))
    assert [row.message_id for row in world.stores.timelines.private_forward(BERT)] == [notice]
    assert world.stores.bodies.get([sent]) == {}


def test_send_keys_go_by_their_message_and_may_be_used_again() -> None:
    world = people()
    key = BERT.to_bytes(8, "big") + b"1"
    first = world.apply(send(BERT, ANNA), key=key)
    world.apply(trimmed(first - 1, keys=(key,)))
    assert world.stores.keys.get(key) is not None
    world.apply(trimmed(first, keys=(key,)))
    assert world.stores.keys.get(key) is None
    second = world.apply(send(BERT, ANNA), key=key)
    world.apply(trimmed(first, keys=(key,)))  # said twice, by one who took over
    sent = world.stores.keys.get(key)
    assert sent is not None and sent.message_id == second


def test_the_books_balance_and_a_key_that_was_forgotten_is_no_duplicate() -> None:
    world = people()
    key = BERT.to_bytes(8, "big") + b"1"
    first = world.apply(send(BERT, ANNA), key=key)
    world.apply(trimmed(first, users=(ANNA, BERT), keys=(key,)))
    world.apply(send(BERT, ANNA), key=key)
    audit = Audit(MemoryStores())
    for record in world.log:
        audit.take(record)
    report = audit.close(take_cut(world.stores, len(world.log)))
    assert report.balanced, report.as_json()
    assert (report.accepted, report.waiting) == (2, 4)


def test_timelines_wait_for_the_lanes_that_count_their_rows() -> None:
    world = people()
    sent = world.apply(send(ANNA, BERT))
    record = world.number(cut := trimmed(sent, users=(ANNA, BERT)))
    (_, rosters), (_, inboxes), (_, timelines) = world.appliers.lanes
    for other in (rosters, inboxes):
        with pytest.raises(Unavailable):
            timelines(record, cut)
        other(record, cut)
    timelines(record, cut)
    assert world.stores.timelines.private_forward(ANNA) == []


# What is proposed.


def through_all(stores: MemoryStores, through: int) -> list[HistoryTrimmed]:
    """Every record of one walk; each is applied, to the rows at least, before the next."""
    plan, found = TrimPlan(stores, through), []
    while not plan.is_done:
        change = plan.step()
        if change is not None:
            found.append(change)
            for number in change.users:
                stores.timelines.drop_private(number, through=change.through)
            for number in change.groups:
                stores.timelines.drop_group(number, through=change.through)
            for key in change.keys:
                stores.keys.drop(key, change.through)
    return found


def test_nothing_is_proposed_where_nothing_is_old() -> None:
    world = trio(send(ANNA, BERT), say(ANNA, 7))
    assert through_all(world.stores, 1 << 60) == []  # type: ignore[arg-type]


def test_a_walk_finds_users_groups_and_keys_and_leaves_what_is_young() -> None:
    world = trio()
    key = BERT.to_bytes(8, "big") + b"old"
    old = world.apply(send(BERT, ANNA), key=key)
    said = world.apply(say(ANNA, 7))
    world.apply(send(BERT, ANNA), key=BERT.to_bytes(8, "big") + b"new")
    world.apply(say(ANNA, 7))
    [change] = through_all(world.stores, said)  # type: ignore[arg-type]
    assert change == HistoryTrimmed(through=said, users=[ANNA, BERT], groups=[7], keys=[key])
    assert old < said
    assert through_all(world.stores, said) == []  # type: ignore[arg-type]


def test_those_who_left_lead_to_their_groups() -> None:
    world = people(group_made(7, ANNA, []))
    stores: MemoryStores = world.stores  # type: ignore[assignment]
    assert [list(change.groups) for change in through_all(stores, 2 << 60)] == [[7]]


def test_a_record_removes_a_bounded_number_of_rows_and_names_a_bounded_number_of_bytes() -> None:
    stores = MemoryStores()
    world = people()
    stores.users, stores.groups = world.stores.users, world.stores.groups
    for number in range(1, 2 * ROWS_MAX + 501):
        stores.timelines.put_private(ANNA, PrivateRow(number, BERT, is_incoming=True))
    for number in range(1, ROWS_MAX - 9):
        stores.timelines.put_private(BERT, PrivateRow(number, ANNA, is_incoming=False))
    for number in range(1, 41):
        stores.timelines.put_private(CARL, PrivateRow(number, ANNA, is_incoming=False))
    for number in range(700):
        stores.keys.put(CARL.to_bytes(8, "big") + b"%064d" % number, Sent(number, 1, 1))
    before = sum(len(stores.timelines.private_forward(each, limit=10**6)) for each in (ANNA, BERT, CARL))
    found = through_all(stores, 10**6)
    assert [(list(each.users), each.through) for each in found if each.users] == [
        ([ANNA], ROWS_MAX), ([ANNA], 2 * ROWS_MAX), ([ANNA], 10**6), ([BERT], 10**6), ([CARL], 10**6),
    ]  # fmt: skip
    assert before > 3 * ROWS_MAX
    assert all(sum(map(len, each.keys)) <= KEY_BYTES_MAX for each in found)
    assert sum(len(each.keys) for each in found) == 700
    assert through_all(stores, 10**6) == []


def test_a_turn_looks_at_a_bounded_number_of_owners() -> None:
    world = people(*(user(number) for number in range(10, 10 + 3 * OWNERS_PER_TURN)))
    plan, turns = TrimPlan(world.stores, 2 << 60), 0
    while not plan.is_done:
        assert plan.step() is None
        turns += 1
    assert turns == 4


# When.


class Looking(World):
    """A carrier, and beside it what looks for the end of history."""

    is_serving = True

    def __init__(self) -> None:
        super().__init__()
        self.look()

    def look(self) -> None:
        settings = MessagingSettings(history_ms=HISTORY_MS, history_sweep_ms=SWEEP_MS)
        self.trimming = Trimming(
            self.stores, self.log, self.clock, self.scheduler, settings,
            is_serving=lambda: self.is_serving, when_applied=self.carrier.when_applied,
        )  # fmt: skip
        self.trimming.start()

    def cuts(self) -> list[Record]:
        parsed = [Record.FromString(record.payload) for record in self.log.records]
        return [record for record in parsed if record.HasField("trimmed")]

    def history(self, number: int) -> list[int]:
        return [row.message_id for row in self.stores.timelines.private_forward(number)]


def test_messages_leave_when_they_are_old_enough_and_not_before() -> None:
    world = Looking()
    world.start(*map(user, (ANNA, BERT)))
    [old] = world.write(send(ANNA, BERT))
    world.run(HISTORY_MS - 2 * SWEEP_MS)
    [new] = world.write(send(ANNA, BERT))
    assert world.history(ANNA) == world.history(BERT) == [old, new]
    world.run(4 * SWEEP_MS)
    assert world.history(ANNA) == world.history(BERT) == [new]
    for cut in world.cuts():
        assert cut.trimmed.through < first_id_of(cut.at - HISTORY_MS)
    world.run(HISTORY_MS)
    assert world.history(ANNA) == world.history(BERT) == []
    count = len(world.cuts())
    world.run(10 * SWEEP_MS)
    assert len(world.cuts()) == count  # where nothing is old nothing is written


def test_only_who_serves_looks() -> None:
    world = Looking()
    world.is_serving = False
    world.start(*map(user, (ANNA, BERT)))
    world.write(send(ANNA, BERT))
    world.run(2 * HISTORY_MS)
    assert not world.cuts()
    world.is_serving = True
    world.run(3 * SWEEP_MS)
    assert world.history(ANNA) == []


def test_a_stopped_one_looks_no_more_and_without_a_setting_nobody_looks() -> None:
    world = Looking()
    world.trimming.stop()
    world.start(*map(user, (ANNA, BERT)))
    world.write(send(ANNA, BERT))
    world.run(2 * HISTORY_MS)
    assert not world.cuts()


def test_a_long_history_goes_in_slices_over_crashes_and_the_same_is_left() -> None:
    world = Looking()
    world.start(*map(user, (ANNA, BERT)), group_made(7, ANNA, [BERT]))
    for _ in range(ROWS_MAX + 200):
        world.append(send(ANNA, BERT))
    world.run(HISTORY_MS + 500)
    [last] = world.write(say(ANNA, 7))
    for _ in range(40):
        world.crash()
        world.look()
        world.run(700 + SWEEP_MS)
        if not world.history(ANNA) and not world.history(BERT):
            break
    world.run(SWEEP_MS)
    assert len([cut for cut in world.cuts() if cut.trimmed.users]) >= 4
    assert [row.message_id for row in world.stores.timelines.group_forward(7)] == [last]
    again = MemoryStores()
    assert rebuild(world.log, again) == 0
    assert content(again) == content(world.stores)


def test_a_store_that_is_down_ends_a_look_and_the_next_one_finds_it() -> None:
    world = Looking()
    world.start(*map(user, (ANNA, BERT)))
    world.write(send(ANNA, BERT))
    users_all = world.stores.users.all

    def down() -> list[int]:
        raise Unavailable("not now")

    world.stores.users.all = down  # type: ignore[method-assign]
    world.run(HISTORY_MS + 3 * SWEEP_MS)
    assert world.history(ANNA)
    world.stores.users.all = users_all  # type: ignore[method-assign]
    world.run(2 * SWEEP_MS)
    assert not world.history(ANNA)
