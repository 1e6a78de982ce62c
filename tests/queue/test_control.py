"""The control record in a registry, and a node's own place there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pixiu.backends.memory.registry import MemoryRegistry, MemorySession
from pixiu.machines.replication import Control, ControlRefused, ControlSeen, Event, SessionLost
from pixiu.model.errors import CorruptData
from pixiu.ports.registry import Write
from pixiu.queue.replication import control
from pixiu.queue.replication.control import CONTROL_PATHS, GLANCES_MAX, FileControl, RegistryControl, read_control
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from pixiu.model.errors import PixiuError
    from pixiu.ports.registry import Folder

FOLDER = "/pubsub/shard/partition0"
FIRST = Control(1, "a", frozenset({"a"}))


class Peer:
    """One node's control, and all that it told."""

    def __init__(self, tree: MemoryRegistry, scheduler: LoopScheduler, name: str, address: str = "") -> None:
        self.session: MemorySession = tree.open()
        self.told: list[Event] = []
        self.control = RegistryControl(
            self.session, scheduler, folder=FOLDER, name=name, address=address or f"{name}:1"
        )
        self.control.start(self.told.append)

    async def read(self) -> ControlSeen:
        self.told.clear()
        self.control.read(7)
        await turn()
        (event,) = self.told
        assert isinstance(event, ControlSeen)
        return event


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


@pytest.fixture
async def scheduler() -> AsyncIterator[LoopScheduler]:
    scheduler = LoopScheduler(asyncio.get_running_loop())
    yield scheduler
    scheduler.close()


@pytest.fixture
async def tree(scheduler: LoopScheduler) -> MemoryRegistry:
    return MemoryRegistry(scheduler)


async def test_peers_see_each_other_and_where_they_are(tree: MemoryRegistry, scheduler: LoopScheduler) -> None:
    a, _ = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    assert await a.read() == ControlSeen(0, None, frozenset("ab"), 7)
    assert a.control.address_of("b") == "b:1"
    assert a.control.address_of("c") is None


