"""The writer under failures: everyone gets one answer, in order, and nobody is told what is not so."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.commands import HELLO
from pixiu.machines.queue_wire.messages import Message
from pixiu.queue.engine import Engine
from pixiu.queue.gathering import UNCOMMITTED_BATCHES_MAX
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.queue.writer_log import AGAIN_US
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Publisher, Request, Wire
from pixiu.testing.queue.oracle import Model, journal_frames
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler


class Queue:
    """A queue on a simulated machine."""

    def __init__(self, **journal: Any) -> None:
        self.rng = random.Random(1)
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, self.rng, slow_us=100, pause_chance=0)
        self.disk = SimulatedDisk(self.rng, now_ms=self.clock.now_ms)
        self.content = StoreContent()
        self.store = SimulatedKeyValue(self.content)
        self.settings = Settings(
            queue=QueueSettings(open_topics_max=8),
            journal=JournalSettings(**{"free_bytes_min": 0, **journal}),
            log=LogSettings(sample=0),
        )
        self.engine = Engine(self.settings, self.disk, self.store, self.clock, self.scheduler)
        self.engine.recover()
        self.engine.start()
        self.server = QueueServer(self.engine, HANDLERS, connections_max=100)
        self.control = self.client()
        self.ask(self.control, Request("create", b"t"), wire.encode_create_topic(b"t"))

    def client(self) -> Publisher:
        return Publisher(Wire(self.server, self.scheduler), self.rng, self.clock.monotonic_us)

    def ask(self, client: Publisher, request: Request, data: bytes) -> Request:
        client.send([(request, data)])
        self.scheduler.run_for(5)
        client.take_answers()
        return request

    def publish(self, client: Publisher, name: bytes, topic: bytes = b"t") -> Request:
        return self.ask(client, Request("publish", topic, (name,)), publish(name, topic))

    @property
    def model(self) -> Model:
        return Model(journal_frames(self.disk))


def publish(name: bytes, topic: bytes = b"t") -> bytes:
    return wire.encode_pub(topic, Message(name + b"|").encode())


@pytest.fixture
def queue() -> Iterator[Queue]:
    made = Queue()
    yield made
    made.scheduler.close()


def test_a_disk_that_takes_nothing_is_said_now_and_then_and_not_for_every_batch(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch is refused; a line for each would fill what is left of the disk."""
    client = queue.client()
    queue.disk.fail_write = lambda path: path.endswith(".log")
    refused = [queue.publish(client, b"m%d" % number) for number in range(50)]
    assert all("cannot write" in request.text for request in refused)
    queue.scheduler.run_for(AGAIN_US / 1000)
    queue.publish(client, b"once more")
    queue.disk.fail_write = lambda path: False
    assert [queue.publish(client, b"later").outcome for _ in range(3)] == ["ok"] * 3
    said = [(record.message, record.failures) for record in caplog.records if hasattr(record, "failures")]
    assert said == [
        ("journal write failed", 1), ("journal write failed", 51), ("the journal is written again", 51),
    ]  # fmt: skip


def test_a_failed_flush_answers_every_pipelined_publish(queue: Queue) -> None:
    client = queue.client()
    asked = [(Request("publish", b"t", (b"m%d" % n,)), publish(b"m%d" % n)) for n in range(7)]
    queue.disk.fail_flush = lambda path: path.endswith(".log")
    client.send(asked)
    queue.scheduler.run_for(10)
    client.take_answers()
    assert not client.open
    assert {request.outcome for request, _ in asked} == {"unknown"}
    assert all("the disk failed while flushing" in request.text for request, _ in asked)
    queue.disk.fail_flush = lambda path: False
    later = queue.publish(client, b"later")
    assert "restart the queue" in later.text
    assert queue.ask(client, Request("alive"), wire.encode_alive()).outcome == "ok"
    flush = queue.ask(client, Request("flush"), wire.encode_flush())
    assert "the disk failed" in flush.text


