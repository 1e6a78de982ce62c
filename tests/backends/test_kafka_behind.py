"""Reading the log in Kafka for those who are behind memory: never ahead of its owner, and never for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.served import behind as behind_module
from pixiu.backends.kafka.served.behind import BehindReading
from pixiu.model.pixiu_pb2 import Push, Record
from pixiu.ports.log import MAIN, TASKS
from tests.kafka_port import Port, all_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.kafka.batch import Batch
    from pixiu.backends.kafka.reader import Chunk

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


def said(port: Port, topic: str, payload: bytes) -> int:
    """Its event id."""
    done: list[Any] = []
    port.log.publish(topic, payload, done.append)
    port.until(lambda: bool(done))
    assert isinstance(done[0], int), done
    return done[0]


def pushed(port: Port, users: int) -> int:
    """Its event id."""
    done: list[Any] = []
    record = Record(actor=1, push=Push(users=range(1, users + 1)))
    port.log.append(MAIN, record.SerializeToString(), done.append)
    port.until(lambda: bool(done))
    return int(done[0].event_id)


def test_a_feed_is_not_given_what_its_owner_does_not_know_of(open_port: Callable[..., Port]) -> None:
    """Kafka has committed it, and the answer is on its way: a feed that had it would be refused when it comes back."""
    port = open_port(tail_bytes_max=1)
    known = [said(port, MAIN, b"%d" % number) for number in range(5)][-1]
    held: list[Callable[[], None]] = []
    sending = port.log.sending
    sent = sending._sent

    def hold(batch: Batch, offsets: list[int], error: BaseException | None) -> None:
        held.append(lambda: sent(batch, offsets, error))

    sending._sent = hold  # type: ignore[method-assign]
    port.log.publish(MAIN, b"written, and not known")
    port.until(lambda: bool(held))
    came: list[Any] = []
    port.served.read_behind(0, came.append)
    port.until(lambda: bool(came))
    assert [piece.last for piece in came[0]] == [known] == [port.log.committed]
    sending._sent = sent  # type: ignore[method-assign]
    held[0]()
    assert port.log.committed == known + 1
    assert port.run(all_of(port)) == [*(b"%d" % number for number in range(5)), b"written, and not known"]


def test_a_push_to_very_many_is_not_read_through_at_once(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the tasks of others: nobody waits for more than a slice of it."""
    monkeypatch.setattr(behind_module, "WALK_MAX", 50)
    port = open_port()
    tasks = [said(port, TASKS, b"first")]
    for _ in range(3):
        pushed(port, 700)
        pushed(port, 3)
        tasks.append(said(port, TASKS, b"next"))
    walked, most = 0, 0
    read = PartitionReader.read

    def counted(reader: PartitionReader, limit: int, wait_ms: float) -> Chunk:
        nonlocal walked
        chunk = read(reader, limit, wait_ms)
        walked += len(chunk.found)
        return chunk

    monkeypatch.setattr(PartitionReader, "read", counted)
    behind = BehindReading(port.log.address, {})
    found: list[int] = []
    after, pages = 0, 0
    while after < port.log.committed:
        walked = 0
        page = behind.topic(TASKS, after, 20, port.log.committed, tasks[-1])
        most, pages = max(most, walked), pages + 1
        found += [record.event_id for record in page.records]
        after = page.through
        assert pages < 30
    behind.close()
    assert found == tasks
    assert most < 150, "a slice, and the steps of a search"


def test_one_push_of_many_is_passed_by_a_search_also_where_no_reader_stands(
    open_port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind_module, "WALK_MAX", 50)
    port = open_port()
    push = pushed(port, 900)
    task = said(port, TASKS, b"behind it")
    behind = BehindReading(port.log.address, {})
    first = behind.topic(TASKS, 0, 20, port.log.committed, task)
    assert (first.records, first.through) == ([], push)
    behind.close()
    second = behind.topic(TASKS, first.through, 20, port.log.committed, task)
    assert [record.event_id for record in second.records] == [task]
    behind.close()
