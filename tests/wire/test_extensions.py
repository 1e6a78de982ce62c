"""Hello, Append, event ids in answers, and what every extension has in common.

docs/protocol-queue.md §2 is the reference. No old command may behave differently because these exist. Keys
are one space over all topics, so tests that share a server take their topic's name as key.
"""

from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import (
    APPEND,
    FLUSH,
    HELLO,
    POSITIONS,
    PUB,
    SNAPSHOT,
    STATUS,
    alive,
    append,
    create,
    delay,
    delete,
    extension,
    i64,
    message,
    now_ms,
    pub,
    replica,
    request,
    string,
    sub,
    u8,
    u32,
)
from tests.wire.fixtures import SMSS_FOLLOWERS, Connect, StartServer, next_event_id, unique_name
from tests.wire.raw import Raw

EPOCH_2020_MS = 1_577_836_800_000


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A server for extensions, away from the tests that count event ids."""
    with QueueProcess(tmp_path_factory.mktemp("extended") / "data", env=SMSS_FOLLOWERS) as queue:
        yield queue


@pytest.fixture
def raw(extended: QueueProcess, connect: Connect) -> Raw:
    """A connection to it."""
    return connect(extended)


@pytest.fixture
def topic(raw: Raw) -> bytes:
    """A new topic on it."""
    return raw.create(unique_name())


@pytest.mark.feature("X-Hello")
def test_hello_tells_version_role_and_how_far_the_log_is(raw: Raw, topic: bytes) -> None:
    told = raw.extension(HELLO).json()
    assert told["version"] == 1
    assert told["server"].startswith("pixiu ")
    assert told["role"] == "leader"
    assert told["epoch"] >= 1
    last = told["last_event_id"]
    assert told["commit_event_id"] == last
    event_id = raw.send(pub(topic, message(b"m"), wants_id=True)).ok_with_id()
    assert event_id == last + 1
    assert raw.extension(HELLO).json()["last_event_id"] == event_id


@pytest.mark.feature("X-Hello")
def test_hello_on_a_follower_says_so(connect: Connect, follower: QueueProcess) -> None:
    told = connect(follower).extension(HELLO).json()
    assert told["role"] == "follower"
    assert told["version"] == 1


@pytest.mark.feature("X-Range")
@pytest.mark.parametrize("command", [142, 143, 144, 148, 150, 159])
def test_an_unknown_or_removed_number_is_refused_and_its_part_consumed(raw: Raw, command: int) -> None:
    for part in (b"", b"\x11" * 33, alive() * 3):
        raw.send(extension(command, b"any", part, flags=255, trace=b"trace") + alive())
        assert raw.error() == "don't support action"
        raw.alive()
    raw.quiet(0.01)


@pytest.mark.feature("X-Range")
@pytest.mark.parametrize("command", range(128, 141))
def test_a_part_of_the_wrong_size_is_refused_and_consumed(raw: Raw, topic: bytes, command: int) -> None:
    if command in (HELLO, POSITIONS, STATUS, FLUSH, SNAPSHOT):  # These need no part.
        return
    raw.send(extension(command, topic, b"\x00" if command != 136 else b"\x00" * 3) + alive())
    raw.error()
    raw.alive()


@pytest.mark.feature("X-EventId", "QD2")
def test_old_commands_answer_with_the_event_id_when_asked(raw: Raw) -> None:
    name = unique_name()
    first = raw.send(create(name, wants_id=True)).ok_with_id()
    assert raw.info(name)["createEventId"] == first
    two = message(b"one") + message(b"two")
    assert raw.send(pub(name, two, wants_id=True)).ok_with_id() == first + 1
    assert raw.send(delay(name, 3_600_000, message(b"later"), wants_id=True)).ok_with_id() == first + 3
    assert raw.send(pub(name, message(b"three"), wants_id=True)).ok_with_id() == first + 4
    assert raw.send(delete(name, wants_id=True)).ok_with_id() == first + 5
    for asked in (
        create(name),
        pub(name, message(b"m")),
        delay(name, 3_600_000, message(b"m")),
        delete(name),
    ):
        raw.send(asked).ok()


@pytest.mark.feature("X-EventId", "QD2")
def test_pipelined_answers_with_and_without_ids_keep_their_order(raw: Raw, topic: bytes) -> None:
    asked = [pub(topic, message(b"same"), wants_id=number % 3 == 0) for number in range(60)]
    raw.send(b"".join(asked))
    ids = []
    for number in range(60):
        if number % 3 == 0:
            ids.append(raw.ok_with_id())
        else:
            raw.ok()
    assert ids == list(range(ids[0], ids[0] + 60, 3))


@pytest.mark.feature("X-EventId", "QD2")
def test_other_values_of_the_byte_and_other_free_bytes_mean_nothing(raw: Raw, topic: bytes) -> None:
    packed = message(b"m")
    for special in (u8(0) + b"\xff" * 11, u8(2) + b"\x01" * 11, b"\xff" * 12):
        raw.send(request(PUB, topic, u32(len(packed)) + special, part=packed)).ok()


# Append.


@pytest.mark.feature("X-Append")
def test_append_numbers_a_message_and_shows_the_number_to_every_subscriber(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    before, last = now_ms(), raw.extension(HELLO).json()["last_event_id"]
    packed = message(b"body", [(b"own", b"header"), (b"another", b"")])
    event_id, message_id, is_repeat = raw.append(topic, b"key-1", packed)
    assert (event_id, is_repeat) == (last + 1, False)
    assert before - 1 <= (message_id >> 22) + EPOCH_2020_MS <= now_ms() + 1
    assert (message_id >> 12) & 1023 == 0, "the node's number"
    item = connect(extended).send(sub(topic)).push()[0]
    assert item.event_id == event_id
    assert item.headers == [
        (b"pixiu.id", i64(message_id)),
        (b"pixiu.key", b"key-1"),
        (b"own", b"header"),
        (b"another", b""),
    ]
    assert item.body == b"body"
    block = connect(extended).send(replica(event_id - 1)).block()
    assert (block.command, block.event_id, block.topic) == (PUB, event_id, topic)
    assert block.payload == item.message


@pytest.mark.feature("X-Append")
def test_message_ids_rise_with_event_ids(raw: Raw, topic: bytes) -> None:
    raw.send(b"".join(append(topic, topic + b"-%d" % number, message(b"m")) for number in range(500)))
    numbers = []
    for _ in range(500):
        body = raw.raw_json()
        numbers.append((int.from_bytes(body[:8], "little"), int.from_bytes(body[8:16], "little")))
        assert body[16] == 0
    assert numbers == sorted(set(numbers))
    assert len({message_id for _, message_id in numbers}) == 500


@pytest.mark.feature("X-Append")
def test_a_repeat_stores_nothing_and_gets_the_first_answer(
    raw: Raw, connect: Connect, extended: QueueProcess, topic: bytes
) -> None:
    first = raw.append(topic, b"same", message(b"first"))
    raw.append(topic, b"other", message(b"second"))
    for _ in range(3):
        assert raw.append(topic, b"same", message(b"not stored")) == (first[0], first[1], True)
    assert connect(extended).append(topic, b"same", message(b"not stored")) == (first[0], first[1], True)
    assert next_event_id(raw) == first[0] + 2
    items = connect(extended).send(sub(topic, batch=9)).push()
    assert [item.body for item in items] == [b"first", b"second"]


@pytest.mark.feature("X-Append")
def test_repeats_are_found_within_one_write_too(raw: Raw, connect: Connect, extended: QueueProcess) -> None:
    name = raw.create(unique_name())
    raw.send(append(name, name, message(b"first")) * 10)
    answers = [raw.raw_json() for _ in range(10)]
    assert [answer[16] for answer in answers] == [0] + [1] * 9
    assert {answer[:16] for answer in answers} == {answers[0][:16]}
    assert len(connect(extended).send(sub(name, batch=99)).push()) == 1


@pytest.mark.feature("X-Append")
def test_only_keys_after_the_given_event_count(raw: Raw, topic: bytes) -> None:
    first, _, _ = raw.append(topic, topic, message(b"first"))
    assert raw.append(topic, topic, message(b"again"), unless_after=first - 1)[2]
    second, _, is_repeat = raw.append(topic, topic, message(b"second"), unless_after=first)
    assert (second, is_repeat) == (first + 1, False)
    assert raw.append(topic, topic, message(b"third"), unless_after=first) == (
        second,
        raw.append(topic, topic, message(b"third"), unless_after=first)[1],
        True,
    )


@pytest.mark.feature("X-Append")
def test_an_empty_key_is_never_a_repeat(raw: Raw, topic: bytes) -> None:
    answers = [raw.append(topic, b"", message(b"same")) for _ in range(3)]
    assert [is_repeat for _, _, is_repeat in answers] == [False] * 3
    assert len({event_id for event_id, _, _ in answers}) == 3


@pytest.mark.feature("X-Append")
def test_what_append_refuses(raw: Raw, connect: Connect, follower: QueueProcess, topic: bytes) -> None:
    before = raw.extension(HELLO).json()["last_event_id"]
    assert raw.refused(append(unique_name(), b"k", message(b"m"))) == "topic not exist"
    raw.refused(append(topic, b"k", message(b"one") + message(b"two")))
    raw.refused(append(topic, b"k", message(b"m")[:-1]))
    raw.refused(append(topic, b"k", b""))
    raw.refused(append(topic, b"k", u32(0) + u32(0)))
    raw.refused(extension(APPEND, topic, i64(0) + string(b"x" * 500)[:-1]))
    assert connect(follower).refused(append(topic, b"k", message(b"m"))) == "just the leader can do this"
    assert raw.extension(HELLO).json()["last_event_id"] == before


@pytest.mark.feature("X-Append")
def test_repeats_are_found_after_a_kill_and_numbers_go_on_rising(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    answers = [raw.append(b"a", b"k%d" % number, message(b"m%d" % number)) for number in range(20)]
    for end in (queue.kill, queue.stop):
        end()
        queue.start()
        raw = connect(queue)
        for number, (event_id, message_id, _) in enumerate(answers):
            again = raw.append(b"a", b"k%d" % number, message(b"again"))
            assert again == (event_id, message_id, True)
    newest = raw.append(b"a", b"new", message(b"new"))
    assert newest[0] > answers[-1][0]
    assert newest[1] > answers[-1][1]
    assert len(connect(queue).send(sub(b"a", batch=255)).push()) == 21


@pytest.mark.feature("X-Append")
def test_a_caller_too_far_behind_is_told_so(start_server: StartServer, connect: Connect) -> None:
    queue = start_server(queue__keys_max=8)
    raw = connect(queue)
    raw.create(b"a")
    event_ids = [raw.append(b"a", b"k%d" % number, message(b"m"), 0 if number < 4 else 1)[0] for number in range(4)]
    for number in range(4, 40):
        event_ids.append(raw.append(b"a", b"k%d" % number, message(b"m"), event_ids[-1])[0])
    for key, unless_after in ((b"k0", 0), (b"brand new", event_ids[2])):
        text = raw.refused(append(b"a", key, message(b"m"), unless_after))
        assert text.split(":")[0] == "behind"
    assert raw.append(b"a", b"k39", message(b"m"), event_ids[-2]) == (
        event_ids[-1],
        raw.append(b"a", b"k39", message(b"m"), event_ids[-2])[1],
        True,
    )
    assert not raw.append(b"a", b"brand new", message(b"m"), event_ids[-1])[2]