def test_after_a_failed_flush_nothing_is_believed_to_be_flushed(queue: Queue) -> None:
    queue.disk.fail_flush = lambda path: path.endswith(".log")
    queue.publish(queue.control, b"unknown")
    queue.disk.fail_flush = lambda path: False
    queue.engine.background.checkpoint()
    queue.scheduler.run_for(100)
    assert queue.engine.state.applied == 0
    assert queue.engine.state.flushed <= 1


def test_a_flush_command_is_answered_when_the_flush_fails() -> None:
    queue = Queue(flush="none")
    queue.publish(queue.control, b"m")
    queue.disk.fail_flush = lambda path: path.endswith(".log")
    flush = queue.ask(queue.control, Request("flush"), wire.encode_flush())
    assert flush.outcome == "unknown"
    queue.scheduler.close()


def test_a_failed_roll_is_a_failed_flush() -> None:
    queue = Queue(flush="none", segment_bytes=4096)
    for number in range(60):
        queue.publish(queue.control, b"m%d" % number)
        if queue.engine.journal.is_full:
            break
    queue.disk.fail_flush = lambda path: path.endswith(".log")
    refused = queue.publish(queue.control, b"refused")
    assert refused.outcome == "unknown"
    queue.disk.fail_flush = lambda path: False
    assert queue.publish(queue.control, b"too").outcome == "unknown"
    assert b"refused" not in queue.model.stored
    queue.scheduler.close()


