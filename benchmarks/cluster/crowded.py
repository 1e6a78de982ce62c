"""A gateway with as many people as one likes: ``python -m benchmarks.cluster.crowded zk://…``.

Everything of a gateway's rooms is real, links, listeners, outlets and their turns; only sockets are not: what is
written to a person is counted there. So a room of 100,000 needs no 100,000 sockets.

It is told what to do by lines of JSON on its input, and answers each with one:

    {"enter": "load", "rooms": 64, "people": 1}        so many people in each of these rooms, from "first" on
    {"big": "stadium", "people": 100000}               a room in 64 slices; answered when all of them can hear
    {"talk": 4.0, "rate": 100, "rooms": 50, "big": "stadium"}   small rooms talk; the big one once a second, if named
    {"churn": "load", "seconds": 1.5, "rate": 6000}    people of these rooms go and come again, so many a second
    {"wait": 2.0}                                      nothing, for so long
    {}                                                 what was written, and the CPU time
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import uvloop

from pixiu.config import Settings
from pixiu.config.rooms import RoomSettings
from pixiu.im.draft import Actor
from pixiu.links.bigrooms import big_rooms_path
from pixiu.links.member import Member, Slot
from pixiu.links.publishing import Publishing, PublishingRules
from pixiu.machines.bigrooms import BigMap
from pixiu.machines.rooms import room_number
from pixiu.machines.session import CODECS, WEBSOCKET_TEXT
from pixiu.machines.view import PeerState
from pixiu.model.errors import PixiuError
from pixiu.node.processes.cluster_end import ClusterEnd, secrets_of
from pixiu.ports.registry import Write
from pixiu.roles.gateway import ClusterRooms, RoomListening
from pixiu.roles.gateway.metrics import GatewayCounters
from pixiu.roles.gateway.outlet import Outlet, OutletRules
from pixiu.roles.gateway.tick import Tick
from pixiu.runtime.collector import spare_the_collector

if TYPE_CHECKING:
    from collections.abc import Callable

ENTER_AT_ONCE = 500
BURST_SECONDS = 0.02
WHOLE_SECONDS = 120.0
STAMP = b'"text":"~'
STAMP_DIGITS = 20
BIG_TEXT = "x" * 100


class _Person:
    """A connection, as rooms see it, and its socket."""

    __slots__ = ("actor", "is_closed", "outlet", "told")

    def __init__(self, crowd: Crowd, number: int, told: Callable[[bytes], object]) -> None:
        self.actor = Actor(number, session_id=number)
        self.is_closed = False
        self.told = told
        self.outlet = Outlet(crowd.rules, self, CODECS["json"], WEBSOCKET_TEXT, lambda: None)
        self.outlet.open()

    def write(self, data: bytes) -> None:
        self.told(data)

    def close(self, code: int, reason: str) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def pending(self) -> int:
        return 0

    def outstanding(self) -> int:
        return 0


class Crowd:
    """All people of this gateway."""

    def __init__(self, end: ClusterEnd) -> None:
        settings = Settings()
        rooms = RoomSettings(says_per_second=0, sessions_max=1_000_000)
        counters = GatewayCounters(1_000_000)
        self.end = end
        self.written = 0
        self.writes = 0
        self.latencies: list[float] = []
        self.people: list[_Person] = []
        self.by_room: dict[str, list[_Person]] = {}
        tick = Tick(end.scheduler, None, counters)  # type: ignore[arg-type]  # names are for stored messages
        self.rules = OutletRules(settings.gateway, tick, end.scheduler, counters)
        self._actions: dict[str, Any] = {}
        gateway: Any = SimpleNamespace(actions=self._actions, when_left=[], when_rejoined=[], tick=tick)
        self.publishing = Publishing(
            end.endpoint, end.directory, end.clock, end.scheduler, PublishingRules(), node_id=end.boot & 1023,
            pick=lambda count: time.monotonic_ns() % count,
        )  # fmt: skip
        member = Member(
            end.registry, end.scheduler, end.root, role="gateway", partition=0, boot=end.boot, address=end.address
        )
        self._rooms = ClusterRooms(
            end.endpoint, end.directory, self.publishing, end.clock, end.scheduler, rooms,
            user_name=lambda actor: str(actor.user), new_life=end.new_life, bigs=end.bigs,
        )  # fmt: skip
        listening = RoomListening(
            gateway, rooms, end.clock, act=self._rooms.act, session_gone=self._rooms.session_gone,
            soon=end.scheduler.soon,
        )  # fmt: skip
        self._rooms.receive = listening.receive
        self._rooms.sessions_in = listening.listeners.sessions
        self._rooms.join = listening.join
        self._rooms.overlaps_no_more = listening.listeners.overlaps_no_more
        self._rooms.joined = lambda version: member.tell(big=version)
        end.endpoint.state = member.state = PeerState.RUNNING
        Slot(end.registry, end.scheduler, end.root, self.publishing.renumber).claim()
        self._rooms.start()
        end.bigs.start()
        member.register()
        end.directory.start()

    async def enter(self, room: str, people: int, told: Callable[[bytes], object] | None = None) -> None:
        """Let so many more people in."""
        for number in range(people):
            person = _Person(self, self.end.boot + len(self.people) + 1, told or self._count)
            self.people.append(person)
            self.by_room.setdefault(room, []).append(person)
            self.act(person, "enter", {"room": room})
            if number % ENTER_AT_ONCE == ENTER_AT_ONCE - 1:
                await asyncio.sleep(0.01)

    def act(self, person: _Person, action: str, params: dict[str, object]) -> None:
        """Do as a client does."""
        self._actions[action](person, params, _done)

    async def make_big(self, name: str) -> None:
        """As `pixiu cluster split --plan` does, before anyone is there."""
        joining = BigMap(BigMap().joined(name), 0)
        record = joining.split(room_number(name), self.end.clock.now_ms() - 1)
        written = asyncio.Event()
        self.end.registry.write(Write(big_rooms_path(self.end.root), record, None), lambda _result: written.set())
        await written.wait()
        while room_number(name) not in self.end.bigs.map.rooms:
            self.end.bigs.refresh()
            await asyncio.sleep(0.1)

    async def wait_whole(self, name: str) -> float:
        """Talk in a room until all people of it hear it. Returns the seconds that this took."""
        began = time.monotonic()
        while time.monotonic() - began < WHOLE_SECONDS:
            before = self.writes
            self.act(self.by_room[name][0], "say", {"room": name, "text": BIG_TEXT})
            for _ in range(20):
                await asyncio.sleep(0.1)
                if self.writes - before >= len(self.by_room[name]):
                    return time.monotonic() - began
        raise SystemExit(f"after {WHOLE_SECONDS:.0f} s not everyone in {name} hears it")

    async def churn(self, prefix: str, seconds: float, rate: float) -> int:
        """One of each room goes, then comes again, then the next one, in bursts. Returns how many went and came."""
        rooms = [(name, people) for name, people in self.by_room.items() if name.startswith(f"{prefix}-")]
        there_and_back = 2 * len(rooms)
        total = int(rate * seconds) // there_and_back * there_and_back  # in the end all are there
        began, told, burst = time.monotonic(), 0, 0
        while told < total:
            burst += 1
            due = min(int(rate * burst * BURST_SECONDS), total)
            for number in range(told, due):
                turn, place = divmod(number, len(rooms))
                name, people = rooms[place]
                self.act(people[turn // 2 % len(people)], "enter" if turn % 2 else "leave", {"room": name})
            told = due
            await asyncio.sleep(max(began + burst * BURST_SECONDS - time.monotonic(), 0))
        return told

    async def talk(self, seconds: float, rate: float, names: list[str], big: str) -> dict[str, Any]:
        """Let the first one of each small room talk in turn, by the clock; what the second one hears is measured."""
        self.latencies = []
        began = time.monotonic()
        said, next_big, before = 0, began, self.writes
        while (now := time.monotonic()) < began + seconds:
            while began + said / rate <= now:
                room = names[said % len(names)]
                due_ns = int((began + said / rate) * 1e9)
                self.act(self.by_room[room][0], "say", {"room": room, "text": f"~{due_ns:0{STAMP_DIGITS}d}"})
                said += 1
            if big and now >= next_big:
                self.act(self.by_room[big][0], "say", {"room": big, "text": BIG_TEXT})
                next_big += 1
            await asyncio.sleep(max(began + said / rate - time.monotonic(), 0))
        await asyncio.sleep(1.0)
        return {"said": said, "latencies_ms": [round(each, 3) for each in self.latencies], "big": self.writes - before}

    def heard(self, data: bytes) -> None:
        """One of a small room hears something."""
        now = time.monotonic()
        at = data.find(STAMP)
        while at >= 0:
            at += len(STAMP)
            self.latencies.append((now - int(data[at : at + STAMP_DIGITS]) / 1e9) * 1000)
            at = data.find(STAMP, at)

    def _count(self, data: bytes) -> None:
        self.writes += 1
        self.written += len(data)


def _done(answer: object) -> None:
    if isinstance(answer, PixiuError) and answer.code not in ("busy", "unavailable"):
        raise answer


async def _run(registry: str) -> None:
    end = await ClusterEnd.open(registry, secrets_of("", "127.0.0.1"), Settings().links)
    crowd = Crowd(end)
    loop = asyncio.get_running_loop()
    spare_the_collector()  # as a role process does
    print(json.dumps({"address": end.address, "boot": f"{end.boot:x}"}), flush=True)
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            break
        print(json.dumps(await _answer(crowd, json.loads(line))), flush=True)
    await end.close()


async def _answer(crowd: Crowd, order: dict[str, Any]) -> dict[str, Any]:
    if "enter" in order:
        measured = bool(order.get("measured"))
        first = order.get("first", 0)
        for number in range(first, first + order["rooms"]):
            room = f"{order['enter']}-{number}"
            await crowd.enter(room, 1)
            await crowd.enter(room, order["people"] - 1, crowd.heard if measured else None)
        return {"people": len(crowd.people)}
    if "big" in order and "talk" not in order:
        await crowd.make_big(order["big"])
        await asyncio.sleep(1.0)
        await crowd.enter(order["big"], order["people"])
        return {"people": order["people"], "seconds": await crowd.wait_whole(order["big"])}
    if "churn" in order:
        return {"news": await crowd.churn(order["churn"], order["seconds"], order["rate"])}
    if "wait" in order:
        await asyncio.sleep(order["wait"])
        return {}
    if "talk" in order:
        names = [f"{order.get('prefix', 'small')}-{number}" for number in range(order["rooms"])]
        return await crowd.talk(order["talk"], order["rate"], names, order.get("big", ""))
    return {
        "writes": crowd.writes,
        "bytes": crowd.written,
        "events": crowd.rules.counters.events,
        "cpu": time.process_time(),
    }


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1]))
