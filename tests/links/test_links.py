"""An end of the links, the directory and the registry's entries, on a simulated loop and in one process."""

import random
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.backends.memory.registry import MemoryRegistry, MemorySession
from pixiu.config import LinkSettings
from pixiu.links import Directory, DirectoryRules, Endpoint, LocalNetwork, Member
from pixiu.links.endpoint import INBOX_MAX
from pixiu.links.member import SLOTS, Slot
from pixiu.machines.links.messages import Beat, BeatBack, RoomAck, Taken, Talk
from pixiu.machines.room_link import Ack
from pixiu.machines.scheduling import Priority
from pixiu.machines.view import PeerState, ViewRules
from pixiu.model.errors import ConfigError
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from pixiu.ports.registry import Folder

RULES = DirectoryRules(ViewRules(heartbeat_ms=100, suspect_ms=300, dead_ms=500, grace_ms=500), poll_ms=1_000)


class World:
    def __init__(self, *, is_strict: bool = False) -> None:
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.network = LocalNetwork(self.scheduler, is_strict=is_strict)
        self.tree = MemoryRegistry(self.scheduler)

    def end(self, boot: int) -> Endpoint:
        way = self.network.way(boot)
        endpoint = Endpoint(boot, way, self.clock, self.scheduler)
        for other in (1, 2, 3):
            endpoint.know(other, f"local:{other:x}")
        return endpoint

    def member(
        self, boot: int, session: MemorySession, role: str = "proxy", partition: int = 0, name: str = ""
    ) -> Member:
        return Member(
            session, self.scheduler, "/c",
            role=role, partition=partition, boot=boot, address=f"local:{boot:x}", name=name,
        )  # fmt: skip

    def read(self, path: str) -> dict[str, Any]:
        found: list[Folder] = []
        self.tree.open().read(path, found.append)  # type: ignore[arg-type]
        self.scheduler.run_for(1)
        return {name: dict(entry.data) for name, entry in found[0].items()}


@pytest.mark.parametrize("is_strict", [False, True])
def test_in_one_process_the_same_messages_pass(*, is_strict: bool) -> None:
    world = World(is_strict=is_strict)
    one, other = world.end(1), world.end(2)
    came: list[tuple[int, Any]] = []
    other.on(RoomAck, lambda boot, message: came.append((boot, message)))
    message = RoomAck(Ack(7, 8))
    one.send(2, message)
    one.send(99, message)
    world.scheduler.run_ready()
    assert came == [(1, message)]
    assert (came[0][1] is message) is not is_strict
    assert one.counters.unknown_peer == 1


def test_priorities_leave_first_and_keep_their_order() -> None:
    world = World()
    one, other = world.end(1), world.end(2)
    came: list[int] = []
    other.on(Taken, lambda _boot, message: came.append(message.message_ids[0]))
    for number, priority in enumerate(
        (Priority.BULK, Priority.CHAT, Priority.CONTROL, Priority.CHAT, Priority.COMMAND)
    ):
        one.send(2, Taken((number,)), priority)
    world.scheduler.run_ready()
    assert came == [2, 4, 1, 3, 0]


@pytest.mark.feature("X19")
def test_a_heartbeat_is_answered_behind_the_work_before_it() -> None:
    world = World()
    one, other = world.end(1), world.end(2)
    order: list[str] = []
    other.on(Taken, lambda _boot, _message: order.append("work"))
    one.on(BeatBack, lambda _boot, back: order.append(f"back {back.number} {back.state.value}"))
    other.state = PeerState.RUNNING
    for _ in range(3):
        one.send(2, Taken((1,)))
    one.send(2, Beat(5))
    world.scheduler.run_ready()
    assert order == ["work", "work", "work", "back 5 Running"]


def test_the_box_is_bounded() -> None:
    endpoint = World().end(1)
    endpoint.received(2, "local:2", [Taken((1,))] * INBOX_MAX)
    endpoint.received(2, "local:2", [Taken((1,))])
    assert (endpoint.waiting, endpoint.counters.dropped) == (INBOX_MAX, 1)


def test_while_the_way_is_full_turns_are_given_and_late_talk_is_shed() -> None:
    world = World()
    one, other = world.end(1), world.end(2)
    way = world.network._ways["local:1"]
    came: list[Any] = []
    other.on(Taken, lambda _boot, message: came.append(message))
    other.on_talks(lambda talks: came.extend(talk for _, talk in talks))
    way.is_full = True
    talk = Talk(0, 1, 1, 1, 0, Priority.CHAT, is_reliable=False, body=b"x" * 1000)
    for _ in range(100):
        one.send(2, talk, Priority.CHAT)
    one.send(2, Taken((1,)))
    world.scheduler.run_ready()
    assert came == []
    world.scheduler.run_for(50)
    way.is_full = False
    way.when_free()
    world.scheduler.run_ready()
    assert came.count(talk) == 100 and isinstance(came[-1] if isinstance(came[0], Talk) else came[0], Taken)
    assert one.shed == 0


def test_endpoint_reports_when_all_that_waited_for_the_system_has_left() -> None:
    world = World()
    one, other = world.end(1), world.end(2)
    way = world.network._ways["local:1"]
    came: list[Any] = []
    freed: list[int] = []
    other.on(Taken, lambda _boot, message: came.append(message))
    one.when_free.append(lambda: freed.append(len(came)))
    one.send(2, Taken((1,)))
    world.scheduler.run_ready()
    assert (one.is_full, freed) == (False, []), "nothing has waited"
    way.is_full = True
    one.send(2, Taken((2,)))
    world.scheduler.run_ready()
    assert (one.is_full, freed) == (True, [])
    way.is_full = False
    assert one.is_full, "messages still wait"
    way.when_free()
    assert (one.is_full, len(freed)) == (False, 1)
    world.scheduler.run_ready()
    assert came == [Taken((1,)), Taken((2,))]


