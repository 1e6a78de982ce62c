"""The journal as Arrow batches, without Spark: every message once, whatever the segments, and damage by name."""

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from pixiu.machines.queue_wire.messages import split_messages
from pixiu.model.errors import CorruptData, Gone, NotFound
from pixiu.node.stopped import engine_without_loop
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.queue.client import BlockingClient
from pixiu.queue.log import EngineLog
from pixiu.queue.storage.messages import body_of
from pixiu.queue.storage.record import MESSAGE_KINDS, decode_block, read_frames
from tests.pipeline.logs import say, small_segments, talk, with_node
from tests.servers import QueueProcess

FULL = Wanted()


def table_of(folder: JournalFolder, wanted: Wanted = FULL, *, after: int = 0, **options: Any) -> Any:
    slices = folder.plan(after, folder.end().event_id, rows_max=37)
    batches = [batch for part in slices for batch in decode(part, wanted, **options)]
    return pa.Table.from_batches(batches, schema=wanted.schema)


def rows_by_hand(folder: JournalFolder) -> list[tuple[int, str, int, bytes]]:
    """The same rows by the queue's own reader, one record at a time."""
    found = []
    for first in folder.firsts():
        for _, frame in read_frames((folder.folder / f"{first:020d}.log").read_bytes()):
            record = decode_block(frame.block)
            if record.kind in MESSAGE_KINDS:
                skip = 16 if record.kind == 101 else 0
                for place, message in enumerate(split_messages(record.payload[skip:]) or []):
                    found.append((record.event_id + place, record.topic.decode(), record.write_ms, body_of(message)))
    return found


def test_every_message_once_in_order_over_segments(data: Path) -> None:
    with_node(data, talk, settings=small_segments())
    folder = JournalFolder(data)
    assert len(folder.firsts()) > 2
    table = table_of(folder)
    got = list(
        zip(
            table["event_id"].to_pylist(),
            table["topic"].to_pylist(),
            [int(at.timestamp() * 1000 + 0.5) for at in table["written_at"].to_pylist()],
            table["payload"].to_pylist(),
            strict=True,
        )
    )
    assert got == rows_by_hand(folder)
    assert table.schema == Wanted().schema


def test_header_columns_are_the_same_rows(data: Path) -> None:
    with_node(data, talk, settings=small_segments())
    folder = JournalFolder(data)
    header = table_of(folder, Wanted(is_full=False))
    assert header.equals(table_of(folder).select(header.column_names))


@pytest.mark.parametrize("batch_rows", [1, 7, 8192])
def test_batches_of_any_size(data: Path, batch_rows: int) -> None:
    with_node(data, talk, settings=small_segments())
    folder = JournalFolder(data)
    assert table_of(folder, batch_rows=batch_rows).equals(table_of(folder))


def test_keys_message_ids_and_topics(data: Path) -> None:
    ids = with_node(data, lambda node: say(node, 30), settings=small_segments())
    table = table_of(JournalFolder(data), Wanted(topics=frozenset({"pixiu.main"})))
    assert set(table["topic"].to_pylist()) == {"pixiu.main"}
    assert [number for number in table["message_id"].to_pylist() if number in set(ids)] == ids
    keys = dict(zip(table["message_id"].to_pylist(), table["key"].to_pylist(), strict=True))
    assert keys[ids[7]].endswith(b"bob7")
    assert table_of(JournalFolder(data), Wanted(topics=frozenset({"nothing"}))).num_rows == 0


def test_messages_with_headers_of_their_own(data: Path) -> None:
    with QueueProcess(data, args=["--flush", "none"]) as queue, BlockingClient(queue.address) as client:
        client.create_topic("order")
        client.publish_many("order", [b"a", b"bb"], headers={"color": "red", "size": "10"})
        client.publish("order", b"plain")
        client.append("order", b"numbered", key=b"k", headers={"x": "y"})
        table = table_of(JournalFolder(data))
    assert table["payload"].to_pylist() == [b"a", b"bb", b"plain", b"numbered"]
    assert table["key"].to_pylist() == [b"", b"", b"", b"k"]
    assert table["message_id"].to_pylist()[-1] > 0


def test_a_running_server_is_asked_how_far_it_is(data: Path) -> None:
    with QueueProcess(data) as queue, BlockingClient(queue.address) as client:
        client.create_topic("order")
        last = client.publish("order", b"x")
        assert JournalFolder(data).end().event_id == last


def test_a_node_without_a_port_is_read_as_far_as_its_frames_say(data: Path) -> None:
    async def work(node: Any) -> tuple[int, int]:
        await say(node, 3)
        first = JournalFolder(data).end().event_id
        await say(node, 3, begin=3)
        return first, JournalFolder(data).end().event_id

    first, second = with_node(data, work)
    assert 0 < first < second <= JournalFolder(data).end().event_id


