"""Whatever happens on the way, the same log gives the same stores."""

import copy
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import GroupChanged, HistoryTrimmed, MemberChanged, PartitionsChanged, PushTo, Record
from pixiu.ports.log import LogRecord
from pixiu.roles.carrier.appliers import LANES, Appliers
from pixiu.roles.carrier.reached import Limits
from tests.roles.carrier.world import (
    AT,
    Applied,
    content,
    from_system,
    group_made,
    ledger,
    linked,
    member,
    opened,
    push,
    read,
    recall,
    receipt,
    rows,
    say,
    send,
    user,
)

USERS = [1, 2, 3, 4]
GROUPS = [7, 8]
PLATFORMS = ["first", "web", "ios"]
LIMITS = Limits(5, {"ios": 3})
PORTS = ("users", "contacts", "groups", "inboxes", "bodies", "unread", "keys", "timelines", "recent")

numbers = st.sampled_from(USERS)
groups = st.sampled_from(GROUPS)
ids = st.integers(1, 40).map(lambda event_id: (1 << 60) + event_id)
ops = st.sampled_from(list(MemberChanged.Op.values()))
ranges = st.lists(st.tuples(numbers, st.sampled_from(range(3)), st.integers(1, 8), st.integers(1, 12)), max_size=3)


def grown(number: int, is_large: bool) -> Record:
    return Record(at=AT, actor=1, group_info=GroupChanged(group=number, public_id="x", owner=1, is_large=is_large))


def left(acked: Iterable[tuple[int, int, int, int]], gone: Iterable[tuple[int, int, int, int]]) -> Record:
    return ledger(PLATFORMS, acked=rows(*acked), expired=rows(*gone))


def trimmed(through: int, users: list[int], groups: list[int]) -> Record:
    keys = [b"k%d" % index for index in range(0, 45, 3)]
    return Record(at=AT, trimmed=HistoryTrimmed(through=through, users=users, groups=groups, keys=keys))


records = st.one_of(
    st.builds(send, numbers, numbers),
    st.builds(say, numbers, groups),
    st.builds(from_system, numbers),
    st.builds(opened, numbers, st.sampled_from(PLATFORMS[1:])),
    st.builds(member, groups, numbers, ops, is_told=st.booleans()),
    st.builds(grown, groups, st.booleans()),
    st.builds(linked, numbers, numbers, is_linked=st.booleans()),
    st.builds(recall, numbers, ids, to=numbers),
    st.builds(recall, numbers, ids, group=groups),
    st.builds(receipt, numbers, numbers, st.lists(ids, max_size=3), is_read=st.booleans()),
    st.builds(read, numbers, ids, peer=numbers),
    st.builds(read, numbers, ids, group=groups),
    st.builds(push, st.lists(numbers, max_size=4), platforms=st.lists(st.sampled_from(PLATFORMS), max_size=2)),
    st.builds(
        push,
        st.lists(numbers, max_size=4),
        without_platforms=st.lists(st.sampled_from(PLATFORMS), max_size=2),
        exclusive=st.dictionaries(numbers, st.just(PushTo(platforms=["tv"], has_options=True, options=1)), max_size=1),
    ),
    st.builds(left, ranges, ranges),
    st.builds(user, numbers, name=st.sampled_from(["A", "B"])),
)
trims = st.builds(trimmed, ids, st.lists(numbers, max_size=2), st.lists(groups, max_size=2))
randoms = st.integers(0, 2**32 - 1).map(random.Random)
scripts = st.lists(st.one_of(records, records, records, trims), min_size=1, max_size=36)


def logged(script: list[Record]) -> list[tuple[LogRecord, Record]]:
    """The script behind a beginning in which everyone and everything exists."""
    beginning = [*map(user, USERS), group_made(7, 1, [2, 3]), group_made(8, 2, [1])]
    numbering = Applied()
    return [
        (numbering.number(record, key=b"k%d" % index if index % 3 == 0 else b""), record)
        for index, record in enumerate([*beginning, *script])
    ]


def new_stores() -> MemoryStores:
    stores = MemoryStores()
    stores.recent.warm(7, [], is_all=True)
    return stores


def straight(log: list[tuple[LogRecord, Record]]) -> dict[str, object]:
    stores = new_stores()
    appliers = Appliers(stores, LIMITS)
    for record, parsed in log:
        appliers.apply(record, parsed)
    return content(stores)


