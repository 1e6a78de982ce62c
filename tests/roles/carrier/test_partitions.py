"""Users in partitions: each carrier keeps what its own users have, and together they have what one carrier has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.im.content import send_key
from pixiu.im.users import user_key
from pixiu.model.partitions import Share, user_partition
from pixiu.model.pixiu_pb2 import PartitionsChanged, Record, UserErased
from pixiu.roles.carrier.appliers import Appliers
from pixiu.roles.carrier.apply_inboxes import InboxApplier
from pixiu.roles.carrier.flips import Flips, forget_users, moved_away
from tests.roles.carrier.test_replay import GROUPS, LIMITS, USERS, new_stores, numbers, records, trims
from tests.roles.carrier.world import AT, Applied, content, group_made, opened, say, send, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.memory.stores import MemoryStores
    from pixiu.ports.log import LogRecord

    Log = list[tuple[LogRecord, Record]]

ALL = 10_000
BEGINNING = [*map(user, USERS), group_made(7, 1, [2, 3]), group_made(8, 2, [1, 4])]
COUNTS = (1, 2, 4)

erased = st.builds(lambda number: Record(at=AT, actor=number, erased=UserErased(user=number)), numbers)
scripts = st.lists(st.one_of(records, records, erased), min_size=1, max_size=40)


def logged(script: list[Record]) -> Log:
    """The records with their numbers. A recall names the author and the conversation of its message, as the verb does.

    A random recall that names others would give the partition of one participant another tombstone than that of the
    other, which no accepted request can do.
    """
    numbering, log = Applied(), []
    sent: dict[int, Record] = {}
    for index, record in enumerate([*BEGINNING, *script]):
        if record.HasField("recalled"):
            said = sent.setdefault(record.recalled.message_id, record)
            setattr(record.recalled, "from", said.actor)
            record.recalled.to, record.recalled.group = said.to, said.group
        key = user_key(record.user.public_id) if record.HasField("user") else send_key(record.actor, f"s{index}")
        numbered = numbering.number(record, key=key)
        sent.setdefault(numbered.message_id, record)
        log.append((numbered, record))
    return log


def applied(log: Log, owns: Callable[[int], bool] | None) -> MemoryStores:
    stores = new_stores()
    appliers = Appliers(stores, LIMITS, owns)
    for record, parsed in log:
        appliers.apply(record, parsed)
    return stores


def of_user(stores: MemoryStores, number: int) -> dict[str, object]:
    """Everything that is a user's own."""
    inboxes = stores.inboxes
    return {
        "inboxes": [
            (inboxes.state(number, platform), inboxes.after(number, platform, 0, ALL).entries)
            for platform in inboxes.platforms(number)
        ],
        "timeline": stores.timelines.private_forward(number, limit=ALL),
        "unread": stores.unread.of(number),
    }


def bodies_of(stores: MemoryStores, number: int) -> dict[int, bytes]:
    rows = [row.message_id for row in stores.timelines.private_forward(number, limit=ALL)]
    waiting = [
        entry.message_id
        for platform in stores.inboxes.platforms(number)
        for entry in stores.inboxes.after(number, platform, 0, ALL).entries
    ]
    return stores.bodies.get([*rows, *waiting])


NOTHING: dict[str, object] = {"inboxes": [], "timeline": [], "unread": {}}


def check(log: Log, count: int, owners: Callable[[int], Callable[[int], bool]]) -> None:
    whole = applied(log, None)
    parts = [applied(log, owners(partition)) for partition in range(count)]
    for number in [0, *USERS]:
        for partition, part in enumerate(parts):
            is_owner = user_partition(number, count) == partition
            assert of_user(part, number) == (of_user(whole, number) if is_owner else NOTHING), (number, partition)
            if is_owner:
                assert bodies_of(part, number) == bodies_of(whole, number)
    for part in parts:
        for group in GROUPS:
            rows = whole.timelines.group_forward(group, limit=ALL)
            assert part.timelines.group_forward(group, limit=ALL) == rows
            ids = [row.message_id for row in rows]
            assert part.bodies.get(ids) == whole.bodies.get(ids)
        rosters, wanted = content(part), content(whole)
        assert [rosters[name] for name in ("users", "contacts", "groups")] == [
            wanted[name] for name in ("users", "contacts", "groups")
        ]
    for record, parsed in log:
        if record.key[0] == 0xFF:
            assert all(part.keys.get(record.key) == whole.keys.get(record.key) for part in parts)
        else:
            found = [part.keys.get(record.key) for part in parts]
            assert [sent for sent in found if sent is not None] == [found[user_partition(parsed.actor, count)]]
    check_references(whole, parts)


def check_references(whole: MemoryStores, parts: list[MemoryStores]) -> None:
    """A body is there exactly as long as someone of the partition needs it; a group's row counts in each of them."""
    in_groups = {row.message_id for group in GROUPS for row in whole.timelines.group_forward(group, limit=ALL)}
    for message_id in range((1 << 60) + 1, (1 << 60) + 200):
        found = sum(part.bodies.references(message_id) for part in parts)
        extra = len(parts) - 1 if message_id in in_groups else 0
        assert found == whole.bodies.references(message_id) + extra, message_id


@pytest.mark.feature("X42")
@pytest.mark.parametrize("count", COUNTS)
@given(script=scripts)
@settings(max_examples=25)
def test_the_partitions_together_have_what_one_carrier_has_and_nobody_has_a_foreign_user(
    count: int, script: list[Record]
) -> None:
    check(logged(script), count, lambda partition: Share(partition, count))


