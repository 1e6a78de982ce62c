"""The stores on Valkey against the reference: the same operations, the same answers, through commits and restarts.

Timelines are not in Redis, so both sides leave them out.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.overlay import Overlay
from pixiu.backends.redis.sendkeys import RedisSendKeys
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.errors import Unavailable
from pixiu.ports.sendkeys import Sent
from pixiu.ports.stores import Lane
from tests.backends.test_stores_agree import Draw, Opened, Pair
from tests.engines import ValkeyProcess


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


class RedisPair(Pair):
    """The reference and the stores in Redis."""

    def __init__(self, seed: int, address: RedisAddress) -> None:
        self.address = address
        super().__init__(seed, MemoryKeyValue)
        without = ("private", "timeline", "mark", "recall", "drop")
        for steps in (self.draw.writes, self.draw.reads):
            steps[:] = [each for each in steps if not each.__name__.endswith(without) and "recall" not in each.__name__]
        self.draw.writes += [Draw.write_unread_drop]
        self.draw.reads[:] = [each for each in self.draw.reads if "timelines" not in each.__name__]

    def open(self) -> Opened:
        self.store = MemoryKeyValue()
        self.redis = RedisStores(
            self.address,
            "n1",
            cached_users_max=self.rng.choice([2, 5, 100]),
            kept_entries_max=self.rng.choice([1, 2, 64]),
            cached_body_bytes=self.rng.choice([2, 1000, 10**6]),
        )
        return MixedStores(self.redis, [self.redis], timelines=MemoryStores().timelines)

    def refuse(self) -> None:
        """A commit that fails changes nothing, whether Redis has made it or not."""
        client = self.redis.client
        if self.rng.random() < 0.5:
            client.gate = "refused"
        else:
            self.answer, client.call = client.call, self.without_answer  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            self.stores.commit(self.applied())
        if not client.gate:
            self.commits.append((len(self.steps), self.draw.event_id))
        client.gate = ""
        client.__dict__.pop("call", None)

    def without_answer(self, name: str, key: str | bytes, *args: str | bytes | int) -> object:
        answer = self.answer(name, key, *args)
        if name == "commit":
            raise Unavailable("no answer")
        return answer


@pytest.mark.parametrize("layout", ["seed", "cluster"])
@pytest.mark.parametrize("seed", range(4))
def test_stores_in_redis_answer_as_the_reference_does(seed: int, layout: str, valkey: ValkeyProcess) -> None:
    address = RedisAddress.parse(f"{valkey.url}?layout={layout}")
    client = RedisClient(address)
    client.ask([("FLUSHALL",)])
    client.close()
    pair = RedisPair(random.Random(seed).randint(0, 10**6), address)
    pair.run(1200)
    pair.stores.close()


def test_a_send_that_is_repeated_late_is_known_however_many_were_between(valkey: ValkeyProcess) -> None:
    client = RedisClient(RedisAddress.parse(valkey.url))
    client.ask([("FLUSHALL",)])
    overlay = Overlay(client)
    keys = RedisSendKeys(overlay, Keys("seed"), cached_max=8, names_max=20)
    sent: dict[bytes, Sent] = {}
    for number in range(60):
        key = (7 + number % 2).to_bytes(8, "big") + b"%d" % number
        assert keys.get(key) is None
        sent[key] = Sent(number, number, number)
        keys.put(key, sent[key])
        if number % 3 == 0:
            overlay.save()
            client.ask(list(overlay.commands()))
            overlay.written()
    for key, first in sent.items():
        keys.put(key, Sent(9, 9, 9))
        assert keys.get(key) == first
    client.close()


def test_a_server_without_functions_gets_scripts_and_may_forget_them(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, "--rename-command", "FUNCTION", "") as server:
        pair = RedisPair(5, RedisAddress.parse(server.url))
        for _ in range(3):
            pair.run(100)
            server.told("SCRIPT", "FLUSH")
        pair.commit()
        pair.stores.close()


def test_a_library_that_was_removed_is_loaded_again(valkey: ValkeyProcess) -> None:
    valkey.told("FLUSHALL")
    stores = RedisStores(RedisAddress.parse(valkey.url), "n1")
    valkey.told("FUNCTION", "FLUSH")
    stores.commit({Lane.TASKS: 5})
    assert stores.applied(Lane.TASKS) == 5
    stores.close()


def test_an_owner_whose_place_was_taken_writes_no_more(valkey: ValkeyProcess) -> None:
    valkey.told("FLUSHALL")
    address = RedisAddress.parse(valkey.url)
    first, second = RedisStores(address, "n1"), RedisStores(address, "n1")
    second.commit({Lane.TASKS: 5})
    first.notes.put("x", b"y")
    with pytest.raises(Unavailable, match="another process has taken over"):
        first.commit({Lane.TASKS: 6})
    assert valkey.told("HGET", "pixiu:meta", "lane:tasks") == b"5"
    assert not valkey.told("EXISTS", "pixiu:notes")
    for stores in (first, second):
        stores.close()


def test_a_loss_is_told_once_and_nothing_is_answered_until_it_was_begun_again(valkey: ValkeyProcess) -> None:
    valkey.told("FLUSHALL")
    stores = RedisStores(RedisAddress.parse(valkey.url), "n1")
    stores.notes.put("x", b"y")
    stores.commit({Lane.TASKS: 5})
    told: list[str] = []
    stores.when_lost = lambda: told.append(stores.problem)
    valkey.told("FLUSHALL")
    for _ in range(3):
        with pytest.raises(Unavailable, match="has lost what came before"):
            stores.commit({Lane.TASKS: 6})
        with pytest.raises(Unavailable, match="has lost what came before"):
            stores.notes.get("x")
    assert len(told) == 1
    stores.log_begins = lambda: 4
    with pytest.raises(Unavailable, match="before event 4, with which the log begins"):
        stores.begin_again()
    assert stores.problem
    stores.log_begins = lambda: 1
    stores.begin_again()
    assert (stores.problem, stores.applied(Lane.TASKS), stores.notes.get("x")) == ("", 0, None)
    stores.commit({Lane.TASKS: 1})
    stores.close()
