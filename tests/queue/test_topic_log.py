"""A topic's log: what was appended is read, from anywhere; after a crash what a checkpoint flushed is left, no more."""

import random

import pytest

from pixiu.model.errors import CorruptData, NotFound
from pixiu.queue.storage.topic_items import CHUNK_BYTES
from pixiu.queue.storage.topic_log import End, TopicLog, Window
from pixiu.testing.disk import SimulatedDisk
from tests.queue.logs import message, new_disk

FOLDER = "queue/topics/01/00/1"


def opened(disk: SimulatedDisk, *, segment_bytes: int = 1000, durable: End | None = None) -> TopicLog:
    return TopicLog(disk, FOLDER, segment_bytes=segment_bytes, durable=durable)


def fill(log: TopicLog, count: int = 40, *, first: int = 10, seed: int = 1) -> list[tuple[int, bytes]]:
    """Append chunks of one to four messages, with holes between their event ids."""
    rng = random.Random(seed)
    event_id = max(first, log.last_event_id + 1)
    stored = []
    for _ in range(count):
        messages = [message(f"event {event_id + n}", rng.choice([0, 30, 200])) for n in range(rng.randint(1, 4))]
        log.append(event_id, messages, 1000 + event_id)
        stored += [(event_id + n, each) for n, each in enumerate(messages)]
        event_id += len(messages) + rng.randint(0, 3)
    return stored


def items_of(window: Window) -> list[tuple[int, bytes]]:
    return [(window.event_id(item), window.items(item, 1)[32:]) for item in range(window.count)]


def read_from(log: TopicLog, place: tuple[int, int]) -> list[tuple[int, bytes]]:
    """Everything from a place on."""
    found: list[tuple[int, bytes]] = []
    while (window := log.read(*place)) is not None:
        found += items_of(window)
        place = window.next_file_number, window.next_position
    assert place == log.end
    return found


def test_what_was_appended_is_read_back() -> None:
    disk = new_disk()
    log = opened(disk)
    stored = fill(log)
    assert len(log.numbers) > 4
    assert read_from(log, log.start) == stored
    again = opened(disk)
    assert again.reach == log.reach
    assert read_from(again, again.start) == stored


@pytest.mark.parametrize("segment_bytes", [1, 300, 1000, 10**9])
def test_every_message_can_be_resumed_behind(segment_bytes: int) -> None:
    """Also within a chunk that reaches beyond the end of its segment: nothing of it may be missed."""
    log = opened(new_disk(), segment_bytes=segment_bytes)
    stored = fill(log, 25)
    for at, (event_id, _) in enumerate(stored):
        assert read_from(log, log.find(event_id)) == stored[at + 1 :], event_id
    assert log.find(0) == log.start


def test_items_name_the_place_of_the_next() -> None:
    log = opened(new_disk())
    fill(log)
    place: tuple[int, int] = log.start
    while (window := log.read(*place)) is not None:
        for item in range(window.count):
            data = window.items(item, 1)
            following = int.from_bytes(data[16:24], "little"), int.from_bytes(data[24:32], "little")
            if item + 1 < window.count:
                assert following == (window.file_number, window.starts[item + 1])
            else:
                assert following == (window.next_file_number, window.next_position)
        place = window.next_file_number, window.next_position


def test_ids_that_are_not_there() -> None:
    log = opened(new_disk())
    stored = fill(log)
    known = {event_id for event_id, _ in stored}
    with pytest.raises(NotFound):
        log.find(stored[-1][0] + 1)
    for event_id in set(range(1, stored[-1][0])) - known:
        with pytest.raises(NotFound):
            log.find(event_id)


def test_a_time_is_found() -> None:
    log = opened(new_disk())
    stored = fill(log)
    for event_id, _ in stored[::7]:
        found = read_from(log, log.find_time(1000 + event_id))
        assert found[0][0] >= min(event_id, found[0][0])
        assert [each for each in stored if each[0] >= found[0][0]] == found
    assert log.find_time(10**9) == log.end


def flushed(disk: SimulatedDisk, log: TopicLog) -> End:
    """What a checkpoint does; the name of the outermost folder is the journal's to flush."""
    disk.flush_paths([*log.flushable(), ""])
    log.flushed = log.reach
    return log.reach


def test_after_a_crash_exactly_what_was_flushed_is_left_whatever_the_disk_kept() -> None:
    for seed in range(150):
        disk = new_disk(seed)
        log = opened(disk)
        stored = fill(log, 6, seed=seed)
        end = flushed(disk, log)
        lost = fill(log, 9, seed=seed + 1)
        if seed % 3 == 0:
            disk.crash()
        recovered = opened(disk, durable=end)
        assert recovered.reach == end
        assert read_from(recovered, recovered.start) == stored
        # The journal makes the rest again, and the next checkpoint finds it.
        for event_id, each in lost:
            recovered.append(event_id, [each], 5)
        end = flushed(disk, recovered)
        disk.crash()
        assert read_from(opened(disk, durable=end), (0, 0)) == stored + lost


