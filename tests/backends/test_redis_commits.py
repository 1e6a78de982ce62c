"""Commits that Redis works on while nobody waits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.errors import Unavailable
from pixiu.ports.stores import Lane
from tests.engines import ValkeyProcess
from tests.servers import wait_for

AT = 1_760_000_000_000
REACHED = {Lane.INBOXES: 3, Lane.TIMELINES: 2}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def stores(valkey: ValkeyProcess) -> Iterator[RedisStores]:
    """With one body in the overlay."""
    opened = RedisStores(RedisAddress.parse(f"{valkey.url}?timeout_ms=5000"), "n1")
    opened.bodies.put(7, b"seven", 1)
    yield opened
    opened.close()


def reopened(valkey: ValkeyProcess) -> RedisStores:
    return RedisStores(RedisAddress.parse(valkey.url), "n1")


def test_nobody_waits_for_what_was_begun(valkey: ValkeyProcess, stores: RedisStores) -> None:
    valkey.freeze()
    assert stores.begin_commit(REACHED)
    assert not stores.is_answered(0)
    assert stores.applied(Lane.INBOXES) == 0, "durable is what was answered"
    valkey.thaw()
    wait_for(lambda: stores.is_answered(0), what="the answer")
    stores.commit(REACHED)
    assert stores.applied(Lane.INBOXES) == 3
    assert stores.pending_bytes == 0
    again = reopened(valkey)
    assert (again.applied(Lane.TIMELINES), again.bodies.get([7])) == (2, {7: b"seven"})
    again.close()


def test_it_is_written_once(valkey: ValkeyProcess, stores: RedisStores) -> None:
    before = stores.client.round_trips
    stores.begin_commit(REACHED)
    stores.commit(REACHED)
    assert stores.client.round_trips == before + 1
    stores.commit({**REACHED, Lane.TASKS: 4})
    assert stores.applied(Lane.TASKS) == 4, "what has moved since is another commit"
    assert valkey.told("HGET", "pixiu:owner", "commit") == b"2"


def test_whoever_asks_meanwhile_finds_what_was_written(stores: RedisStores) -> None:
    stores.users.all()
    stores.begin_commit(REACHED)
    assert stores.client.ask([("GET", "msg/om:7/m")]) == [b"seven"]
    stores.commit(REACHED)
    assert stores.applied(Lane.INBOXES) == 3


def test_what_is_written_meanwhile_waits_for_the_next_one(valkey: ValkeyProcess, stores: RedisStores) -> None:
    stores.begin_commit(REACHED)
    stores.recent.warm(5, [(9, b"\x08\x09")], is_all=True)
    assert valkey.told("EXISTS", "bsgmsg_5") == 0
    stores.commit(REACHED)
    assert (stores.applied(Lane.INBOXES), valkey.told("EXISTS", "bsgmsg_5")) == (3, 0)
    stores.commit({})
    assert valkey.told("EXISTS", "bsgmsg_5") == 1


def test_one_that_is_refused_is_told_again(valkey: ValkeyProcess, stores: RedisStores) -> None:
    valkey.told("CONFIG", "SET", "maxmemory", 1)
    assert stores.begin_commit(REACHED)
    with pytest.raises(Unavailable, match="memory limit"):
        stores.commit(REACHED)
    valkey.told("CONFIG", "SET", "maxmemory", 0)
    assert stores.bodies.get([7]) == {7: b"seven"}
    assert stores.begin_commit(REACHED)
    stores.commit(REACHED)
    assert valkey.told("GET", "msg/om:7/m") == b"seven"


def test_one_that_is_refused_says_so_also_if_somebody_wrote_meanwhile(
    valkey: ValkeyProcess, stores: RedisStores
) -> None:
    valkey.told("CONFIG", "SET", "maxmemory", 1)
    stores.begin_commit(REACHED)
    stores.recent.warm(5, [(9, b"\x08\x09")], is_all=True)
    with pytest.raises(Unavailable, match="memory limit"):
        stores.commit(REACHED)
    valkey.told("CONFIG", "SET", "maxmemory", 0)
    stores.commit(REACHED)
    assert (valkey.told("EXISTS", "bsgmsg_5"), valkey.told("GET", "msg/om:7/m")) == (1, b"seven")


def test_one_that_takes_too_long_is_given_up_and_told_again(valkey: ValkeyProcess, stores: RedisStores) -> None:
    valkey.freeze()
    stores.begin_commit(REACHED)
    assert stores.is_answered(5001)
    with pytest.raises(Unavailable, match="no answer in time"):
        stores.commit(REACHED)
    assert "is down" in stores.problem
    valkey.thaw()
    wait_for(lambda: not stores.client.problem, what="Redis to be back")
    assert stores.begin_commit(REACHED)
    stores.commit(REACHED)
    assert (stores.applied(Lane.INBOXES), valkey.told("GET", "msg/om:7/m")) == (3, b"seven")


def test_a_server_that_dies_meanwhile_is_down(valkey: ValkeyProcess, stores: RedisStores) -> None:
    valkey.freeze()
    stores.begin_commit(REACHED)
    valkey.stop()
    wait_for(lambda: stores.is_answered(0), what="the end of the connection")
    with pytest.raises(Unavailable, match="is down"):
        stores.commit(REACHED)
    assert stores.pending_bytes > 0, "all waits for it to come back"


def test_who_was_taken_over_is_told(valkey: ValkeyProcess, stores: RedisStores) -> None:
    reopened(valkey).close()
    stores.begin_commit(REACHED)
    with pytest.raises(Unavailable, match="has taken over"):
        stores.commit(REACHED)
    assert stores.applied(Lane.INBOXES) == 0


def test_a_loss_is_found_and_everything_begins_again(valkey: ValkeyProcess, stores: RedisStores) -> None:
    losses: list[int] = []
    stores.when_lost = lambda: losses.append(1)
    stores.begin_commit(REACHED)
    stores.commit(REACHED)
    valkey.told("FLUSHALL")
    stores.begin_commit({Lane.INBOXES: 4})
    with pytest.raises(Unavailable, match="lost"):
        stores.commit({Lane.INBOXES: 4})
    assert losses == [1]
    stores.begin_again()
    assert (stores.applied(Lane.INBOXES), stores.bodies.get([7])) == (0, {})
    stores.begin_commit(REACHED)
    stores.commit(REACHED)
    assert stores.applied(Lane.INBOXES) == 3


def test_a_function_that_is_gone_is_loaded_and_called_again(valkey: ValkeyProcess, stores: RedisStores) -> None:
    valkey.told("FUNCTION", "FLUSH")
    stores.begin_commit(REACHED)
    stores.commit(REACHED)
    assert valkey.told("GET", "msg/om:7/m") == b"seven"