@pytest.mark.feature("X56")
@given(scripts)
@settings(max_examples=60)
def test_applying_everything_again_changes_nothing(script: list[Record]) -> None:
    log = logged(script)
    stores = new_stores()
    appliers = Appliers(stores, LIMITS)
    for again in (log, log):
        for record, parsed in again:
            appliers.apply(record, parsed)
    assert content(stores) == straight(log)


@pytest.mark.feature("X59")
@given(scripts, st.data())
@settings(max_examples=60)
def test_from_any_commit_on_the_end_is_the_same(script: list[Record], data: st.DataObject) -> None:
    log = logged(script)
    committed = data.draw(st.integers(0, len(log)), label="committed")
    died = data.draw(st.integers(committed, len(log)), label="died")
    stores = new_stores()
    appliers = Appliers(stores, LIMITS)
    for record, parsed in log[:committed]:
        appliers.apply(record, parsed)
    stores.commit(dict.fromkeys(LANES, committed))
    kept = copy.deepcopy(stores)
    for record, parsed in log[committed:died]:
        appliers.apply(record, parsed)
    appliers = Appliers(kept, LIMITS)
    for record, parsed in log:
        appliers.apply(record, parsed)
    assert content(kept) == straight(log)


@given(scripts, randoms)
@settings(max_examples=60)
def test_lanes_that_go_apart_come_to_the_same_end(script: list[Record], rng: random.Random) -> None:
    log = logged(script)
    stores = new_stores()
    appliers = Appliers(stores, LIMITS)
    reached = [0, 0, 0]
    for _ in range(100 * len(log)):
        unfinished = [lane for lane in range(3) if reached[lane] < len(log)]
        if not unfinished:
            break
        lane = rng.choice(unfinished)
        for _ in range(rng.randint(1, 12)):
            if reached[lane] == len(log) or not succeeds(appliers.lanes[lane][1], log[reached[lane]]):
                break
            reached[lane] += 1
    assert reached == [len(log)] * 3
    assert content(stores) == straight(log)


def succeeds(apply: Callable[[LogRecord, Record], None], pair: tuple[LogRecord, Record]) -> bool:
    try:
        apply(*pair)
    except Unavailable:
        return False
    return True


class Flaky:
    """A port that fails now and then, before it does anything."""

    def __init__(self, port: object, rng: random.Random) -> None:
        self._port = port
        self._rng = rng

    def __getattr__(self, name: str) -> object:
        method = getattr(self._port, name)

        def call(*args: object, **kwargs: object) -> object:
            if self._rng.random() < 0.1:
                raise Unavailable("not now")
            return method(*args, **kwargs)

        return call


@given(scripts, randoms)
@settings(max_examples=60)
def test_stores_that_fail_now_and_then_come_to_the_same_end(script: list[Record], rng: random.Random) -> None:
    log = logged(script)
    stores = new_stores()
    flaky = MemoryStores()
    for name in PORTS:
        setattr(flaky, name, Flaky(getattr(stores, name), rng))
    appliers = Appliers(flaky, LIMITS)
    for record, parsed in log:
        for _, apply in appliers.lanes:
            for _ in range(10_000):
                if succeeds(apply, (record, parsed)):
                    break
    assert content(stores) == straight(log)


@given(script=scripts, data=st.data())
@settings(max_examples=60)
def test_records_of_partition_counts_in_old_logs_change_nothing(script: list[Record], data: st.DataObject) -> None:
    """Versions whose carriers had partitions of users wrote them; every lane ignores them."""
    log = logged(script)
    stores, without = new_stores(), new_stores()
    appliers, others = Appliers(stores, LIMITS), Appliers(without, LIMITS)
    counts = data.draw(st.lists(st.sampled_from([2, 4, 3, 0]), min_size=1, max_size=3), label="counts")
    places = {data.draw(st.integers(0, len(log)), label="place"): count for count in counts}
    for place in range(len(log) + 1):
        if place in places:
            parsed = Record(at=AT, partitions=PartitionsChanged(role="carrier", count=places[place]))
            event_id = log[place - 1][0].event_id if place else 0
            appliers.apply(LogRecord(2 * event_id + 1, 0, "pixiu.main", parsed.SerializeToString(), b"", AT), parsed)
        if place < len(log):
            record, parsed = log[place]
            numbered = record._replace(event_id=2 * record.event_id)
            appliers.apply(numbered, parsed)
            others.apply(numbered, parsed)
    assert content(stores) == content(without)
    assert stores.notes.get("flips") is None
