"""The log over the network beside what its contract says: servers that die, memory that is too small, wrong keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.queue_log import RemoteLog
from pixiu.backends.queue_log import log as remote_module
from pixiu.model.errors import NotAllowed, RequestError
from pixiu.ports.log import MAIN, NOTIFY, Appended
from pixiu.queue.client import Client
from pixiu.runtime.datadir import read_node_key
from tests.remote_logs import arrived, read_all, read_topic
from tests.servers import QueueProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.model.errors import PixiuError
    from pixiu.ports.log import LogRecord


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path_factory.mktemp("queue") / "data") as queue:
        yield queue


def connected(queue: QueueProcess, **more: float) -> Client:
    return Client(queue.address, key=read_node_key(queue.data), **more)  # type: ignore[arg-type]


async def end_of(client: Client) -> int:
    return (await client.hello()).last_event_id


async def append(log: RemoteLog, payload: bytes, key: bytes) -> Appended:
    waiting: asyncio.Future[Appended | PixiuError] = asyncio.get_running_loop().create_future()
    log.append(MAIN, payload, waiting.set_result, key=key)
    async with asyncio.timeout(10):
        answer = await waiting
    assert isinstance(answer, Appended), answer
    return answer


@pytest.mark.serial
class TestRemoteLog:
    async def test_a_follower_begins_in_the_middle_of_a_record_of_many(self, queue: QueueProcess) -> None:
        async with connected(queue) as client:
            log = RemoteLog(client)
            await log.open()
            first, *_, last = await client.publish_many(MAIN, [f"{number}" for number in range(10)])
            log.follow(first + 4, lambda: None)
            await arrived(log, last)
            assert [each.payload for each in read_all(log, first + 4)] == [b"5", b"6", b"7", b"8", b"9"]
            scanned: list[LogRecord] = []
            async for batch in log.scan(last - 1, first + 1):
                scanned += batch
            assert [each.payload for each in scanned] == [b"%d" % number for number in range(2, 9)]
            await log.close()

    async def test_what_memory_does_not_hold_is_fetched_again(
        self, queue: QueueProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote_module, "PAGE", 7)
        async with connected(queue) as client:
            log = RemoteLog(client, buffer_bytes_max=5_000)
            await log.open()
            start = await end_of(client)
            for number in range(100):
                await client.publish_many(MAIN, [f"said {number}"])
                await client.publish_many(NOTIFY, [f"task {number}"])
            end = await end_of(client)
            log.follow(start, lambda: None)
            async with asyncio.timeout(10):
                position, got = start, list[bytes]()
                while position < end:  # a buffer that is full waits for its reader
                    committed = log.committed
                    records = log.read(position, 10)
                    got += [each.payload for each in records if each.topic == MAIN]
                    position = records[-1].event_id if records else committed
                    await asyncio.sleep(0)
            assert got == [b"said %d" % number for number in range(100)]
            assert log._buffer._size < 10_000
            tasks = await read_topic(log, NOTIFY, start, 30)
            assert tasks == [b"task %d" % number for number in range(100)]
            assert log.read(start, 10) == [], "far behind: it is followed anew from there"
            assert log.committed == start
            await arrived(log, start + 4)
            assert log.read(start, 1)[0].payload == b"said 0"
            await log.close()

    async def test_a_server_that_dies_costs_time_and_no_record(self, tmp_path: Path) -> None:
        with QueueProcess(tmp_path / "data") as own:
            async with connected(own, patience_s=20.0, response_timeout_s=2.0) as client:
                log = RemoteLog(client)
                await log.open()
                heard: list[int] = []
                log.follow(0, lambda: heard.append(log.committed))
                first = await append(log, b"before", key=b"\x001")
                await arrived(log, first.event_id)
                own.kill()
                await asyncio.sleep(0.05)
                waiting = asyncio.ensure_future(append(log, b"meanwhile", key=b"\x002"))
                await asyncio.sleep(0.1)
                own.restart()
                second = await waiting
                await arrived(log, second.event_id)
                records = [each for each in read_all(log) if each.topic == MAIN]
                assert [each.payload for each in records] == [b"before", b"meanwhile"]
                assert heard == sorted(heard)
                assert log.problem == ""
                await log.close()

    async def test_a_damaged_record_ends_a_scan_with_its_place_and_is_not_asked_for_all_the_time(
        self, tmp_path: Path
    ) -> None:
        with QueueProcess(tmp_path / "data") as queue:
            async with connected(queue) as client:
                await RemoteLog(client).open()
                ends = [(await client.publish_many(MAIN, [b"x" * 1000] * 50)).stop for _ in range(20)]
            queue.stop()
            (path,) = (queue.data / "queue" / "journal").glob("*.log")
            with path.open("r+b") as journal:
                journal.seek(path.stat().st_size // 2)
                journal.write(b"rot")
            queue.start()
            async with connected(queue) as client:
                log = RemoteLog(client)
                await log.open()
                scanned = 0
                with pytest.raises(RequestError, match=r"checksum does not match.*pixiu queue verify"):
                    async with asyncio.timeout(30):
                        async for batch in log.scan(ends[-1] - 1):
                            scanned += len(batch)
                assert 0 < scanned < 1000
            said = queue.stderr.count("cannot read the journal for an applier")
            assert 0 < said <= remote_module.SCAN_REFUSALS_MAX + 1

    async def test_whoever_has_no_key_follows_nothing(self, queue: QueueProcess) -> None:
        async with Client(queue.address) as client:
            log = RemoteLog(client)
            with pytest.raises(NotAllowed):
                await log.open()
            log.follow(0, lambda: None)
            async with asyncio.timeout(5):
                while "reserved" not in log.problem:
                    await asyncio.sleep(0.01)
            assert log.committed == 0
            await log.close()
