"""What every ``ports.log.Log`` does on a real loop. A test is a class with a fixture ``log``, open and followed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.model.errors import PixiuError
from pixiu.ports.log import MAIN, NOTIFY, SCHEDULE, TASKS, Appended, LogRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.log import Log

__all__ = ["LogContract", "arrived", "asked", "read_all"]

PATIENCE_S = 10.0


async def asked(ask: Callable[[Callable[[Any], object]], object]) -> Any:
    """Wait for a callback, which is never called within the call; raise what it brings if that is an error."""
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(waiting.set_result)
    assert not waiting.done(), "told within the call"
    async with asyncio.timeout(PATIENCE_S):
        answer = await waiting
    if isinstance(answer, PixiuError):
        raise answer
    return answer


async def arrived(log: Log, event_id: int) -> None:
    """Wait until an event is committed, as this end of the log knows it."""
    async with asyncio.timeout(PATIENCE_S):
        while log.committed < event_id:
            await asyncio.sleep(0.002)


def read_all(log: Log, after: int = 0, limit: int = 100) -> list[LogRecord]:
    """Read as the carrier does."""
    found: list[LogRecord] = []
    while after < log.committed:
        committed = log.committed
        records = log.read(after, limit)
        found += records
        after = records[-1].event_id if records else committed
    return found


async def append(log: Log, payload: bytes, topic: str = MAIN, **more: Any) -> Appended:
    answer = await asked(lambda done: log.append(topic, payload, done, **more))
    assert isinstance(answer, Appended)
    return answer


class LogContract:
    """The contract."""

    async def test_appends_are_numbered_and_read_in_order(self, log: Log) -> None:
        after = log.committed
        answers = await asyncio.gather(*(append(log, b"%d" % number) for number in range(50)))
        assert [each.event_id for each in answers] == sorted({each.event_id for each in answers})
        assert [each.message_id for each in answers] == sorted({each.message_id for each in answers})
        assert not any(each.is_repeat for each in answers)
        await arrived(log, answers[-1].event_id)
        records = read_all(log, after)
        assert [(each.event_id, each.message_id) for each in records] == [each[:2] for each in answers]
        assert [each.payload for each in records] == [b"%d" % number for number in range(50)]
        assert {each.topic for each in records} == {MAIN}
        assert all(abs(each.at - time.time() * 1000) < 60_000 for each in records)

    async def test_a_key_is_appended_once_and_its_repeats_get_the_first_answer(self, log: Log) -> None:
        before = log.committed
        first = await append(log, b"first", key=b"\x00k1", unless_after=before)
        again = await append(log, b"again", key=b"\x00k1", unless_after=before)
        assert (again.event_id, again.message_id, again.is_repeat) == (first.event_id, first.message_id, True)
        later = await append(log, b"later", key=b"\x00k1", unless_after=first.event_id)
        assert not later.is_repeat, "the key did not come behind that event"
        await arrived(log, later.event_id)
        assert [(each.payload, each.key) for each in read_all(log, before)] == [
            (b"first", b"\x00k1"),
            (b"later", b"\x00k1"),
        ]

    async def test_what_is_published_has_an_event_id_and_no_number(self, log: Log) -> None:
        before = log.committed
        event_id = await asked(lambda done: log.publish(NOTIFY, b"task", done))
        log.publish(TASKS, b"nobody waits")
        last = await append(log, b"said")
        await arrived(log, last.event_id)
        records = read_all(log, before)
        assert records[0][:4] == (event_id, 0, NOTIFY, b"task")
        assert (TASKS, b"nobody waits") in [(each.topic, each.payload) for each in records]

    async def test_readers_go_on_wherever_they_are_and_get_no_more_than_they_can_take(self, log: Log) -> None:
        before = log.committed
        answers = [await append(log, b"%d" % number) for number in range(20)]
        await arrived(log, answers[-1].event_id)
        middle = answers[9].event_id
        assert [each.payload for each in read_all(log, middle)] == [b"%d" % number for number in range(10, 20)]
        few = log.read(before, 3)
        assert [each.payload for each in few[:3]] == [b"0", b"1", b"2"]
        assert log.read(answers[-1].event_id, 10) == []
        assert [each.payload for each in read_all(log, middle)] == [b"%d" % number for number in range(10, 20)]

    async def test_a_topic_is_read_alone(self, log: Log) -> None:
        before = log.committed
        for number in range(5):
            await append(log, b"said %d" % number)
            await asked(lambda done, number=number: log.publish(NOTIFY, b"task %d" % number, done))  # type: ignore[misc]
        await arrived(log, (await append(log, b"last")).event_id)
        records = log.topic(NOTIFY, before, 3)
        assert [each.payload for each in records] == [b"task 0", b"task 1", b"task 2"]
        rest = log.topic(NOTIFY, records[-1].event_id, 100)
        assert [each.payload for each in rest] == [b"task 3", b"task 4"]
        assert log.topic(NOTIFY, rest[-1].event_id, 100) == []

    async def test_what_is_scheduled_waits_and_comes_once(self, log: Log) -> None:
        before = log.committed
        now = int(time.time() * 1000)
        soon = await asked(lambda done: log.schedule(SCHEDULE, b"soon", now + 300, done))
        later = await asked(lambda done: log.schedule(SCHEDULE, b"later", now + 3_600_000, done))
        gone = await asked(lambda done: log.schedule(SCHEDULE, b"gone", now + 1_800_000, done))
        waiting = [(each.schedule_id, each.due, each.payload) for each in log.scheduled(SCHEDULE)]
        assert waiting == [
            (soon, now + 300, b"soon"),
            (gone, now + 1_800_000, b"gone"),
            (later, now + 3_600_000, b"later"),
        ]
        assert await asked(lambda done: log.unschedule(gone, done)) is True
        assert await asked(lambda done: log.unschedule(gone, done)) is False
        async with asyncio.timeout(PATIENCE_S):
            while not (records := [each for each in read_all(log, before) if each.topic == SCHEDULE]):
                await asyncio.sleep(0.01)
        assert [each.payload for each in records] == [b"soon"]
        assert [each.schedule_id for each in log.scheduled(SCHEDULE)] == [later]
        assert await asked(lambda done: log.unschedule(later, done)) is True
        assert log.scheduled(SCHEDULE) == []

    async def test_a_topic_that_is_not_there_is_refused(self, log: Log) -> None:
        with pytest.raises(PixiuError):
            await append(log, b"x", topic="pixiu.nothing")
