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
from tests.contracts.registry import RegistryContract, eventually, read, register
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