@pytest.mark.parametrize("count", [2, 4])
@given(script=st.lists(st.one_of(records, records, records, trims), min_size=1, max_size=40))
@settings(max_examples=25)
def test_so_it_is_when_history_is_trimmed(count: int, script: list[Record]) -> None:
    check(logged(script), count, lambda partition: Share(partition, count))


def test_what_waits_for_one_who_was_erased_is_blanked_when_its_author_is() -> None:
    gone = [Record(at=AT, actor=number, erased=UserErased(user=number)) for number in (2, 1)]
    check(logged([opened(2, "web"), send(1, 2), *gone]), 2, lambda partition: Share(partition, 2))


MIXED = [opened(2, "web"), send(1, 2), send(2, 3), say(1, 7), say(4, 8), send(3, 1)]


@pytest.mark.parametrize("count", [2, 4])
def test_a_filter_by_sender_in_place_of_owner_is_caught(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check(logged(MIXED), count, lambda partition: Share(partition, count))
    asked = InboxApplier._message

    def by_sender(self: InboxApplier, record: LogRecord, parsed: Record) -> None:
        owns, actor = self._owns, parsed.actor
        if owns is not None:
            self._owns = lambda _user: owns(actor)
        asked(self, record, parsed)
        self._owns = owns

    monkeypatch.setattr(InboxApplier, "_message", by_sender)
    with pytest.raises((AssertionError, KeyError)):
        check(logged(MIXED), count, lambda partition: Share(partition, count))


def test_a_partition_of_another_count_is_caught() -> None:
    """Carriers that do not agree on the count leave users to nobody, or to two."""
    with pytest.raises(AssertionError):
        check(logged(MIXED), 4, lambda partition: Share(partition % 2, 2))


def flipped(count: int) -> Record:
    return Record(at=AT, partitions=PartitionsChanged(role="carrier", count=count))


@pytest.mark.feature("X55", "X61")
@pytest.mark.parametrize("count", [1, 2])
@given(before=scripts, behind=scripts)
@settings(max_examples=25)
def test_a_doubling_leaves_every_user_with_one_partition_that_has_everything(
    count: int, before: list[Record], behind: list[Record]
) -> None:
    log = logged([*before, flipped(2 * count), *behind, flipped(2 * count)])
    whole = applied(log, None)
    old = [applied(log, Share(partition, count)) for partition in range(count)]
    new = [applied(log, Share(partition, 2 * count)) for partition in range(count, 2 * count)]
    for partition, part in enumerate(old):
        forget_users(part, [number for number in USERS if user_partition(number, 2 * count) != partition])
    for number in USERS:
        for partition, part in enumerate([*old, *new]):
            is_owner = user_partition(number, 2 * count) == partition
            found = of_user(part, number)
            if is_owner:
                assert found == of_user(whole, number), (number, partition)
                assert bodies_of(part, number) == bodies_of(whole, number)
            else:
                assert found["timeline"] == [] and found["unread"] == {}
                assert not any(entries for _, entries in found["inboxes"])  # type: ignore[attr-defined]
    for partition, part in enumerate(old):
        fresh = applied(log, Share(partition, 2 * count))
        for message_id in range((1 << 60) + 1, (1 << 60) + 200):
            assert part.bodies.references(message_id) == fresh.bodies.references(message_id), message_id


def lived(log: Log, share: Share) -> MemoryStores:
    """What a partition has that applies the whole log, and lets go of whoever is elsewhere behind each flip."""
    stores = new_stores()
    appliers = Appliers(stores, LIMITS, share)
    for record, parsed in log:
        appliers.apply(record, parsed)
        if parsed.HasField("partitions"):
            forget_users(stores, moved_away(USERS, share, parsed.partitions.count))
            share = Share(share.partition, max(share.count, parsed.partitions.count))
    return stores


@pytest.mark.feature("X55", "X61")
@given(first=scripts, second=scripts, third=scripts)
@settings(max_examples=25)
def test_partitions_of_a_second_doubling_keep_what_was_said_before_the_first(
    first: list[Record], second: list[Record], third: list[Record]
) -> None:
    # They apply the log from its beginning, and so meet a flip to a count by which nobody would be theirs.
    log = logged([*first, flipped(2), *second, flipped(4), *third])
    whole = applied(log, None)
    parts = [lived(log, Share(partition, born)) for partition, born in enumerate((1, 2, 4, 4))]
    for number in USERS:
        for partition, part in enumerate(parts):
            if user_partition(number, 4) == partition:
                assert of_user(part, number) == of_user(whole, number), (number, partition)
                assert bodies_of(part, number) == bodies_of(whole, number)
            else:
                assert of_user(part, number)["timeline"] == []


def test_stores_that_have_more_than_their_share_let_go_of_the_rest() -> None:
    # A snapshot of partition 0 of 2, which becomes partition 2 of 4.
    users = [number for number in range(1, 200) if user_partition(number, 2) == 0]
    kept = [number for number in users if user_partition(number, 4) == 2]
    for count in (2, 4):
        gone = moved_away(users, Share(2, 4), count, is_wide=True)
        assert kept and sorted([*gone, *kept]) == users


def test_who_does_a_task_is_decided_by_where_it_is_in_the_log() -> None:
    stores = applied(logged([flipped(2), flipped(4), flipped(4), flipped(2)]), Share(1, 1))
    flips, first = Flips(stores.notes), len(BEGINNING) + 1
    assert flips.count == 4
    assert [flips.count_at(at, 1) for at in (1, first - 1, first, first + 1, first + 9)] == [1, 1, 2, 4, 4]
    assert [flips.began(partition) for partition in range(5)] == [0, first, first + 1, first + 1, 0]
    assert Flips(new_stores().notes).count_at(7, 8) == 8
