"""What every ``Registry`` must do."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from pixiu.model.errors import Conflict, NotFound, PixiuError
from pixiu.ports.registry import Folder, Registry, SessionState, Write, sequence_of

T = TypeVar("T")
SECONDS = 20


class RegistryContract(ABC):
    """A tree that all see, nodes that live as long as their session, changes that name what they replace."""

    @abstractmethod
    async def open_session(self) -> Registry:
        """A new session with the registry of this test."""

    @abstractmethod
    async def expire(self, registry: Registry) -> None:
        """Make the registry give a session up, as if it had been silent for too long."""

    @pytest.fixture
    async def one(self) -> AsyncIterator[Registry]:
        registry = await self.open_session()
        yield registry
        await closed(registry)

    @pytest.fixture
    async def other(self) -> AsyncIterator[Registry]:
        registry = await self.open_session()
        yield registry
        await closed(registry)

    async def test_a_registered_node_is_seen_by_all_and_numbers_rise(self, one: Registry, other: Registry) -> None:
        # X05: sorted by number, whatever the order of their coming.
        paths = [await register(each, "/t/a/proxy", {"address": "x", "state": "Init"}) for each in (one, other, one)]
        numbers = [sequence_of(path) for path in paths]
        assert numbers == sorted(set(numbers))
        # A server may be a moment behind the one that registered.
        found = await eventually(lambda: read(other, "/t/a/proxy"), lambda folder: len(folder) == len(numbers))
        assert [sequence_of(name) for name in found] == numbers
        assert {entry.data["address"] for entry in found.values()} == {"x"}

    async def test_nodes_go_with_their_session_and_nobody_elses_do(self, one: Registry, other: Registry) -> None:
        gone = await register(one, "/t/b/broker", {"state": "Running"})
        stays = await register(other, "/t/b/broker", {"state": "Running"})
        await closed(one)
        found = await eventually(lambda: read(other, "/t/b"), lambda folder: len(folder) == 1)
        assert f"/t/b/{next(iter(found))}" == stays != gone

    async def test_a_lost_session_is_told_and_registers_anew_under_a_larger_number(
        self, one: Registry, other: Registry
    ) -> None:
        states: asyncio.Queue[SessionState] = asyncio.Queue()
        one.when_session(states.put_nowait)
        before = await register(one, "/t/c", {"n": 1})
        await self.expire(one)
        async with asyncio.timeout(SECONDS):
            while await states.get() is not SessionState.LOST:
                pass
            while await states.get() is not SessionState.CONNECTED:
                pass
        assert await eventually(lambda: read(other, "/t/c"), lambda folder: not folder) == {}
        after = await register(one, "/t/c", {"n": 2})
        assert sequence_of(after) > sequence_of(before)

    async def test_a_change_names_the_version_that_it_replaces(self, one: Registry, other: Registry) -> None:
        path = "/t/d/partition_num"
        assert await write(one, Write(path, {"count": 1}, -1)) == 0
        assert await write(one, Write(path, {"count": 2}, 0)) == 1
        with pytest.raises(Conflict):
            await write(other, Write(path, {"count": 4}, 0))
        with pytest.raises(Conflict):
            await write(other, Write(path, {"count": 4}, -1))
        with pytest.raises(NotFound):
            await write(other, Write("/t/d/nothing", {}, 3))
        assert await write(other, Write(path, {"count": 8})) == 2
        assert await write(other, Write("/t/d/new/deep", {"made": True})) == 0
        found = await read(other, path)
        assert (found[""].data, found[""].version) == ({"count": 8}, 2)

    async def test_of_two_who_replace_one_version_one_wins(self, one: Registry, other: Registry) -> None:
        await write(one, Write("/t/e/ctl", {"epoch": 0}, -1))
        results = await asyncio.gather(
            *(write(each, Write("/t/e/ctl", {"epoch": 1, "leader": n}, 0)) for n, each in enumerate((one, other, one))),
            return_exceptions=True,
        )
        assert sorted(type(result) is int for result in results) == [False, False, True]
        assert all(isinstance(result, int | Conflict) for result in results)

    async def test_several_changes_are_made_together_or_not_at_all(self, one: Registry, other: Registry) -> None:
        await write(one, Write("/t/f/a", {"n": 1}, -1))
        await write(one, Write("/t/f/b", {"n": 1}, -1))
        assert await swap(one, [Write("/t/f/a", {"n": 2}, 0), Write("/t/f/b", {"n": 2}, 0)]) is None
        assert isinstance(await swap(other, [Write("/t/f/a", {"n": 3}, 1), Write("/t/f/b", {"n": 3}, 0)]), Conflict)
        found = await read(other, "/t/f")
        assert [found[name].data["n"] for name in "ab"] == [2, 2]

    async def test_removing(self, one: Registry, other: Registry) -> None:
        await write(one, Write("/t/g/a", {"n": 1}, -1))
        with pytest.raises(Conflict):
            await remove(other, "/t/g/a", 7)
        await remove(other, "/t/g/a", 0)
        await remove(other, "/t/g/a", None)
        with pytest.raises(NotFound):
            await remove(other, "/t/g/a", 0)
        assert await read(one, "/t/g/a") == {}

    async def test_a_tree_is_read_whole(self, one: Registry) -> None:
        await write(one, Write("/t/h/x", {"n": 1}, -1))
        await write(one, Write("/t/h/x/y/z", {"n": 2}))
        assert {name: entry.data["n"] for name, entry in (await read(one, "/t/h")).items()} == {"x": 1, "x/y/z": 2}
        assert await read(one, "/t/h/nowhere") == {}

    async def test_a_watch_hints_at_every_kind_of_change_again_and_again(self, one: Registry, other: Registry) -> None:
        hints: asyncio.Queue[None] = asyncio.Queue()
        one.watch("/t/i", lambda: hints.put_nowait(None))
        await asyncio.sleep(0.2)
        path = await register(other, "/t/i/partition0", {"state": "Init"})
        await until_seen(hints, one, "/t/i", lambda folder: len(folder) == 1)
        await write(other, Write(path, {"state": "Running"}))
        await until_seen(hints, one, "/t/i", lambda folder: [e.data["state"] for e in folder.values()] == ["Running"])
        await write(other, Write("/t/i/partition_num", {"count": 2}))
        await until_seen(hints, one, "/t/i", lambda folder: len(folder) == 2)
        await closed(other)
        await until_seen(hints, one, "/t/i", lambda folder: list(folder) == ["partition_num"])


async def register(registry: Registry, folder: str, data: dict[str, object]) -> str:
    return await told(lambda done: registry.register(folder, data, done))


async def write(registry: Registry, change: Write) -> int:
    return await told(lambda done: registry.write(change, done))


async def read(registry: Registry, path: str) -> Folder:
    return await told(lambda done: registry.read(path, done))


async def remove(registry: Registry, path: str, version: int | None) -> None:
    return await told(lambda done: registry.remove(path, done, version=version))


async def swap(registry: Registry, writes: list[Write]) -> PixiuError | None:
    try:
        return await told(lambda done: registry.swap(writes, done))
    except PixiuError as error:
        return error


async def closed(registry: Registry) -> None:
    await asyncio.get_running_loop().run_in_executor(None, registry.close)


async def told(ask: Callable[[Callable[[T | PixiuError], object]], object]) -> T:
    """Wait for a callback, which must come once."""
    answer: asyncio.Future[T | PixiuError] = asyncio.get_running_loop().create_future()
    ask(answer.set_result)
    result = await asyncio.wait_for(answer, SECONDS)
    if isinstance(result, PixiuError):
        raise result
    return result


async def eventually(look: Callable[[], Awaitable[Folder]], is_right: Callable[[Folder], bool]) -> Folder:
    """Look until it is right: the end of a session is seen by others a little later."""
    async with asyncio.timeout(SECONDS):
        while not is_right(found := await look()):
            await asyncio.sleep(0.05)
    return found


async def until_seen(
    hints: "asyncio.Queue[None]", registry: Registry, path: str, is_right: Callable[[Folder], bool]
) -> None:
    """Read after hints only: what is never hinted at is never seen here."""
    async with asyncio.timeout(SECONDS):
        while True:
            await hints.get()
            if is_right(await read(registry, path)):
                return