def test_from_the_middle_of_a_run(data: Path) -> None:
    with_node(data, lambda node: say(node, 50))
    folder = JournalFolder(data)
    whole = table_of(folder)
    for after in range(0, folder.end().event_id, 7):
        part = table_of(folder, after=after)
        assert part["event_id"].to_pylist() == [number for number in whole["event_id"].to_pylist() if number > after]


def test_starting_time(data: Path) -> None:
    with_node(data, lambda node: say(node, 5), settings=small_segments(4096))
    with_node(data, lambda node: say(node, 5, begin=5), settings=small_segments(4096))
    folder = JournalFolder(data)
    table = table_of(folder)
    times = [int(at.timestamp() * 1000 + 0.5) for at in table["written_at"].to_pylist()]
    middle = times[-1]
    assert folder.event_before(middle) < table["event_id"].to_pylist()[times.index(middle)]
    late = table_of(folder, Wanted(written_from_ms=middle))
    assert late.num_rows == sum(time >= middle for time in times)
    assert folder.event_before(middle + 10_000) == folder.end().event_id


@pytest.mark.parametrize("cut", [1, 10, 24, 60])
def test_an_unfinished_write_is_reported_and_not_read(data: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    with_node(data, lambda node: say(node, 5))
    folder = JournalFolder(data)
    before = folder.end().event_id
    path = max(folder.folder.glob("*.log"))
    whole = path.read_bytes()
    *_, (start, frame) = read_frames(whole)
    path.write_bytes(whole[: start + min(cut, frame.size - 1)])
    end = folder.end()
    assert end.event_id == before - frame.count
    # Zeros at the end might have been laid ahead of it: they are none of the write.
    assert end.cut_bytes == len(whole[start : start + min(cut, frame.size - 1)].rstrip(b"\0"))
    assert "unfinished write" in caplog.text
    assert table_of(folder)["event_id"].to_pylist()[-1] <= end.event_id


def test_a_flipped_byte_is_named_and_never_skipped(data: Path) -> None:
    with_node(data, talk)
    folder = JournalFolder(data)
    (path,) = folder.folder.glob("*.log")
    whole = path.read_bytes()
    frames = list(read_frames(whole))
    dice = random.Random(5)
    for start, frame in dice.sample(frames[2:-3], 12):
        damaged = bytearray(whole)
        damaged[start + dice.randrange(4, frame.size)] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(CorruptData, match=str(start)):
            table_of(folder)
    path.write_bytes(whole)
    assert table_of(folder).num_rows


def test_rot_behind_the_flushed_mark_is_no_unfinished_write(data: Path) -> None:
    with_node(data, talk)
    folder = JournalFolder(data)
    (path,) = folder.folder.glob("*.log")
    path.with_suffix(".idx").unlink()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(CorruptData, match="was on disk and is damaged"):
        folder.end()


@pytest.mark.parametrize("harm", ["missing", "short", "stale"])
def test_a_missing_or_stale_index_is_made_again_elsewhere(data: Path, harm: str) -> None:
    with_node(data, talk)
    folder = JournalFolder(data)
    right = table_of(folder)
    (path,) = folder.folder.glob("*.idx")
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "short":
        path.write_bytes(content[: len(content) // 2 + 13])
    else:
        path.write_bytes(bytes(len(content)))
    left = path.read_bytes() if path.exists() else None
    again = table_of(folder)
    assert again.equals(right)
    assert (data / "pipeline" / "index" / path.name).exists()
    assert (path.read_bytes() if path.exists() else None) == left


def test_what_retention_removed_is_said(data: Path) -> None:
    with_node(data, talk, settings=small_segments())
    folder = JournalFolder(data)
    first, second, *_ = folder.firsts()
    (folder.folder / f"{first:020d}.log").unlink()
    with pytest.raises(Gone, match=f"events 1 to {second - 1}"):
        folder.plan(0, folder.end().event_id)
    assert folder.plan(second - 1, folder.end().event_id)


def test_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no log"):
        JournalFolder(tmp_path)


def test_the_engine_reads_the_same(data: Path) -> None:
    with_node(data, talk)
    table = table_of(JournalFolder(data), Wanted(topics=frozenset({"pixiu.main"})))
    engine = engine_without_loop(data)
    engine.recover()
    records = [
        record for batch in EngineLog(engine).scan(engine.commit_event_id, 100) for record in batch
        if record.topic == "pixiu.main"
    ]  # fmt: skip
    engine.stop()
    assert [(r.event_id, r.message_id, r.key, r.payload) for r in records] == list(
        zip(*(table[name].to_pylist() for name in ("event_id", "message_id", "key", "payload")), strict=True)
    )
