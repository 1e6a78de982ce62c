"""A replica that the log has left behind takes another one's stores: whole and checked, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.backends.embedded.layout import LAYOUT, META, number
from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.machines.snapshots import Ask, End, Frames, Head, No, Pairs, Summing, encode, fits, pairs_in
from pixiu.model.errors import CorruptData, PixiuError, RemoteProtocolError, Unavailable
from pixiu.model.partitions import Share
from pixiu.node.processes.carrier.snapshots import GIVES_MAX, Giving, givers_in, take_snapshot
from pixiu.node.processes.carrier.stores import (
    READY_FOLDER,
    STORES_FOLDER,
    DiskHome,
    is_wide,
    made_by,
    not_wide,
    opened,
)
from pixiu.ports.registry import Entry
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.ports.transport import WatchedReceiver

pairs = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=200)), max_size=30)
MANY = [(b"k%05d" % each, b"v" * (each % 300)) for each in range(3_000)]


@pytest.mark.feature("X50")
@given(st.lists(pairs, max_size=5), st.integers(1, 64))
def test_what_is_sent_comes_however_it_is_cut(pieces: list[list[tuple[bytes, bytes]]], size: int) -> None:
    out, into, frames = Summing(), Summing(), Frames()
    data = encode(Ask(3, 4)) + encode(Head(1, 1, 2, 77)) + b"".join(encode(out.made(piece)) for piece in pieces)
    data += encode(out.end()) + encode(No("why not"))
    said = [each for start in range(0, len(data), size) for each in frames.feed(data[start : start + size])]
    assert said[:2] == [Ask(3, 4), Head(1, 1, 2, 77)]
    assert [into.came(each) for each in said[2:-2] if isinstance(each, Pairs)] == pieces
    assert said[-2] == into.end()
    assert said[-1] == No("why not")


@given(st.binary(max_size=60))
def test_what_makes_no_sense_is_an_error_and_nothing_else(data: bytes) -> None:
    for read in (Frames().feed, lambda content: list(pairs_in(content))):
        try:
            read(data)
        except RemoteProtocolError:
            pass


@pytest.mark.feature("X50", "X61")
def test_whose_snapshot_fits() -> None:
    assert fits(Ask(1, 2), Head(LAYOUT, 1, 2, 9))
    assert fits(Ask(1, 2), Head(LAYOUT, 1, 4, 9)), "of the same partition, behind a flip"
    assert fits(Ask(3, 4), Head(LAYOUT, 1, 2, 9)), "of the one that it comes of"
    assert not fits(Ask(3, 4), Head(LAYOUT, 1, 4, 9)), "which has let go of its users"
    assert not fits(Ask(3, 4), Head(LAYOUT, 0, 2, 9))


class Wire:
    """Two ends in one loop. ``change`` sees every piece on its way to the taker."""

    def __init__(self, giving: Giving, change: Callable[[bytes], bytes | None] = lambda data: data) -> None:
        self._giving = giving
        self._change = change
        self.is_over = False

    def __call__(self, taker: WatchedReceiver) -> Wire:
        loop = asyncio.get_running_loop()
        giver = self._giving.accept()
        wire = self

        class Back:
            def write(self, data: bytes) -> None:
                changed = wire._change(data)
                if changed is None:
                    wire.is_over = True
                    loop.call_soon(taker.lost, "the cable is pulled")
                elif not wire.is_over:
                    loop.call_soon(taker.received, changed)

            def pending(self) -> int:
                return 0

            def close(self) -> None:
                loop.call_soon(taker.lost, "the peer hung up")

        class There(Back):
            def write(self, data: bytes) -> None:
                loop.call_soon(giver.received, data)

            def close(self) -> None:
                giver.lost("closed")

        giver.opened(Back())
        taker.opened(There())
        self._there = There()
        return self

    def close(self) -> None:
        self._there.close()


def giving_of(store: MemoryKeyValue, head: Head) -> Giving:
    return Giving(store, LoopScheduler(asyncio.get_running_loop()), commit=lambda: None, head=lambda: head)


def filled() -> MemoryKeyValue:
    store = MemoryKeyValue()
    store.write([*MANY, (META + b"layout", number.pack(LAYOUT)), made_by(Share(0, 1))])
    return store


def begun(root: Path, share: Share) -> DiskHome:
    """Stores that have something of their own."""
    home = DiskHome(root)
    store, _ = opened(home, share)
    store.write([(b"mine", b"old")])
    store.close()
    return home


@pytest.mark.feature("X50")
async def test_a_snapshot_takes_the_place_of_what_was(tmp_path: Path) -> None:
    home, store = begun(tmp_path, Share(0, 1)), filled()
    giving = giving_of(store, Head(LAYOUT, 0, 1, 700))
    assert await take_snapshot(Wire(giving), home, Share(0, 1), applied=20) == 700
    found = home.open()
    assert dict(found.dump()) == dict(store.dump())
    assert not is_wide(found)
    found.close()
    assert giving.given == 1


@pytest.mark.feature("X50", "X61")
async def test_a_new_partition_takes_that_of_its_twin_and_knows_that_it_has_more(tmp_path: Path) -> None:
    home = begun(tmp_path, Share(1, 2))
    await take_snapshot(Wire(giving_of(filled(), Head(LAYOUT, 0, 1, 700))), home, Share(1, 2), applied=20)
    store, share = opened(home, Share(1, 2))
    assert share == Share(1, 2)
    assert is_wide(store)
    not_wide(store)
    assert not is_wide(store)
    store.close()


@pytest.mark.feature("X50")
def test_stores_that_are_damaged_are_made_again(tmp_path: Path) -> None:
    """All of it comes from the log or from another replica: a process that cannot open them would help nobody."""
    home = begun(tmp_path, Share(0, 1))
    (tmp_path / "stores" / "CURRENT").write_bytes(b"")
    with pytest.raises(CorruptData):
        home.open()
    store, share = opened(home, Share(0, 1))
    assert store.get(b"mine") is None and share == Share(0, 1)
    store.close()


def _changed(at: int) -> Callable[[bytes], bytes | None]:
    count = 0

    def change(data: bytes) -> bytes | None:
        nonlocal count
        count += 1
        return data[:-1] + bytes([data[-1] ^ 1]) if count == at else data

    return change


def _pulled(at: int) -> Callable[[bytes], bytes | None]:
    count = 0

    def change(data: bytes) -> bytes | None:
        nonlocal count
        count += 1
        return None if count >= at else data

    return change


@pytest.mark.feature("X50")
@pytest.mark.parametrize(
    "change", [_changed(3), _changed(8), _pulled(1), _pulled(4), _pulled(7)], ids=["bit", "end", "0", "3", "6"]
)
async def test_one_that_is_not_whole_leaves_what_was(tmp_path: Path, change: Callable[[bytes], bytes | None]) -> None:
    home = begun(tmp_path, Share(0, 1))
    giving = giving_of(filled(), Head(LAYOUT, 0, 1, 700))
    with pytest.raises(PixiuError):
        await take_snapshot(Wire(giving, change), home, Share(0, 1), applied=20)
    store = home.open()
    assert store.get(b"mine") == b"old"
    store.close()
    await take_snapshot(Wire(giving), home, Share(0, 1), applied=20)
    store = home.open()
    assert store.get(b"mine") is None
    store.close()


@pytest.mark.parametrize(
    "head",
    [Head(LAYOUT + 1, 0, 1, 700), Head(LAYOUT, 0, 1, 20), Head(LAYOUT, 1, 2, 700)],
    ids=["layout", "not ahead", "another partition"],
)
async def test_one_that_is_of_no_use_is_refused(tmp_path: Path, head: Head) -> None:
    home = begun(tmp_path, Share(0, 1))
    with pytest.raises(PixiuError):
        await take_snapshot(Wire(giving_of(filled(), head)), home, Share(0, 1), applied=20)


@pytest.mark.feature("X50")
def test_a_crash_while_it_is_put_in_place_is_finished_by_whoever_opens_next(tmp_path: Path) -> None:
    home = begun(tmp_path, Share(0, 1))
    fresh = home.fresh()
    fresh.write([(b"theirs", b"new"), made_by(Share(0, 1))])
    fresh.flush()
    fresh.close()
    (tmp_path / "stores.coming").rename(tmp_path / READY_FOLDER)  # and here the power went
    assert (tmp_path / STORES_FOLDER).exists()
    store = home.open()
    assert (store.get(b"theirs"), store.get(b"mine")) == (b"new", None)
    store.close()
    assert not (tmp_path / READY_FOLDER).exists()


async def test_a_giver_has_a_bound(tmp_path: Path) -> None:
    giving = giving_of(filled(), Head(LAYOUT, 0, 1, 700))
    homes = [begun(tmp_path / str(each), Share(0, 1)) for each in range(3)]
    takes = [take_snapshot(Wire(giving), home, Share(0, 1), applied=20) for home in homes]
    results = await asyncio.gather(*takes, return_exceptions=True)
    assert results[:2] == [700, 700]
    assert "on their way already" in str(results[2])


def test_givers_stand_by_before_they_serve_and_are_not_oneself() -> None:
    def entry(name: str, state: str = "Running") -> Entry:
        return Entry({"name": name, "state": state, "bulk": f"at-{name}", "boot": "f"}, 0)

    folder = {
        "partition_num": Entry({"count": 2}, 0),
        "partition1/leader": Entry({"name": "b"}, 0),
        "partition1/0000000001": entry("b"), "partition1/0000000002": entry("a"),
        "partition1/0000000003": entry("me"), "partition1/0000000004": entry("starts", "Init"),
        "partition0/0000000001": entry("other"),
    }  # fmt: skip
    assert givers_in(folder, "me", [1]) == [("at-a", 15), ("at-b", 15)]
    assert givers_in(folder, "me", [1, 0]) == [("at-a", 15), ("at-b", 15), ("at-other", 15)]
    assert End(0, b"") != Summing().end()


@pytest.mark.feature("X50")
async def test_takers_that_stand_still_keep_nobody_else_from_taking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.node.processes.carrier.snapshots.STUCK_MS", 50)
    home, giving = begun(tmp_path, Share(0, 1)), giving_of(filled(), Head(LAYOUT, 0, 1, 700))

    class Frozen:
        closed = False

        def write(self, data: bytes) -> None: ...

        def pending(self) -> int:
            return 2**30

        def close(self) -> None:
            self.closed = True

    links = [Frozen() for _ in range(GIVES_MAX)]
    for link in links:
        giver = giving.accept()
        giver.opened(link)
        giver.received(encode(Ask(0, 1)))
        giver.paused()
    with pytest.raises(Unavailable, match="on their way already"):
        await take_snapshot(Wire(giving), home, Share(0, 1), applied=20)
    await asyncio.sleep(0.2)
    assert all(link.closed for link in links)
    assert await take_snapshot(Wire(giving), home, Share(0, 1), applied=20) == 700
