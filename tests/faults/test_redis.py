"""Redis is killed, frozen, emptied, filled and failed over under load: nothing accepted is lost, and it is told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from valkey import Valkey
from valkey.exceptions import ConnectionError as ValkeyConnectionError

import pixiu
from benchmarks.engines.storm import GONE_SECONDS, HOWS, P99_MS, storm
from pixiu.config import CarrierSettings, EngineSettings, Settings
from pixiu.model.errors import PixiuError
from pixiu.node.embedded import EmbeddedNode
from tests.engines import ValkeyProcess, sentinel_config

pytestmark = [pytest.mark.engines, pytest.mark.serial]

USERS = 8


@asynccontextmanager
async def opened(root: Path, url: str) -> AsyncIterator[EmbeddedNode]:
    settings = Settings(engines=EngineSettings(store=url), carrier=CarrierSettings(commit_ms=20, lane_retry_ms=50))
    async with pixiu.Node.embedded(root, settings=settings, creates_users=True) as node:
        yield node


class Load:
    """Users who talk to each other, and what each has got."""

    def __init__(self, node: EmbeddedNode) -> None:
        self.node = node
        self.accepted: dict[str, set[str]] = {str(user): set() for user in range(1, USERS + 1)}
        self.got: dict[str, list[str]] = {str(user): [] for user in range(1, USERS + 1)}
        self.refused: list[str] = []
        self.talkers: list[asyncio.Task[None]] = []
        self.listeners: list[asyncio.Task[None]] = []
        self.is_over = self.is_all_said = False

    async def begin(self) -> None:
        for user in self.accepted:
            await self.node.create_user(user)
        await self.node.create_group("1", "9", members=[user for user in self.accepted if user != "1"])
        for user in list(self.accepted)[: USERS // 2]:
            self.listeners.append(asyncio.create_task(self._listen(user)))
        for user in self.accepted:
            self.talkers.append(asyncio.create_task(self._talk(user)))
        await self.grow()

    async def grow(self, count: int = 100) -> None:
        """Wait until so many more were accepted."""
        goal = self.count + count
        for _ in range(3000):
            if self.count >= goal:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"only {self.count} of {goal} were accepted: {self.refused[-1:]}")

    @property
    def count(self) -> int:
        return sum(len(ids) for ids in self.accepted.values())

    async def _talk(self, user: str) -> None:
        number = 0
        while not self.is_over:
            number += 1
            peer = str((int(user) + number) % USERS + 1)
            try:
                if number % 5 == 0:
                    sent = await self.node.gsend(user, group="9", text="g", send_id=f"{user}-{number}")
                    for each in self.accepted.values():
                        each.add(sent["message_id"])
                else:
                    sent = await self.node.send(user, to=peer, text="x", send_id=f"{user}-{number}")
                    self.accepted[peer].add(sent["message_id"])
            except PixiuError as error:
                self.refused.append(str(error))
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.001)

    async def _listen(self, user: str) -> None:
        phone = None
        while not self.is_all_said or not self.accepted[user] <= set(self.got[user]):
            try:
                if phone is None or phone.closed is not None:
                    phone = await self.node.connect(user, platform="ios", cursor=phone.cursor if phone else "0")
                message = await phone.receive(timeout_seconds=0.2)
                self.got[user].append(message["message_id"])
                phone.ack()
            except (TimeoutError, PixiuError):
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Everyone who listens has got all that was accepted, and the books balance."""
        self.is_over = True
        await asyncio.wait_for(asyncio.gather(*self.talkers), 30)
        self.is_all_said = True
        await asyncio.wait(self.listeners, timeout=30)
        for user in list(self.accepted)[: USERS // 2]:
            assert self.accepted[user] - set(self.got[user]) == set(), f"user {user}"
        report = await self.node.audit()
        assert report["balanced"], report
        assert report["lost"] == [] and report["duplicates"] == []


async def until(is_so: Callable[[], object], what: str) -> None:
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


async def through(root: Path, url: str, fault: Callable[[Load], Awaitable[None]]) -> None:
    """Load, a fault in the middle of it, load again; then all is there, also after a restart."""
    async with opened(root, url) as node:
        load = Load(node)
        await load.begin()
        await fault(load)
        await load.grow()
        await until(lambda: not node.messaging.problems(), "ready again")
        await load.end()
    async with opened(root, url) as node:
        report = await node.audit()
        assert report["balanced"], report


@pytest.mark.parametrize("appendonly", ["yes", "no"])
async def test_killed_and_started_again(tmp_path: Path, appendonly: str) -> None:
    """With appendonly all or most is there again; without, nothing is, and the log brings it back."""
    with ValkeyProcess(tmp_path / "valkey", "--appendonly", appendonly) as server:

        async def fault(load: Load) -> None:
            for _ in range(3):
                server.stop()
                await until(load.node.messaging.problems, "told that it is down")
                assert "Redis at 127.0.0.1" in " ".join(load.node.messaging.problems())
                await asyncio.sleep(0.1)
                await asyncio.to_thread(server.start)
                await until(lambda: not load.node.messaging.problems(), "ready again")
                await load.grow(50)

        await through(tmp_path / "data", f"{server.url}?probe_ms=20", fault)


async def test_frozen_it_holds_up_the_node_once(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server:

        async def fault(load: Load) -> None:
            server.freeze()
            await until(load.node.messaging.problems, "told that it is down")
            loop = asyncio.get_running_loop()
            worst, until_then = 0.0, loop.time() + 1.0
            while (before := loop.time()) < until_then:
                await asyncio.sleep(0.005)
                worst = max(worst, loop.time() - before)
            assert worst < 0.2, "the loop goes on while Redis does not"
            server.thaw()

        await through(tmp_path / "data", f"{server.url}?timeout_ms=300&probe_ms=20", fault)


async def test_emptied_under_load_everything_comes_back_from_the_log(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server, Valkey(port=server.port) as redis:

        async def fault(load: Load) -> None:
            redis.flushall()
            await until(lambda: redis.exists("pixiu:meta"), "begun again")
            await load.grow()
            assert redis.hget("pixiu:owner", "commit")

        await through(tmp_path / "data", server.url, fault)


async def test_at_its_memory_limit_it_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server, Valkey(port=server.port) as redis:

        async def fault(load: Load) -> None:
            redis.config_set("maxmemory", "1mb")
            await until(load.node.messaging.problems, "told that it is full")
            assert "memory limit: raise maxmemory" in " ".join(load.node.messaging.problems())
            await asyncio.sleep(0.2)
            redis.config_set("maxmemory", "0")

        await through(tmp_path / "data", server.url, fault)


@pytest.mark.feature("T5")
@pytest.mark.parametrize("how", HOWS)
def test_a_hundred_thousand_sessions_go_at_once_and_others_are_not_held_up(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server:
        found = storm(server.port, how)
    with capsys.disabled():
        print(f" {how}: gone in {found.gone_s:.1f} s, others p99 {found.p99_ms:.1f} ms of {found.asked} ", end="")
    assert found.gone_s <= GONE_SECONDS
    assert found.p99_ms < P99_MS and found.asked > 1000


def role(server: ValkeyProcess) -> bytes:
    """Leader or replica. Who becomes another one closes its connections."""
    try:
        return bytes(server.told("ROLE")[0])
    except ValkeyConnectionError:
        return b""


async def test_a_sentinel_fails_over_and_the_lanes_go_back_to_what_the_replica_has(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path / "a") as leader,
        ValkeyProcess(tmp_path / "b", "--replicaof", "127.0.0.1", str(leader.port)) as replica,
    ):
        config = sentinel_config(tmp_path, leader)
        with ValkeyProcess(tmp_path / "s", sentinel=config) as sentinel:
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/pixiu?probe_ms=50&timeout_ms=500"
            with Valkey(port=replica.port) as redis:
                await until(lambda: redis.info("replication")["master_link_status"] == "up", "synced")

                async def fault(load: Load) -> None:
                    leader.stop()
                    await until(load.node.messaging.problems, "told that it is down")
                    await until(lambda: role(replica) == b"master", "failed over")
                    await load.grow()
                    assert redis.exists("pixiu:meta")

                await through(tmp_path / "data", url, fault)
