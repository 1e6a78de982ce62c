"""Making the stores anew from the log."""

from pathlib import Path

import pytest

from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.appliers import LANES
from pixiu.roles.carrier.rebuild import rebuild
from tests.roles.carrier.world import World, content, group_made, ledger, opened, rows, say, send, user


def played() -> World:
    world = World().start(user(1), user(2), opened(2, "web"), group_made(7, 1, [2]))
    world.write(*(send(1, 2, str(index)) for index in range(50)), *(say(2, 7, str(index)) for index in range(50)))
    world.append(b"\xff\xff")
    world.write(ledger(["web"], acked=rows((2, 0, 1, 30))))
    world.run(100)
    return world


def test_a_rebuilt_store_is_the_same_and_nobody_is_woken() -> None:
    world = played()
    woken = len(world.wakes)
    records = len(world.log.records)
    stores = MemoryStores()
    seen: list[tuple[int, int]] = []
    assert rebuild(world.log, stores, lambda event_id, last: seen.append((event_id, last))) == 1
    assert content(stores) == content(world.stores)
    assert [stores.applied(lane) for lane in LANES] == [world.log.committed] * 3
    assert stores.applied(Lane.TASKS) == 0
    assert seen[-1] == (world.log.committed, world.log.committed)
    assert (len(world.wakes), len(world.log.records)) == (woken, records)


def test_an_interrupted_rebuild_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.roles.carrier.rebuild._BATCH", 10)
    monkeypatch.setattr("pixiu.roles.carrier.rebuild._COMMIT_BYTES", 0)
    world = played()
    stores = MemoryStores()

    def interrupt(event_id: int, last: int) -> None:
        if event_id > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(world.log, stores, interrupt)
    assert 0 < stores.applied(Lane.INBOXES) < world.log.committed
    seen: list[int] = []
    # What it held in memory is lost with its process; these stores kept it, and applying it again changes nothing.
    stores.commit(dict.fromkeys(LANES, 61))
    rebuild(world.log, stores, lambda event_id, last: seen.append(event_id))
    assert seen[0] > 60
    assert content(stores) == content(world.stores)


def test_the_embedded_stores_are_rebuilt_like_the_reference(tmp_path: Path) -> None:
    world = played()
    store = RocksKeyValue(tmp_path / "stores")
    stores = EmbeddedStores(store)
    rebuild(world.log, stores)
    stores.close()
    stores = EmbeddedStores(RocksKeyValue(tmp_path / "stores"))
    reference = world.stores
    assert stores.applied(Lane.INBOXES) == world.log.committed
    assert stores.inboxes.states() == reference.inboxes.states()
    assert stores.groups.get(7) == reference.groups.get(7)
    assert stores.groups.members(7) == reference.groups.members(7)
    assert stores.timelines.group_forward(7, limit=1000) == reference.timelines.group_forward(7, limit=1000)
    for number in (1, 2):
        assert stores.users.get(number) == reference.users.get(number)
        assert stores.unread.of(number) == reference.unread.of(number)
        mine = stores.timelines.private_forward(number, limit=1000)
        assert mine == reference.timelines.private_forward(number, limit=1000)
        ids = [row.message_id for row in mine]
        assert stores.bodies.get(ids) == reference.bodies.get(ids)
        assert list(map(stores.bodies.references, ids)) == list(map(reference.bodies.references, ids))
    stores.close()
