"""Delays, CancelDelay, Authorize, reserved topics, Status, Flush and Promote."""

from collections.abc import Iterator

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import (
    AUTHORIZE,
    CANCEL_DELAY,
    DELAYS,
    FLUSH,
    HELLO,
    POSITIONS,
    PROMOTE,
    SET_POSITION,
    STATUS,
    alive,
    append,
    create,
    delay,
    delete,
    extension,
    i64,
    list_topics,
    message,
    now_ms,
    pub,
    string,
    sub,
    subscribe,
    topic_info,
    u8,
    u32,
    valid_list,
)
from tests.wire.fixtures import Connect, StartServer, unique_name, wait_for_topic
from tests.wire.raw import Raw

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A server for extensions, away from the tests that count event ids."""
    with QueueProcess(tmp_path_factory.mktemp("control") / "data") as queue:
        yield queue


@pytest.fixture
def raw(extended: QueueProcess, connect: Connect) -> Raw:
    """A connection to it."""
    return connect(extended)


def delays(after: int = 0, limit: int = 1000) -> bytes:
    """Delays (133)."""
    return extension(DELAYS, part=i64(after) + u32(limit))


def cancel(event_id: int) -> bytes:
    """CancelDelay (134)."""
    return extension(CANCEL_DELAY, part=i64(event_id))


@pytest.mark.feature("X-Delays")
def test_waiting_messages_are_listed_cancelled_and_do_not_fire(
    raw: Raw, connect: Connect, extended: QueueProcess
) -> None:
    name = raw.create(unique_name())
    before = now_ms()
    waits = [HOUR_MS, 1000, HOUR_MS * 2]
    ids = [
        raw.send(delay(name, wait, message(b"m") + message(b"%d" % wait), wants_id=True)).ok_with_id() for wait in waits
    ]
    listed = [entry for entry in raw.send(delays()).json() if entry["topic"] == name.decode()]
    assert sorted(entry["event_id"] for entry in listed) == ids
    for entry in listed:
        wait = waits[ids.index(entry["event_id"])]
        assert before - 1 <= entry["due"] - wait <= now_ms() + 1
        assert entry["count"] == 2
        assert entry["bytes"] == len(message(b"m") + message(b"%d" % wait))
    assert [entry["event_id"] for entry in raw.send(delays(ids[0], 1)).json()] == [ids[1]]
    for event_id in ids:
        raw.send(cancel(event_id)).ok()
        assert raw.refused(cancel(event_id)) == "delayed message not exist"
    assert not [entry for entry in raw.send(delays()).json() if entry["topic"] == name.decode()]
    connect(extended).send(sub(name)).quiet(1.2)


@pytest.mark.feature("X-Delays")
def test_a_message_that_has_fired_cannot_be_cancelled(raw: Raw, connect: Connect, extended: QueueProcess) -> None:
    name = raw.create(unique_name())
    event_id = raw.send(delay(name, 1000, message(b"m"), wants_id=True)).ok_with_id()
    connect(extended).send(sub(name)).push()
    assert raw.refused(cancel(event_id)) == "delayed message not exist"
    assert raw.refused(cancel(2**60)) == "delayed message not exist"
    assert raw.refused(cancel(-1)) == "delayed message not exist"


@pytest.mark.feature("X-Delays")
def test_a_cancel_survives_a_kill(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    asked_at = now_ms()
    ids = [raw.send(delay(b"a", 1000, message(b"%d" % n), wants_id=True)).ok_with_id() for n in range(3)]
    raw.send(cancel(ids[1])).ok()
    queue.kill()
    queue.start()
    items = connect(queue).send(sub(b"a", batch=9)).consume(2)
    assert [item.body for item in items] == [b"0", b"2"]
    wait_for(lambda: now_ms() > asked_at + 1300)
    again = connect(queue).send(sub(b"a", 0, b"again", batch=9))
    assert len(again.consume(2)) == 2
    again.quiet(0.05)


RESERVED = b"pixiu.secret"


def every_command_on(name: bytes) -> list[bytes]:
    """Each command that names a topic, old and new."""
    return [
        create(name),
        pub(name, message(b"m")),
        delay(name, 1000, message(b"m")),
        sub(name),
        topic_info(name),
        append(name, b"k", message(b"m")),
        subscribe(name, b"w"),
        extension(POSITIONS, name),
        extension(SET_POSITION, name, string(b"w") + i64(0)),
        delete(name),
    ]


def node_key(queue: QueueProcess) -> bytes:
    """The key that is in the data directory."""
    return queue.key.encode()


@pytest.mark.feature("X-Reserved")
def test_reserved_topics_are_refused_without_the_nodes_key(raw: Raw, connect: Connect, extended: QueueProcess) -> None:
    for name in (RESERVED, b"pixiu.", b"pixiu.never-made"):
        for asked in every_command_on(name):
            assert raw.refused(asked) == "topic is reserved"
    for name in (b"pixiu", b"pixiux", b"Pixiu.x", b"x.pixiu."):
        raw.create(name)
        raw.delete(name)


@pytest.mark.feature("X-Reserved")
def test_the_nodes_key_opens_them_and_they_are_never_listed(raw: Raw, connect: Connect, extended: QueueProcess) -> None:
    node = connect(extended)
    for wrong in (b"", b"0" * 64, node_key(extended)[:-1], node_key(extended) + b"0"):
        assert node.refused(extension(AUTHORIZE, part=wrong)) == "wrong key"
    assert node.refused(create(RESERVED)) == "topic is reserved"
    node.extension(AUTHORIZE, part=node_key(extended)).ok()
    node.create(RESERVED)
    node.pub(RESERVED, b"one")
    assert not node.append(RESERVED, b"k", message(b"two"))[2]
    assert node.info(RESERVED)["name"] == RESERVED.decode()
    reader = connect(extended)
    reader.extension(AUTHORIZE, part=node_key(extended)).ok()
    assert [item.body for item in reader.send(sub(RESERVED, batch=9)).push()] == [b"one", b"two"]
    for one in (raw, node):
        for asked in (list_topics(), valid_list()):
            assert RESERVED.decode() not in [entry["name"] for entry in one.send(asked).json()]
    for asked in every_command_on(RESERVED):
        assert raw.refused(asked) == "topic is reserved", "the key counts for its own connection only"


@pytest.mark.feature("X-Reserved")
def test_a_topic_of_pixius_own_is_deleted_for_nobody(connect: Connect, extended: QueueProcess) -> None:
    node = connect(extended)
    node.extension(AUTHORIZE, part=node_key(extended)).ok()
    node.create(b"pixiu.kept")
    assert node.refused(delete(b"pixiu.kept")) == "topic is Pixiu's own and cannot be deleted"
    node.pub(b"pixiu.kept", b"one")


@pytest.mark.feature("X-Reserved")
def test_the_nodes_key_is_nobody_elses_to_read(extended: QueueProcess) -> None:
    path = extended.data / "node.key"
    assert path.stat().st_mode & 0o077 == 0
    assert len(bytes.fromhex(extended.key)) == 32


@pytest.mark.feature("X-Status")
def test_status_tells_role_epoch_flush_level_topics_and_followers(
    connect: Connect, server: QueueProcess, follower: QueueProcess
) -> None:
    raw = connect(server)
    raw.create(unique_name())
    told = raw.extension(STATUS).json()
    assert told["role"] == "leader"
    assert told["epoch"] >= 1
    assert told["flush"] == "always"
    assert told["topics"] >= 1
    wait_for(lambda: len(raw.extension(STATUS).json()["followers"]) == 1, what="the follower to be known")
    other = connect(follower).extension(STATUS).json()
    assert other["role"] == "follower"
    assert other["leader"]


@pytest.mark.feature("X-Flush")
def test_flush_is_answered_when_all_before_it_is_on_disk(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none")
    raw = connect(queue)
    raw.create(b"a")
    raw.send(pub(b"a", message(b"m")) * 100 + extension(FLUSH) + alive())
    for _ in range(100):
        raw.ok()
    raw.ok()
    raw.alive()


@pytest.mark.feature("X-Promote")
def test_a_promoted_follower_leads_with_a_new_epoch_and_the_same_data(
    start_server: StartServer, connect: Connect
) -> None:
    leader = start_server()
    follower = start_server(*leader.follow_args)
    raw, other = connect(leader), connect(follower)
    raw.create(b"a")
    raw.pub(b"a", b"one", b"two")
    first = raw.append(b"a", b"k", message(b"three"))
    due = raw.send(delay(b"a", 1500, message(b"late"), wants_id=True)).ok_with_id()
    wait_for_topic(other, b"a")
    wait_for(lambda: other.extension(HELLO).json()["last_event_id"] >= due, what="the follower to catch up")
    old_epoch = raw.extension(HELLO).json()["epoch"]
    assert other.refused(pub(b"a", message(b"m"))) == "just master can pub message"
    leader.kill()
    epoch = other.show_key(follower).extension(PROMOTE, part=u8(1)).ok_with_id()
    assert epoch > old_epoch
    told = other.extension(HELLO).json()
    assert (told["role"], told["epoch"]) == ("leader", epoch)
    assert other.append(b"a", b"k", message(b"again")) == (first[0], first[1], True)
    newest = other.append(b"a", b"k2", message(b"four"))
    assert newest[1] > first[1]
    items = connect(follower).send(sub(b"a", batch=255)).consume(5)
    assert [item.body for item in items] == [b"one", b"two", b"three", b"four", b"late"]
    follower.kill()
    follower.args = []
    follower.start()
    assert connect(follower).extension(HELLO).json()["role"] == "leader"
