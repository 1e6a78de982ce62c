"""Journal frames made of Kafka's entries: every event id once, whatever is missing, as whoever follows reads them."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka.records import CLAIM, DROP, PLACE, SET, Entry, found_of, kafka_records
from pixiu.backends.kafka.served.frames import PIECE_BYTES, RECORD_COUNT_MAX, entry_of, pieces_of
from pixiu.backends.kafka.served.tail import FrameTail
from pixiu.backends.queue_log.buffer import LogBuffer
from pixiu.ports.log import MAIN, NOTIFY, SCHEDULE, TASKS, LogRecord, Scheduled
from pixiu.queue.positions import pack_rows, unpack_rows
from pixiu.queue.storage.record import Kind, decode_block, read_frames


def some_entries(rng: random.Random, count: int) -> list[Entry]:
    """As an owner writes them: with batches that were given up, and claims."""
    entries: list[Entry] = []
    event_id, number, at = 0, 1000, 1_800_000_000_000
    waiting: list[Entry] = []
    for _ in range(count):
        event_id += 1 if rng.random() < 0.9 else rng.randrange(2, 20)
        at += rng.random() < 0.3
        topic, payload = rng.choice([MAIN, MAIN, NOTIFY, TASKS]), rng.randbytes(rng.randrange(1, 40))
        kind = rng.random()
        if kind < 0.5:
            number += 1
            key = rng.randbytes(8) if rng.random() < 0.5 else b""
            entries.append(Entry(event_id, number, True, topic, payload, key, at))
        elif kind < 0.8:
            entries.append(Entry(event_id, number, False, topic, payload, b"", at))
        elif kind < 0.87:
            waiting.append(Entry(event_id, number, False, SCHEDULE, payload, b"", at, SET, event_id, at + 500))
            entries.append(waiting[-1])
        elif kind < 0.93 and waiting:
            gone = waiting.pop(rng.randrange(len(waiting)))
            what, said = (DROP, b"") if rng.random() < 0.5 else ("", gone.payload)
            entries.append(Entry(event_id, number, False, SCHEDULE, said, b"", at, what, gone.schedule_id))
        elif kind < 0.97:
            row = pack_rows([(b"who", event_id - 1)])
            entries.append(Entry(event_id, number, False, TASKS, row, b"who", at, PLACE))
        else:
            entries.append(Entry(event_id, number, False, "", b"token name", b"", at, CLAIM))
    return entries


def shown(entries: list[Entry]) -> list[LogRecord]:
    return [
        LogRecord(each.event_id, each.number if each.is_numbered else 0, each.topic, each.payload, each.key, each.at)
        for each in entries
        if not each.what
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_gets_every_record_and_no_hole_wherever_it_begins(seed: int) -> None:
    rng = random.Random(seed)
    entries = some_entries(rng, 300)
    after = rng.choice([0, 0, rng.randrange(entries[-1].event_id)])
    tail, buffer = FrameTail(), LogBuffer()
    buffer.begin(after)
    rest = list(entries)
    while rest:
        count = rng.randrange(1, 30)
        tail.add(rest[:count])
        del rest[:count]
    reached = after
    while (piece := tail.read(reached)) is not None:
        assert piece.first <= reached + 1 <= piece.last
        buffer.take(piece.frames)
        reached = piece.last
    assert buffer.reached == entries[-1].event_id
    assert buffer.read(after, 10_000) == [record for record in shown(entries) if record.event_id > after]
    if after == 0:
        waiting = {each.schedule_id for each in entries if each.what == SET}
        waiting -= {each.schedule_id for each in entries if each.what != SET}
        assert buffer.scheduled.keys() == waiting
        sets = {each.event_id: each for each in entries if each.what == SET}
        assert all(
            each == Scheduled(number, sets[number].due, SCHEDULE, sets[number].payload)
            for number, each in buffer.scheduled.items()
        )


def test_what_was_read_from_kafka_makes_the_same_frames() -> None:
    entries = some_entries(random.Random(3), 200)
    read = []
    for entry in entries:
        first, *_ = kafka_records(entry)
        found = found_of(dict(first.headers), first.value or b"", first.at)
        assert found is not None
        read.append(entry_of(found))
    assert list(pieces_of(0, read)) == list(pieces_of(0, entries))


def test_messages_of_one_time_are_one_record_and_records_and_pieces_are_bounded() -> None:
    entries = [Entry(number, number, True, MAIN, b"x", b"", 5) for number in range(1, 2 * RECORD_COUNT_MAX + 11)]
    (piece,) = pieces_of(0, entries)
    assert [frame.count for _, frame in read_frames(piece.frames)] == [RECORD_COUNT_MAX, RECORD_COUNT_MAX, 10]
    large = [Entry(number, number, True, MAIN, b"x" * 100_000, b"", 5) for number in range(1, 21)]
    pieces = list(pieces_of(0, large))
    assert [(one.last + 1) for one in pieces[:-1]] == [two.first for two in pieces[1:]]
    assert all(len(each.frames) < 2 * PIECE_BYTES for each in pieces)


def test_a_position_is_the_journals_word_for_it() -> None:
    entry = Entry(1, 0, False, TASKS, pack_rows([(b"who", 7)]), b"who", 5, PLACE)
    (piece,) = pieces_of(0, [entry])
    ((_, frame),) = read_frames(piece.frames)
    record = decode_block(frame.block)
    assert (record.kind, record.topic, list(unpack_rows(record.payload))) == (
        Kind.POSITION,
        TASKS.encode(),
        [(b"who", 7)],
    )
    state = [each for each in kafka_records(entry) if each.topic == "state"]
    assert [(each.key, each.value) for each in state] == [(b"position pixiu.tasks who", entry.payload)]
    gone = entry._replace(payload=pack_rows([(b"who", -1)]))
    assert [each.value for each in kafka_records(gone) if each.topic == "state"] == [None]


def test_memory_is_bounded_and_says_what_it_has() -> None:
    tail = FrameTail(bytes_max=10_000)
    tail.begin(7, 5)
    assert tail.has(6) and not tail.has(5) and (tail.first, tail.last) == (7, 7)
    for number in range(8, 208):
        tail.add([Entry(number, 0, False, MAIN, b"x" * 100, b"", number)])
    assert not tail.has(6) and tail.last == 207 and tail.first > 8
    assert sum(len(piece.frames) for piece in tail._pieces) <= 10_000
    assert tail.read(207) is None
    piece = tail.read(tail.first - 1)
    assert piece is not None and piece.first == tail.first