async def test_replica_whose_place_vanished_counts_as_live_for_a_grace_period(
    tree: MemoryRegistry, scheduler: LoopScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage of the registry places vanish with their sessions, and come back."""
    monkeypatch.setattr(control, "GRACE_MS", 50)
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    await a.read()
    b.session.close()
    await turn()
    assert (await a.read()).live == frozenset("ab")
    again = Peer(tree, scheduler, "b", "b:2")
    await turn()
    assert (await a.read()).live == frozenset("ab") and a.control.address_of("b") == "b:2"
    await asyncio.sleep(0.08)
    assert (await a.read()).live == frozenset("ab"), "it is back"
    again.session.close()
    await turn()
    assert (await a.read()).live == frozenset("ab") and a.control.address_of("b") == "b:2"
    await asyncio.sleep(0.08)
    assert (await a.read()).live == frozenset("a") and a.control.address_of("b") is None


async def test_peers_see_whose_journal_is_damaged(tree: MemoryRegistry, scheduler: LoopScheduler) -> None:
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    b.control.shows_damage(is_damaged=True)
    await turn()
    assert (await a.read()).damaged == (await b.read()).damaged == frozenset("b")
    a.control.change(0, FIRST, 3)
    await turn()
    assert a.told[-1] == ControlSeen(1, FIRST, frozenset("ab"), 3, is_granted=True, damaged=frozenset("b"))
    b.control.shows_damage(is_damaged=False)
    await turn()
    assert (await a.read()).damaged == frozenset()


async def test_one_knows_of_its_own_damage_before_others_can_read_it(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a = Peer(tree, scheduler, "a")
    await turn()
    a.told.clear()
    a.control.read(7)  # asked before it is written, and answered as it was
    a.control.shows_damage(is_damaged=True)
    a.control.change(0, FIRST, 3)
    await turn()
    assert [event.damaged for event in a.told if isinstance(event, ControlSeen)] == [frozenset("a")] * 2
    a.control.read(8)
    a.control.shows_damage(is_damaged=False)
    await turn()
    assert isinstance(a.told[-1], ControlSeen) and a.told[-1].damaged == frozenset()


async def test_a_change_is_made_once_and_the_other_one_is_refused(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    a.control.change(0, FIRST, 3)
    b.control.change(0, Control(1, "b", frozenset({"b"})), 3)
    await turn()
    assert a.told[-1] == ControlSeen(1, FIRST, frozenset(), 3, is_granted=True)
    assert b.told[-1] == ControlRefused(0)
    assert (await b.read()).control == FIRST
    a.control.change(1, FIRST, 9)
    await turn()
    assert (await b.read()).version == 2, "a renewal is a version of its own"


async def test_while_the_record_names_the_same_leader_most_readings_are_of_it_alone(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    paths = reads_of(b.session)
    for version in range(2 * GLANCES_MAX + 3):
        a.control.change(version, FIRST, 3)
        await turn()
        assert await b.read() == ControlSeen(version + 1, FIRST, frozenset("ab"), 7)
    whole, glance = FOLDER, f"{FOLDER}/ctl"
    assert paths == [whole, whole, *[glance] * GLANCES_MAX, whole, *[glance] * GLANCES_MAX, whole][: len(paths)]


@pytest.mark.parametrize(
    "found", [Control(2, "a", FIRST.in_sync), Control(1, "", FIRST.in_sync), Control(2, "b", FIRST.in_sync)]
)
async def test_record_of_another_leader_or_epoch_is_read_with_everything(
    tree: MemoryRegistry, scheduler: LoopScheduler, found: Control
) -> None:
    a, b = (Peer(tree, scheduler, name) for name in "ab")
    await turn()
    for version in range(2):
        a.control.change(version, FIRST, 3)
        await turn()
        await b.read()
    Peer(tree, scheduler, "c")
    await turn()
    paths = reads_of(b.session)
    a.control.change(2, found, 3)
    await turn()
    seen = await b.read()
    assert (seen.control, seen.live) == (found, frozenset("abc"))
    assert paths == [f"{FOLDER}/ctl", FOLDER]


async def test_a_record_that_is_gone_is_looked_for_with_everything(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    for version in range(2):
        a.control.change(version, FIRST, 3)
        await turn()
        await b.read()
    tree.remove(f"{FOLDER}/ctl", None)
    assert await b.read() == ControlSeen(0, None, frozenset("ab"), 7)


def reads_of(session: MemorySession) -> list[str]:
    """The paths that are read from now on."""
    paths: list[str] = []
    read = session.read

    def noted(path: str, done: Callable[[Folder | PixiuError], object]) -> None:
        paths.append(path)
        read(path, done)

    session.read = noted  # type: ignore[method-assign]
    return paths


async def test_a_registry_that_does_not_answer_is_no_answer(tree: MemoryRegistry, scheduler: LoopScheduler) -> None:
    a = Peer(tree, scheduler, "a")
    await turn()
    a.session.suspend()
    a.told.clear()
    a.control.read(1)
    a.control.change(0, FIRST, 1)
    await turn()
    assert a.told == []


@pytest.mark.parametrize("rubbish", [{}, {"epoch": "x", "leader": "a", "in_sync": []}, {"epoch": 1, "leader": "a"}])
async def test_what_is_no_control_record_is_left_alone(
    tree: MemoryRegistry, scheduler: LoopScheduler, rubbish: dict[str, object]
) -> None:
    a = Peer(tree, scheduler, "a")
    tree.write([Write(f"{FOLDER}/ctl", rubbish)])
    await turn()
    a.told.clear()
    a.control.read(1)
    await turn()
    assert a.told == []


async def test_a_lost_session_is_told_and_a_new_place_is_taken(tree: MemoryRegistry, scheduler: LoopScheduler) -> None:
    a = Peer(tree, scheduler, "a")
    await turn()
    a.told.clear()
    a.session.expire()
    await turn()
    assert a.told == [SessionLost()]
    assert (await a.read()).live == frozenset("a")
    assert len([name for name in tree.read(FOLDER) if name.isdecimal()]) == 1


async def test_a_place_that_somebody_removed_counts_as_a_lost_session(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a = Peer(tree, scheduler, "a")
    await turn()
    tree.remove(f"{FOLDER}/0000000000", None)
    a.told.clear()
    a.control.read(1)
    await turn()
    assert a.told[0] == SessionLost()
    assert (await a.read()).live == frozenset("a")


async def test_a_place_that_went_before_it_was_known_is_taken_again(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    session = tree.open()
    answers: list[object] = []
    register = session.register
    session.register = lambda folder, data, done: register(  # type: ignore[method-assign]
        folder, data, lambda path: answers.append(lambda: done(path))
    )
    control = RegistryControl(session, scheduler, folder=FOLDER, name="a", address="a:1")
    control.start(lambda _event: None)
    await turn()
    session.expire()
    await turn()
    session.register = register  # type: ignore[method-assign]
    answers[0]()  # type: ignore[operator] # the answer comes behind the news that its session is lost
    await turn()
    (name,) = [name for name in tree.read(FOLDER) if name.isdecimal()]
    control.stands("Running")
    await turn()
    assert tree.read(FOLDER)[name].data["state"] == "Running", "it knows where it is, without reading the record"


async def test_a_reading_that_was_asked_for_before_the_registration_removes_nobody(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a = Peer(tree, scheduler, "a")
    a.control.read(1)  # its answer is made before the registration's, and comes after it
    await turn()
    assert SessionLost() not in a.told
    late = Peer(tree, scheduler, "b")
    await turn()
    answers: list[object] = []
    late.session.read = lambda path, done: answers.append(done)  # type: ignore[method-assign]
    late.session.expire()
    late.control.read(2)
    late.control.read(3)
    await turn()
    assert len(answers) == 1, "one waits, no further one is made"
    late.told.clear()
    answers[0]({})  # type: ignore[operator]
    assert SessionLost() not in late.told
    assert len([name for name in tree.read(FOLDER) if name.isdecimal()]) == 2


async def test_the_ghost_of_an_earlier_life_is_removed_and_its_address_not_used(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    Peer(tree, scheduler, "a", "a:1")
    await turn()
    a, b = Peer(tree, scheduler, "a", "a:2"), Peer(tree, scheduler, "b")
    await turn()
    await b.read()
    assert b.control.address_of("a") == "a:2"
    await a.read()
    await turn()
    assert sorted(str(entry.data["address"]) for entry in tree.read(FOLDER).values()) == ["a:2", "b:1"]


async def test_what_others_read_about_a_node_follows_its_state(tree: MemoryRegistry, scheduler: LoopScheduler) -> None:
    a = Peer(tree, scheduler, "a")
    await turn()
    for state in ("Running", "Draining"):
        a.control.stands(state)
        await turn()
        (entry,) = tree.read(FOLDER).values()
        assert entry.data["state"] == state


async def test_clients_are_told_of_a_later_leader_and_never_of_an_earlier(
    tree: MemoryRegistry, scheduler: LoopScheduler
) -> None:
    a, b = Peer(tree, scheduler, "a"), Peer(tree, scheduler, "b")
    await turn()
    b.control.leads(3)
    await turn()
    a.control.leads(2)
    await turn()
    assert tree.read(f"{FOLDER}/leader")[""].data == {"epoch": 3, "name": "b", "address": "b:1"}


async def test_clients_are_told_of_a_leader_as_soon_as_the_registry_can_be_reached(
    tree: MemoryRegistry, scheduler: LoopScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews its lease and reads nothing: if it did not say so again, clients would never find it."""
    monkeypatch.setattr("pixiu.queue.replication.control.REGISTER_AGAIN_MS", 1)
    a = Peer(tree, scheduler, "a")
    await turn()
    a.session.suspend()
    a.control.leads(1)
    await turn()
    assert tree.read(f"{FOLDER}/leader") == {}
    a.session.resume()
    assert await leader_is(tree, 1) == "a"
    read, paths = a.session.read, reads_of(a.session)
    await asyncio.sleep(0.02)
    assert paths == [], "it is told, and says no more"
    a.session.read = read  # type: ignore[method-assign]
    a.control.leads(2)
    assert await leader_is(tree, 2) == "a"


async def test_a_leader_whose_word_is_refused_or_lost_says_it_again(
    tree: MemoryRegistry, scheduler: LoopScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixiu.queue.replication.control.REGISTER_AGAIN_MS", 1)
    a = Peer(tree, scheduler, "a")
    await turn()
    truly = a.session.write

    def disturbed(write: Write, done: Callable[[int | PixiuError], object]) -> None:
        a.session.write = truly  # type: ignore[method-assign]
        tree.write([Write(write.path, {"epoch": 1, "name": "b", "address": "b:1"})])  # first
        truly(write, done)

    a.session.write = disturbed  # type: ignore[method-assign]
    a.control.leads(2)
    assert await leader_is(tree, 2) == "a"
    a.session.write = disturbed  # type: ignore[method-assign]
    a.control.leads(3)
    a.control.leads(4)  # while it says so
    assert await leader_is(tree, 4) == "a"


async def leader_is(tree: MemoryRegistry, epoch: int) -> object:
    """Who leads in an epoch, as soon as clients can read it."""
    path = f"{FOLDER}/leader"
    async with asyncio.timeout(10):
        while "" not in tree.read(path) or tree.read(path)[""].data["epoch"] != epoch:
            await asyncio.sleep(0.001)
    return tree.read(path)[""].data["name"]


@pytest.mark.parametrize("turns", [0, 1, 6])
async def test_whatever_is_said_of_a_place_at_once_is_all_there(
    tree: MemoryRegistry, scheduler: LoopScheduler, turns: int
) -> None:
    """Before it is registered, while it is, and behind that: one write does not refuse the other."""
    a = Peer(tree, scheduler, "a")
    for _ in range(turns):
        await asyncio.sleep(0)
    a.control.stands("running")
    a.control.tell_more({"admin": "a:2"})
    a.control.tell_more({"bulk": "a:3"})
    for _ in range(4):
        await turn()
    found: list[object] = []
    tree.open().read(FOLDER, found.append)
    await turn()
    (folder,) = found
    (place,) = [entry.data for name, entry in folder.items() if name.isdecimal()]  # type: ignore[attr-defined]
    assert place == {"name": "a", "address": "a:1", "state": "running", "admin": "a:2", "bulk": "a:3"}


JUNK = (
    b"",
    b"\0" * 84,
    b"{}",
    b"[1]",
    b'"text"',
    b'{"version": 1, "epoch": "x", "leader": "a", "in_sync": []}',
    b"\xff\xfe",
)


@pytest.mark.parametrize("junk", JUNK)
def test_a_file_of_control_that_nobody_can_read_is_told_with_what_to_do(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / CONTROL_PATHS[0]).write_bytes(junk)
    with pytest.raises(CorruptData, match=r"remove control and control\.copy"):
        read_control(SystemFiles(tmp_path))


def test_a_file_of_control_says_who_leads(tmp_path: Path) -> None:
    assert read_control(SystemFiles(tmp_path)) is None
    (tmp_path / CONTROL_PATHS[0]).write_text('{"version": 3, "epoch": 2, "leader": "a", "in_sync": ["a", "b"]}')
    assert read_control(SystemFiles(tmp_path)) == (3, Control(2, "a", frozenset({"a", "b"})))


def test_a_crash_between_the_two_files_of_control_leaves_no_older_record_behind(tmp_path: Path) -> None:
    files = SystemFiles(tmp_path)
    control = FileControl(files)
    control.change(0, Control(1, "a", frozenset({"a"})), 0)
    older = (tmp_path / CONTROL_PATHS[1]).read_bytes()
    control.change(1, Control(2, "b", frozenset({"a", "b"})), 0)
    (tmp_path / CONTROL_PATHS[1]).write_bytes(older)
    newest = (2, Control(2, "b", frozenset({"a", "b"})))
    assert read_control(files) == newest
    flipped = bytearray((tmp_path / CONTROL_PATHS[0]).read_bytes())
    flipped[5] ^= 1
    (tmp_path / CONTROL_PATHS[0]).write_bytes(flipped)
    assert read_control(files) == newest
