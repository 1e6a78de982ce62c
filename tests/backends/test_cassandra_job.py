"""What a commit to Cassandra sends, without a server: messages whole, in batches of a bounded size."""

import pytest

from pixiu.backends.cassandra.job import BATCH_BYTES, LARGE_BYTES, Job, Write
from pixiu.backends.cassandra.layout import Layout
from pixiu.model.pixiu_pb2 import P2P, MsgChat
from pixiu.model.timeline import GroupRow, PrivateRow

LAYOUTS = ("default", "seed", "bucketed")
ALICE, BOB, GROUP = 10, 20, 30


def rows_of(sizes: list[int], layout: str) -> list[Write]:
    """The batches of a commit: a private and a group message for each of these sizes."""
    bodies = {}
    private, group = [], []
    for number, size in enumerate(sizes, start=1):
        said, told = 2 * number, 2 * number + 1
        bodies[said] = bodies[told] = MsgChat(data=b"x" * size, chatType=P2P).SerializeToString()
        private.append((ALICE, PrivateRow(said, BOB, is_incoming=False), True))
        private.append((BOB, PrivateRow(said, ALICE, is_incoming=True), True))
        group.append((GROUP, GroupRow(told, ALICE, previous=told - 2), True))
    _, rows, *_ = Job(1, 0, 0, private, group, bodies, []).phases(Layout(layout))
    return rows


def sides(write: Write, layout: str) -> list[tuple[int, int]]:
    """Message and owner of each row in it."""
    place = 3 if layout == "bucketed" else 2
    return [(values[place], values[1]) for name, values in write if name in {"put_private", "put_group"}]  # type: ignore[misc]


def bytes_in(write: Write) -> int:
    return sum(len(value) for _, values in write for value in values if isinstance(value, bytes))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.feature("B01", "B06")
def test_small_messages_share_batches_and_none_is_torn(layout: str) -> None:
    count = 200
    rows = rows_of([100] * count, layout)
    assert len(rows) < count / 2, "a request for a few of them"
    found = [sides(write, layout) for write in rows]
    everything = {(2 * number, owner) for number in range(1, count + 1) for owner in (ALICE, BOB)}
    everything |= {(2 * number + 1, GROUP) for number in range(1, count + 1)}
    assert sorted(side for write in found for side in write) == sorted(everything)
    for write in found:
        private = [message for message, owner in write if owner != GROUP]
        assert all(private.count(message) == 2 for message in private), "both sides in one batch"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_of_several_stays_below_what_cassandra_warns_of(layout: str) -> None:
    sizes = [1, 900, 2_000, 50, 3_000, 0, 16_000, 10, 1_500, 1_500, 1_500, 4_000] * 5
    rows = rows_of(sizes, layout)
    shared = [write for write in rows if len({message for message, _ in sides(write, layout)}) > 1]
    assert shared and all(bytes_in(write) <= BATCH_BYTES for write in shared)
    assert all(bytes_in(write) <= 2 * (LARGE_BYTES + 100) for write in rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_large_message_goes_row_by_row_and_nothing_joins_it(layout: str) -> None:
    rows = rows_of([10, LARGE_BYTES + 1, 10], layout)
    large = [write for write in rows if bytes_in(write) > LARGE_BYTES]
    assert [len(write) for write in large] == [1, 1, 1], "two sides and a group's row, each alone"
