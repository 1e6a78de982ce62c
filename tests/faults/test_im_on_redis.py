"""Every test of the actions once more, with stores in Redis: tiny caches, and a commit after each step."""

from collections.abc import Iterator
from typing import Any

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.stores import RedisStores
from pixiu.ports.stores import Stores
from tests.engines import ValkeyProcess
from tests.im import world
from tests.im.test_contacts import *  # noqa: F403
from tests.im.test_groups import *  # noqa: F403
from tests.im.test_messages import *  # noqa: F403
from tests.im.test_reading import *  # noqa: F403
from tests.im.test_since_join import *  # noqa: F403
from tests.im.test_sync import *  # noqa: F403
from tests.im.test_users import *  # noqa: F403

pytestmark = [pytest.mark.engines, pytest.mark.serial]  # type: ignore[assignment]


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(autouse=True, params=["seed", "cluster"])
def on_redis(request: pytest.FixtureRequest, valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    address = RedisAddress.parse(f"{valkey.url}?layout={request.param}")
    opened: list[RedisStores] = []

    def make_stores() -> Stores:
        valkey.told("FLUSHALL")
        redis = RedisStores(address, "n1", cached_users_max=2, kept_entries_max=2, cached_body_bytes=100)
        opened.append(redis)
        return MixedStores(redis, [redis], timelines=MemoryStores().timelines)

    settle = world.World.settle

    def settle_and_commit(self: Any) -> None:
        settle(self)
        self.stores.commit({})
        settle(self)

    monkeypatch.setattr(world, "make_stores", make_stores)
    monkeypatch.setattr(world.World, "settle", settle_and_commit)
    yield
    for redis in opened:
        redis.close()
