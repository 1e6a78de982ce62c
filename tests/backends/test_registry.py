"""The registries: in process, and a real ZooKeeper ensemble of three."""

import asyncio
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from pixiu.backends.memory.registry import MemoryRegistry, MemorySession
from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.model.errors import Unavailable
from pixiu.ports.registry import Folder, Registry
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.zookeeper import Ensemble
from tests.contracts.registry import SECONDS, RegistryContract, eventually, read, register
from tests.engines import require_zookeeper
from tests.servers import free_port

SESSION_MS = 2_000


class TestMemory(RegistryContract):
    """The reference."""

    @pytest.fixture(autouse=True)
    async def _tree(self) -> None:
        self.tree = MemoryRegistry(LoopScheduler(asyncio.get_running_loop()))

    async def open_session(self) -> Registry:
        return self.tree.open()

    async def expire(self, registry: Registry) -> None:
        assert isinstance(registry, MemorySession)
        registry.expire()

    async def test_without_contact_nothing_is_answered(self) -> None:
        session = self.tree.open()
        session.suspend()
        with pytest.raises(Unavailable):
            await register(session, "/t", {})
        session.resume()
        assert await register(session, "/t", {})


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    require_zookeeper()
    with Ensemble(tmp_path_factory.mktemp("zookeeper"), servers=3) as started:
        yield started


class TestZooKeeper(RegistryContract):
    """Three servers that agree."""

    @pytest.fixture(autouse=True)
    async def _ensemble(self, ensemble: Ensemble, request: pytest.FixtureRequest) -> None:
        self.ensemble = ensemble
        self.sessions: list[ZooKeeperRegistry] = []

    async def open_session(self) -> Registry:
        loop = asyncio.get_running_loop()
        registry = ZooKeeperRegistry(self.ensemble.hosts, loop, session_ms=SESSION_MS)
        await loop.run_in_executor(None, registry.connect)
        return registry

    async def expire(self, registry: Registry) -> None:
        """A second client takes the session over and ends it: ZooKeeper's own way to test this."""
        assert isinstance(registry, ZooKeeperRegistry)
        identity = registry._client.client_id

        def take_over() -> None:
            thief = KazooClient(hosts=self.ensemble.hosts, client_id=identity)
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.get_running_loop().run_in_executor(None, take_over)

    async def test_the_loss_of_one_of_three_servers_costs_no_session(self, one: Registry) -> None:
        path = await register(one, "/t/loss", {"n": 1})
        for index in range(3):
            self.ensemble.kill(index)
            found = await eventually(lambda: _read_again(one, "/t/loss"), lambda folder: bool(folder))
            assert [f"/t/loss/{name}" for name in found] == [path]
            await asyncio.get_running_loop().run_in_executor(None, self.ensemble.start)

    async def test_what_comes_between_two_looks_of_a_watch_is_told(
        self, one: Registry, other: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing was there; it is made before ZooKeeper is asked to tell of its making."""
        assert isinstance(one, ZooKeeperRegistry) and isinstance(other, ZooKeeperRegistry)
        asks = one._client.exists_async
        made: list[str] = []

        def exists_async(path: str, watch: object) -> object:
            if not made:
                made.append(path)
                other._client.create(f"{path}/first", b"{}", makepath=True)
            return asks(path, watch=watch)

        monkeypatch.setattr(one._client, "exists_async", exists_async)
        hints: list[float] = []
        one.watch("/t/between", lambda: hints.append(asyncio.get_running_loop().time()))
        async with asyncio.timeout(SECONDS):
            while not hints:
                await asyncio.sleep(0.01)
            while asyncio.get_running_loop().time() - hints[-1] < 0.3:  # until nothing more comes
                await asyncio.sleep(0.05)
            before = len(hints)
            await register(other, "/t/between", {})
            while len(hints) == before:
                await asyncio.sleep(0.01)

    async def test_a_node_that_is_no_json_hides_no_others(self, one: Registry) -> None:
        assert isinstance(one, ZooKeeperRegistry)
        path = await register(one, "/t/odd", {"n": 1})
        for name, data in (("a", b"hello"), ("b", b"[1]"), ("c", b"\xff{}")):
            one._client.create(f"/t/odd/{name}", data)
        assert [f"/t/odd/{name}" for name in await read(one, "/t/odd")] == [path]


async def _read_again(registry: Registry, path: str) -> Folder:
    """While a server is being lost an answer may be."""
    try:
        return await read(registry, path)
    except Unavailable:
        return {}


async def test_where_no_zookeeper_is_the_error_says_where_it_looked() -> None:
    loop = asyncio.get_running_loop()
    port = free_port()
    registry = ZooKeeperRegistry(f"127.0.0.1:{port}", loop)
    with pytest.raises(Unavailable, match=f"no ZooKeeper answers at 127.0.0.1:{port}"):
        await loop.run_in_executor(None, lambda: registry.connect(0.5))
    await loop.run_in_executor(None, registry.close)