def test_a_log_that_no_checkpoint_knows_is_empty() -> None:
    disk = new_disk()
    fill(opened(disk))
    log = opened(disk, durable=End())
    assert log.reach == End()
    assert read_from(log, log.start) == []
    stored = fill(log, 5)
    assert read_from(log, log.start) == stored


@pytest.mark.parametrize("ending", ["log", "idx"])
def test_less_than_was_flushed_is_reported_with_its_place(ending: str) -> None:
    disk = new_disk()
    log = opened(disk)
    fill(log)
    end = log.reach
    path = log.path(end.number, ending)
    size = len(disk.content(path)) - 3
    disk.open(path).truncate(size)
    with pytest.raises(CorruptData, match=f"{path} byte {size}: ends here"):
        opened(disk, durable=end)
    disk.remove(path)
    with pytest.raises(CorruptData, match="byte 0: "):
        opened(disk, durable=end)


def test_one_flipped_bit_in_a_log_is_never_served() -> None:
    rng = random.Random(3)
    for _ in range(200):
        disk = new_disk()
        log = opened(disk)
        stored = fill(log, 12)
        number = rng.choice(log.numbers)
        bit = rng.randrange(len(disk.content(log.path(number))) * 8)
        disk.flip(log.path(number), bit)
        with pytest.raises(CorruptData, match=f"{log.path(number)} byte \\d+: ") as caught:
            read_from(log, log.start)
        place = int(str(caught.value).split(" byte ")[1].split(":")[0])
        assert place <= bit // 8
        assert all(each in stored for each in read_until_damage(log))


def read_until_damage(log: TopicLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    place: tuple[int, int] = log.start
    try:
        while (window := log.read(*place)) is not None:
            found += items_of(window)
            place = window.next_file_number, window.next_position
    except CorruptData:
        pass
    return found


def test_one_flipped_bit_in_an_index_serves_nothing_wrong() -> None:
    rng = random.Random(4)
    noticed = 0
    for _ in range(300):
        disk = new_disk()
        log = opened(disk)
        stored = fill(log, 12)
        number = rng.choice(log.numbers)
        disk.flip(log.path(number, "idx"), rng.randrange(len(disk.content(log.path(number, "idx"))) * 8))
        found = read_until_damage(log)
        assert found == stored[: len(found)]
        noticed += len(found) < len(stored)
        event_id, _ = rng.choice(stored)
        try:
            following = log.read(*log.find(event_id))
        except (CorruptData, NotFound):
            continue
        if following is not None:
            assert items_of(following)[0] in stored[stored.index((event_id, _)) + 1 :][:1]
    assert noticed > 100


@pytest.mark.parametrize("ending", ["log", "idx"])
def test_a_failed_append_stores_nothing(ending: str) -> None:
    disk = new_disk()
    log = opened(disk)
    stored = fill(log, 7)
    before = log.reach
    disk.fail_write = lambda path: path.endswith(ending)
    with pytest.raises(OSError, match="Input/output"):
        log.append(900, [message("lost")], 1)
    disk.fail_write = lambda path: False
    assert log.reach == before
    log.append(900, [message("kept")], 1)
    assert read_from(log, log.start) == [*stored, (900, message("kept"))]


def test_the_oldest_segments_go() -> None:
    log = opened(new_disk())
    stored = fill(log)
    while log.drop_oldest():
        found = read_from(log, log.start)
        assert found == stored[-len(found) :]
    assert len(log.numbers) == 1


def test_descriptors_are_few_and_come_back() -> None:
    disk = new_disk()
    log = opened(disk)
    stored = fill(log)
    assert len(log._open) <= 4
    log.close()
    assert read_from(log, log.start) == stored


def test_an_index_line_is_what_the_docs_say() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append(7, [message("a"), message("b")], 1)
    line = disk.content(log.path(0, "idx"))
    assert len(line) == CHUNK_BYTES
    assert [int.from_bytes(line[at : at + 8], "little") for at in (0, 8, 16)] == [7, 8, 0]


def test_a_long_append_that_fills_a_segment_is_read_whole_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an append has several sidecar lines, the later ones behind the size at which a segment is full."""
    monkeypatch.setattr("pixiu.queue.storage.topic_log.WINDOW_BYTES", 300)
    log = opened(new_disk())
    stored = []
    for first in (1, 31, 61):
        messages = [message(f"event {first + n}", 60) for n in range(30)]
        log.append(first, messages, 1000 + first)
        stored += [(first + n, each) for n, each in enumerate(messages)]
    assert len(log.numbers) == 3
    assert read_from(log, log.start) == stored
    for at, (event_id, _) in enumerate(stored):
        assert read_from(log, log.find(event_id)) == stored[at + 1 :], event_id
    for first in (1, 31, 61):
        assert read_from(log, log.find_time(1000 + first)) == stored[first - 1 :]