def test_a_malformed_message_is_counted_and_the_next_is_handled() -> None:
    world = World()
    endpoint = world.end(1)
    came: list[Any] = []
    endpoint.on(Taken, lambda _boot, message: came.append(message))
    endpoint.received(2, "local:2", [(4, b"\xff"), (99, b""), (4, b"\x00\x00\x00\x00")])
    world.scheduler.run_ready()
    assert came == [Taken(())]
    assert endpoint.counters.malformed == 2


@pytest.mark.feature("X05", "X20", "X31")
def test_the_directory_follows_registry_and_heartbeats() -> None:
    world = World()
    ends = {boot: world.end(boot) for boot in (1, 2, 3)}
    sessions = {boot: world.tree.open() for boot in (2, 3)}
    directory = Directory(world.tree.open(), ends[1], world.clock, world.scheduler, "/c", RULES)
    proxies = directory.follow("proxy")
    gone: list[int] = []
    directory.when_gone.append(lambda info: gone.append(info.boot))
    directory.start()
    for boot in (3, 2):
        ends[boot].state = PeerState.RUNNING
        member = world.member(boot, sessions[boot])
        member.state = PeerState.RUNNING
        member.register()
        world.scheduler.run_for(10)
    world.scheduler.run_for(300)
    assert proxies.usable() == [3, 2], "by replica number"
    assert [row["success"] for row in directory.rows()] == [1.0, 1.0]
    silenced, ends[3]._is_stopped = ends[3], True
    world.scheduler.run_for(600)
    assert proxies.usable() == [2]
    assert directory.rows()[0]["success"] < 0.5  # type: ignore[operator]
    silenced._is_stopped = False
    world.scheduler.run_for(400)
    assert proxies.usable() == [3, 2], "two good answers"
    sessions[2].close()
    ends[2]._is_stopped = True
    world.scheduler.run_for(1_000)
    assert gone == [2] and proxies.usable() == [3]


def test_an_entry_is_made_again_after_a_lost_session() -> None:
    world = World()
    session = world.tree.open()
    member = world.member(7, session, "broker", 3)
    numbers: list[int] = []
    member.registered = numbers.append
    member.register()
    world.scheduler.run_for(10)
    member.set_state(PeerState.RUNNING)
    world.scheduler.run_for(10)
    (entry,) = world.read("/c/broker").values()
    assert entry == {
        "name": "broker-3-0", "role": "broker", "partition": 3, "replica": 0, "address": "local:7",
        "state": "Running", "boot": "7",
    }  # fmt: skip
    session.expire()
    world.scheduler.run_for(2_000)
    assert numbers == [0, 1]
    (entry,) = world.read("/c/broker").values()
    assert (entry["name"], entry["state"], entry["boot"]) == ("broker-3-1", "Running", "7")
    left: list[bool] = []
    member.leave(lambda: left.append(True))
    world.scheduler.run_for(10)
    assert left == [True] and world.read("/c/broker") == {}


def test_who_has_a_name_keeps_it_whatever_its_number() -> None:
    # The map and probes name processes: whoever reads that must be able to say it to the supervisor.
    world = World()
    session = world.tree.open()
    world.member(6, world.tree.open(), "broker", 3).register()
    member = world.member(7, session, "broker", 3, name="broker-3-0")
    member.register()
    world.scheduler.run_for(10)
    session.expire()
    world.scheduler.run_for(2_000)
    entries = world.read("/c/broker").values()
    assert {(entry["name"], entry["replica"]) for entry in entries} == {("broker-3-0", 0), ("broker-3-0", 2)}


@pytest.mark.feature("X06")
def test_nobody_shares_a_slot() -> None:
    world = World()
    world.tree._numbers["/c/slots"] = SLOTS - 2
    claimed: list[int] = []
    first = world.tree.open()
    Slot(first, world.scheduler, "/c", claimed.append).claim()
    world.scheduler.run_for(10)
    world.tree._numbers["/c/slots"] = 2 * SLOTS - 2  # a round later, while the first still has it
    Slot(world.tree.open(), world.scheduler, "/c", claimed.append).claim()
    world.scheduler.run_for(10)
    assert claimed == [SLOTS - 2, SLOTS - 1]


@pytest.mark.feature("X06")
def test_a_slot_that_went_with_its_session_is_not_used() -> None:
    world = World()
    claimed: list[int] = []
    session = world.tree.open()
    slot = Slot(session, world.scheduler, "/c", claimed.append)
    slot.claim()
    session.expire()  # before the answer has come
    world.scheduler.run_for(2_000)
    assert claimed == [1]
    assert [int(name) for name in world.tree.read("/c/slots")] == [1]


@pytest.mark.feature("X04")
def test_polling_faster_than_the_registry_tells_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"links\.poll_ms"):
        LinkSettings(poll_ms=14_999)
    assert LinkSettings(poll_ms=14_999, unsafe_fast_poll=True).poll_ms == 14_999
    for wrong in ({"suspect_ms": 500}, {"dead_ms": 2_000}, {"grace_ms": 119_999}):
        with pytest.raises(ConfigError):
            LinkSettings(**wrong)  # type: ignore[arg-type]
