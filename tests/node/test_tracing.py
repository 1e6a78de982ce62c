"""Traces reach the log: a record a second, rooms once a minute, and never because of themselves."""

import asyncio
import random
from pathlib import Path

import pixiu
from pixiu.model.pixiu_pb2 import Record, Traces
from pixiu.node.tracing import ROOMS_MS, SESSIONS_MS, WRITE_MS, Tracing
from pixiu.ports.log import MAIN
from pixiu.roles.broker.broker import RoomRow
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler


class Written:
    """A node's tracing in simulated time, and the records that it wrote."""

    def __init__(self) -> None:
        self.records: list[Traces] = []
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.tracing = Tracing(
            self.clock, self.scheduler, lambda payload: self.records.append(Record.FromString(payload).traces),
            node=3, hop_sample=1,
        )  # fmt: skip

    def hear(self, room: str, messages: int) -> None:
        self.tracing.room(RoomRow(room, self.clock.now_ms(), messages, messages * 5, 100, 5, 4))


def test_rows_of_a_second_are_one_record() -> None:
    world = Written()
    for number in range(3):
        world.tracing.rows.flushed(number + 1, world.clock.now_ms(), 100)
    world.scheduler.run_for(WRITE_MS / 2)
    assert world.records == []
    world.scheduler.run_for(WRITE_MS)
    assert [len(each.flushes.event) for each in world.records] == [3]
    world.scheduler.run_for(SESSIONS_MS * 2)
    assert len(world.records) == 1  # nothing happens, nothing is written


def test_rooms_are_written_once_a_minute() -> None:
    world = Written()
    for _ in range(90):
        world.hear("hall", 2)
        world.scheduler.run_for(1_000)
    world.tracing.stop()
    assert [(list(each.rooms.room), sum(each.rooms.messages)) for each in world.records] == [
        (["hall"], 2 * ROOMS_MS // 1000), (["hall"], 60),
    ]  # fmt: skip


def test_sessions_that_stay_are_counted_every_hour() -> None:
    world = Written()
    world.tracing.rows.session(1, 7, "web", "local", world.clock.now_ms(), is_open=True)
    world.scheduler.run_for(SESSIONS_MS * 2.5)
    assert [(each.sessions.now, each.sessions.peak) for each in world.records] == [(1, 1)] * 3
    world.tracing.rows.session(1, 7, "web", "local", world.clock.now_ms(), is_open=False)
    world.scheduler.run_for(SESSIONS_MS * 3)
    assert [each.sessions.now for each in world.records] == [1, 1, 1, 0]


async def test_a_node_that_rests_writes_nothing(tmp_path: Path) -> None:
    """A record of traces is committed and applied like any other; it must not be the reason for the next one."""
    async with pixiu.Node.embedded(tmp_path, creates_users=True) as node:
        bob = await node.connect("bob")
        await node.send("alice", to="bob", text="hello")
        await bob.receive(timeout_seconds=10)
        bob.ack()
        for _ in range(100):
            traced = [each for each in node.host.log.topic(MAIN, 0, 1000) if b"local" in each.payload]
            if any(Record.FromString(each.payload).HasField("traces") for each in traced):
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError("nothing was traced")
        end = node.host.log.committed
        node.messaging.tracing.write()  # what the record of traces itself would have caused
        await node.host.written()
        assert node.host.log.committed == end
        report = await node.audit()
        assert report["balanced"] is True