def test_a_store_without_room_lets_everyone_wait_in_order(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.queue.engine.NOTE_EVERY_MS", 0)  # every batch has something to say to the store
    client = queue.client()
    queue.store.fail_write = lambda: True
    first = queue.ask(
        client, Request("create", b"new", asks=True), wire.encode_create_topic(b"new", want_event_id=True)
    )
    second = queue.publish(queue.control, b"second")
    assert (first.outcome, second.outcome) == ("open", "open")
    assert queue.engine.problems() == ["cannot write: cannot write to the store: No space left on device"]
    queue.scheduler.run_for(2500)
    assert first.outcome == "open"
    queue.store.fail_write = lambda: False
    queue.scheduler.run_for(2500)
    client.take_answers()
    queue.control.take_answers()
    assert (first.outcome, second.outcome) == ("ok", "ok")
    assert queue.engine.problems() == []
    assert first.event_id < queue.model.stored[b"second"][0]


def test_a_full_disk_is_told_before_anyone_writes_and_is_over_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = Queue(free_bytes_min=2**20)
    free = 2**19
    monkeypatch.setattr(queue.disk, "free_bytes", lambda: free)
    queue.scheduler.run_for(2500)
    (said,) = queue.engine.problems()
    assert said == "disk is full: 0 MiB free, 1 MiB are kept in reserve (journal.free_bytes_min)"
    free = 2**30
    queue.scheduler.run_for(2500)
    assert queue.engine.problems() == []


def test_a_refusal_never_overtakes_an_answer_that_waits_for_followers(queue: Queue) -> None:
    committed = [queue.engine.commit_event_id]
    queue.engine.flushed_hook = lambda through: committed[0]
    client, other = queue.client(), queue.client()
    first = queue.publish(client, b"waits")
    queue.engine.refuse_writes = "not enough followers in sync"
    second = queue.publish(client, b"refused")
    elsewhere = queue.publish(other, b"elsewhere")
    assert (first.outcome, second.outcome) == ("open", "open")
    assert elsewhere.outcome == "refused", "whoever waits for nothing is told at once"
    committed[0] = queue.engine.journal.last_event_id
    queue.engine.writer.committed(committed[0])
    client.take_answers()
    assert (first.outcome, second.outcome) == ("ok", "refused")


@pytest.fixture
def followed(queue: Queue) -> Queue:
    """The same queue, with followers that have nothing of what comes from now on."""
    through = queue.engine.commit_event_id
    queue.engine.flushed_hook = lambda _: through
    return queue


def test_what_comes_while_two_batches_wait_for_followers_becomes_one_batch(followed: Queue) -> None:
    counters, journal, writer = followed.engine.counters, followed.engine.journal, followed.engine.writer
    before = counters.batches
    clients = [followed.client() for _ in range(6)]
    requests = [followed.publish(client, b"%d" % number) for number, client in enumerate(clients)]
    assert counters.batches == before + UNCOMMITTED_BATCHES_MAX, "the others wait for one of these"
    first_of_them = journal.last_event_id - UNCOMMITTED_BATCHES_MAX + 1
    writer.committed(first_of_them)
    followed.scheduler.run_for(5)
    assert counters.batches == before + UNCOMMITTED_BATCHES_MAX + 1
    assert journal.last_event_id == first_of_them + len(clients) - 1
    writer.committed(journal.last_event_id)
    for client in clients:
        client.take_answers()
    assert [request.outcome for request in requests] == ["ok"] * 6


def send_in_turns(queue: Queue, count: int) -> None:
    """One client more sends in each turn of the loop."""

    def send(left: int) -> None:
        if left:
            queue.client().wire.send(publish(b"%d" % left))
            queue.scheduler.soon(lambda: send(left - 1))

    send(count)
    queue.scheduler.run_for(5)


def test_what_each_turn_brings_is_gathered_if_followers_have_to_write_it(queue: Queue) -> None:
    counters = queue.engine.counters
    before = counters.batches
    send_in_turns(queue, 5)
    assert counters.batches == before + 5, "nobody else has to flush: whoever comes is not kept waiting"
    queue.engine.writer.followers = ["one"]
    send_in_turns(queue, 5)
    assert counters.batches == before + 6


def test_a_batch_smaller_than_the_one_under_way_waits_for_it(followed: Queue) -> None:
    counters, journal, writer = followed.engine.counters, followed.engine.journal, followed.engine.writer
    before = counters.batches
    many = [(Request("publish", b"t", (b"m%d" % n,)), publish(b"m%d" % n)) for n in range(3)]
    large, small = followed.client(), followed.client()
    large.send(many)
    followed.scheduler.run_for(5)
    alone = followed.publish(small, b"alone")
    assert (counters.batches, alone.outcome) == (before + 1, "open")
    writer.committed(journal.last_event_id)
    followed.scheduler.run_for(5)
    assert counters.batches == before + 2, "nothing is under way that it could wait for"
    writer.committed(journal.last_event_id)
    small.take_answers()
    assert alone.outcome == "ok"


def test_what_waits_behind_uncommitted_batches_is_refused_when_this_node_leads_no_more(followed: Queue) -> None:
    clients = [followed.client() for _ in range(4)]
    requests = [followed.publish(client, b"%d" % number) for number, client in enumerate(clients)]
    followed.engine.stop_leading("this node leads no more")
    followed.scheduler.run_for(5)
    for client in clients:
        client.take_answers()
    assert [request.outcome for request in requests] == ["unknown", "unknown", "refused", "refused"]
    assert not followed.engine.writer.is_busy


def test_what_would_be_refused_does_not_wait_behind_uncommitted_batches(followed: Queue) -> None:
    clients = [followed.client() for _ in range(4)]
    requests = [followed.publish(client, b"%d" % number) for number, client in enumerate(clients)]
    followed.engine.refuse_writes = "not enough followers in sync"
    late = followed.publish(followed.client(), b"late")
    for client in clients:
        client.take_answers()
    assert [request.outcome for request in requests] == ["open", "open", "refused", "refused"]
    assert late.outcome == "refused"


def test_whoever_sends_too_much_behind_uncommitted_batches_is_read_from_again_when_they_are_committed(
    followed: Queue,
) -> None:
    writer = followed.engine.writer
    writer._pending_bytes_max = 5 * len(publish(b"00"))
    clients = [followed.client() for _ in range(10)]
    requests = [followed.publish(client, b"%02d" % number) for number, client in enumerate(clients)]
    assert any(client.wire.is_paused for client in clients)
    while writer.is_busy or writer.committed_through < followed.engine.journal.last_event_id:
        writer.committed(followed.engine.journal.last_event_id)
        followed.scheduler.run_for(5)
    for client in clients:
        client.take_answers()
    assert not any(client.wire.is_paused for client in clients)
    assert [request.outcome for request in requests] == ["ok"] * 10


def test_a_delay_behind_publishes_of_the_same_batch_has_its_own_number(queue: Queue) -> None:
    client = queue.client()
    delay = Request("delay", b"t", (b"later",), asks=True)
    data = wire.encode_delay(b"t", Message(b"later|").encode(), delay_ms=1000, want_event_id=True)
    asked = [(Request("publish", b"t", (b"m%d" % n,)), publish(b"m%d" % n)) for n in range(3)]
    client.send([*asked, (delay, data)])
    queue.scheduler.run_for(5)
    client.take_answers()
    assert delay.event_id == 5
    assert queue.model.delayed == {b"later": 5}
    queue.scheduler.run_for(1500)
    assert queue.model.delays == {}
    assert queue.model.stored[b"later"][0] == 6


def test_a_topic_that_is_being_deleted_is_not_found_in_the_store(queue: Queue) -> None:
    """Two deletes and a publish arrive while the first delete is on its way to the disk."""
    clients = [queue.client() for _ in range(3)]
    delete = [Request("delete", b"t"), Request("delete", b"t"), Request("publish", b"t", (b"late",))]
    clients[0].send([(delete[0], wire.encode_delete_topic(b"t"))])
    clients[1].send([(delete[1], wire.encode_delete_topic(b"t"))])
    clients[2].send([(delete[2], publish(b"late"))])
    queue.scheduler.run_for(5)
    for client in clients:
        client.take_answers()
    assert [request.outcome for request in delete] == ["ok", "refused", "refused"]
    assert b"late" not in queue.model.stored
    create = queue.ask(clients[0], Request("create", b"t"), wire.encode_create_topic(b"t"))
    assert create.outcome == "ok"


def test_what_changes_the_store_is_flushed_first_at_every_level() -> None:
    for level in ("none", "interval"):
        queue = Queue(flush=level)
        queue.publish(queue.control, b"m")
        before = queue.engine.journal.flushed_through
        queue.ask(queue.control, Request("create", b"u"), wire.encode_create_topic(b"u"))
        assert queue.engine.journal.flushed_through > before
        queue.scheduler.close()


def test_a_checkpoint_that_cannot_be_saved_is_made_again(queue: Queue) -> None:
    queue.publish(queue.control, b"m")
    queue.store.fail_write = lambda: True
    queue.engine.background.checkpoint()
    queue.scheduler.run_for(100)
    assert queue.engine.state.applied == 0
    assert queue.engine.topics.dirty
    queue.store.fail_write = lambda: False
    queue.engine.background.checkpoint()
    queue.scheduler.run_for(100)
    assert queue.engine.state.applied == 2
    assert not queue.engine.topics.dirty


def test_files_of_a_deleted_topic_go_with_a_checkpoint_also_after_a_restart(queue: Queue) -> None:
    queue.publish(queue.control, b"m")
    assert queue.disk.files("queue/topics")
    queue.store.fail_write = lambda: False
    queue.ask(queue.control, Request("delete", b"t"), wire.encode_delete_topic(b"t"))
    queue.scheduler.run_for(100)
    assert queue.disk.files("queue/topics") == []
    assert queue.engine.topics.dead == set()


def each_sends(clients: list[Publisher], name: bytes) -> list[Request]:
    """Every client publishes one message, whole, in one turn of the loop."""
    asked = []
    for number, client in enumerate(clients):
        request = Request("publish", b"t", (b"%b%02d" % (name, number),))
        client.open.append(request)
        client.wire.send(publish(request.bodies[0]))
        asked.append(request)
    return asked


def settled(queue: Queue, clients: list[Publisher]) -> None:
    queue.scheduler.run_for(5)
    for client in clients:
        client.take_answers()


def test_like_publishes_of_many_connections_are_numbered_as_they_came(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.queue.writer.RUN_COUNT_MAX", 4)
    monkeypatch.setattr("pixiu.queue.batch.RUN_COUNT_MAX", 4)
    clients = [queue.client() for _ in range(10)]
    for name in (b"a", b"b", b"c"):
        asked = each_sends(clients, name)
        settled(queue, clients)
        assert {request.outcome for request in asked} == {"ok"}
    numbers = [queue.model.stored[b"%b%02d" % (name, n)][0] for name in (b"a", b"b", b"c") for n in range(10)]
    assert numbers == list(range(2, 32))


def test_whoever_joins_a_batch_after_a_failed_flush_is_answered(queue: Queue) -> None:
    clients = [queue.client() for _ in range(4)]
    each_sends(clients, b"a")
    settled(queue, clients)
    before = each_sends(clients[:2], b"b")
    queue.engine.writer.flush_failed(OSError(5, "Input/output error"))
    behind = each_sends(clients[2:], b"c")
    settled(queue, clients)
    assert [request.outcome for request in (*before, *behind)] == ["unknown"] * 4
    assert not any(client.open for client in clients)


def test_like_publishes_wait_at_the_bound(queue: Queue) -> None:
    clients = [queue.client() for _ in range(10)]
    each_sends(clients, b"a")
    settled(queue, clients)
    queue.engine.writer._pending_bytes_max = 5 * len(publish(b"b00"))
    each_sends(clients, b"b")
    assert [client.wire.is_paused for client in clients] == [False] * 5 + [True] * 5
    assert queue.engine.writer.pending_bytes == 10 * len(publish(b"b00"))
    settled(queue, clients)
    assert not any(client.wire.is_paused for client in clients)
    assert queue.engine.writer.pending_bytes == 0


def test_a_topic_that_ends_meanwhile_refuses_each_of_its_publishes(queue: Queue) -> None:
    clients = [queue.client() for _ in range(4)]
    each_sends(clients, b"a")
    settled(queue, clients)
    delete = Request("delete", b"t")
    queue.control.send([(delete, wire.encode_delete_topic(b"t"))])
    late = each_sends(clients, b"b")
    settled(queue, [*clients, queue.control])
    assert delete.outcome == "ok"
    assert [request.outcome for request in late] == ["refused"] * 4


def fails(*_: object) -> None:
    raise ValueError("a bug of one connection")


@pytest.mark.parametrize("is_refused", [False, True])
def test_one_who_fails_at_its_answer_does_not_keep_the_others_from_theirs(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    clients = [queue.client() for _ in range(4)]
    each_sends(clients, b"a")
    settled(queue, clients)
    monkeypatch.setattr(clients[1].wire, "write", fails)
    asked = each_sends(clients, b"b")
    if is_refused:
        queue.engine.writer.flush_failed(OSError(5, "Input/output error"))
    with pytest.raises(ValueError, match="a bug of one connection"):
        queue.scheduler.run_for(5)
    settled(queue, clients)
    told = "unknown" if is_refused else "ok"
    assert [request.outcome for request in (asked[0], *asked[2:])] == [told] * 3


def test_one_who_fails_at_what_it_asked_next_is_cut(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it still waits for. Others are told what they asked for."""
    clients = [queue.client() for _ in range(2)]
    each_sends(clients, b"a")
    settled(queue, clients)
    monkeypatch.setitem(queue.server.handlers, HELLO, fails)
    asked = each_sends(clients, b"b")
    clients[0].wire.send(wire.encode_hello())
    with pytest.raises(ValueError, match="a bug of one connection"):
        queue.scheduler.run_for(5)
    settled(queue, clients)
    assert [request.outcome for request in asked] == ["ok", "ok"]
    assert [client.wire.is_closed for client in clients] == [True, False]
