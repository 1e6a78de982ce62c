"""A probe of rooms: it talks in rooms of nobody, over every proxy and every broker, and hears itself.

To routers and brokers it is a gateway with a session in each of its rooms; these have numbers that no name leads to, so
no user can be in one, and nothing is stored (X30). A probe therefore takes the very way of what people say: the proxy's
choice, the broker's routes, frames, and relays where rooms go over them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pixiu.links.telling import Telling
from pixiu.machines.links.messages import FROM_GATEWAY, SESSIONS, AskRoutes, RoomAck, RoomFrame, Talk, Want
from pixiu.machines.links.news import NewsRules
from pixiu.machines.probes import Path, Probes, read_probe, write_probe
from pixiu.machines.room_link import Incoming, state_of
from pixiu.machines.routes import RouteRow
from pixiu.machines.scheduling import Priority
from pixiu.model.partitions import PARTITIONS_MAX, PROBE_ROOMS_BEGIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.bigrooms import BigRooms
    from pixiu.links.directory import Directory
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.member import Member
    from pixiu.machines.probes import Alarm, ProbeRules
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["PROBE_ROOM", "Probe"]

log = logging.getLogger(__name__)

PROBE_ROOM = "probe"
COPIES_MAX = 32
OFFER_MS = 1_000
TICK_MS = 50
RECENT_MAX = 256
WARM_MS = 3_000
"""A path is probed this long after it has come: brokers learn of its room first."""


class Probe:
    """One probe. ``member`` is its entry among the gateways."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        member: Member,
        clock: Clock,
        scheduler: Scheduler,
        bigs: BigRooms,
        *,
        new_life: Callable[[], int],
        rules: ProbeRules | None = None,
    ) -> None:
        self.probes = Probes(rules)
        self.alarms: list[Alarm] = []
        self._endpoint = endpoint
        self._directory = directory
        self._member = member
        self._clock = clock
        self._scheduler = scheduler
        self._bigs = bigs
        self._proxies = directory.follow("proxy")
        self._brokers = directory.follow("broker")
        told = partial(Telling, endpoint=endpoint, clock=clock, scheduler=scheduler, new_life=new_life,
                       rules=NewsRules())  # fmt: skip
        self._news = told(FROM_GATEWAY, listeners=directory.follow("router"))
        self._here = told(SESSIONS, listeners=directory.follow("relay"))
        self._tellings = {telling.kind: telling for telling in (self._news, self._here)}
        self._numbers: dict[int, int] = {}
        """Proxies get numbers as they come: which rooms are for them."""
        self._rooms: set[int] = set()
        self._since_ms: dict[Path, float] = {}
        self._sources: dict[int, Incoming] = {}
        self._number = 0
        self._timers: dict[str, Timer] = {}
        self._recent: dict[str, float] = {}
        endpoint.on(RoomFrame, self._frame)
        endpoint.on(Want, self._want)
        endpoint.on(AskRoutes, self._ask)
        directory.when_changed.append(self._changed)
        bigs.when_changed.append(lambda: member.tell(big=bigs.map.version + 1))

    def start(self) -> None:
        """Begin."""
        self._offer()
        self._look()
        self._send()

    def stop(self) -> None:
        """No more."""
        for timer in self._timers.values():
            timer.cancel()

    def name_of(self, boot: int) -> str:
        """What people call a process."""
        for view in (self._proxies, self._brokers):
            if boot in view.peers:
                return view.peers[boot].name
        return f"{boot:x}" if boot else ""

    def rows(self) -> list[dict[str, object]]:
        """Every path, for people."""
        found = self.probes.rows()
        for row in found:
            row["proxy"], row["broker"] = self.name_of(int(str(row["proxy"]))), self.name_of(int(str(row["broker"])))
        return found

    def alarm_texts(self, *, within_ms: float = 0) -> list[str]:
        """What is broken, in words, or was so a moment ago: others go around what is broken, and probes with them."""
        now = [self._words(alarm) for alarm in self.alarms]
        since_ms = self._now_ms() - within_ms
        return now + [text for text, at_ms in self._recent.items() if at_ms > since_ms and text not in now]

    # Paths.

    def _changed(self) -> None:
        """Who is there has changed."""
        count, paths = self._brokers.counts.count, []
        for proxy in self._proxies.usable():
            self._numbers.setdefault(proxy, len(self._numbers))
            for partition in range(count):
                replicas = len(self._brokers.usable(partition))
                paths += [Path(proxy, partition, copy) for copy in range(min(replicas, COPIES_MAX))]
        self.probes.known(paths)
        now_ms = self._now_ms()
        self._since_ms = {path: self._since_ms.get(path, now_ms) for path in self.probes.paths}
        wanted = {self._room(path) for path in paths}
        for room in sorted(wanted - self._rooms):
            self._tell(room, is_in=True)
        for room in sorted(self._rooms - wanted):
            self._tell(room, is_in=False)
        self._rooms = wanted

    def _room(self, path: Path) -> int:
        """A room of this partition, for this proxy alone: what goes over others does not overtake it."""
        return PROBE_ROOMS_BEGIN + self._numbers[path.proxy] * PARTITIONS_MAX + path.partition

    def _tell(self, room: int, *, is_in: bool) -> None:
        """A pseudo-user enters or leaves a room of its own."""
        boot, user = self._endpoint.boot, room - PROBE_ROOMS_BEGIN
        session_id = boot + user + 1
        row = RouteRow(room, PROBE_ROOM, user, session_id, boot, self._news.next_version(), is_in)
        self._news.tell(row, is_hedged=True)
        here = RouteRow(user, "", user, session_id, boot, self._here.next_version(), is_in)
        self._here.tell(here, is_hedged=True)

    def _want(self, boot: int, want: Want) -> None:
        if (telling := self._tellings.get(want.key.kind)) is not None:
            telling.want(boot, want)

    def _ask(self, boot: int, ask: AskRoutes) -> None:
        if (telling := self._tellings.get(ask.key.kind)) is not None:
            telling.ask(boot, ask)

    # There and back.

    def _send(self) -> None:
        self._timers["send"] = self._scheduler.after(self.probes.rules.interval_ms, self._send)
        now_ms = self._now_ms()
        for path in self.probes.paths:
            if now_ms - self._since_ms[path] < WARM_MS:
                continue
            self._number += 1
            body = write_probe(self._endpoint.boot, self._number)
            talk = Talk(
                0, self._room(path), self._number, self._endpoint.boot, path.copy, Priority.CHAT,
                is_reliable=False, body=body,
            )  # fmt: skip
            self.probes.left(self._number, path, now_ms)
            self._endpoint.send(path.proxy, talk, Priority.CHAT)

    def _frame(self, boot: int, message: RoomFrame) -> None:
        incoming = state_of(self._sources, boot, Incoming)
        for fan in incoming.receive(message.frame):
            probe = read_probe(fan.body) if fan.message_id else None
            if probe is not None and probe[0] == self._endpoint.boot:
                self.probes.back(probe[1], probe[2], self._now_ms())
        if message.frame.number:
            self._endpoint.send(boot, RoomAck(incoming.ack))

    def _look(self) -> None:
        self._timers["look"] = self._scheduler.after(TICK_MS, self._look)
        self.probes.look(self._now_ms())
        alarms = self.probes.alarms()
        if alarms != self.alarms:
            for alarm in alarms:
                if alarm._replace(paths=0) not in [each._replace(paths=0) for each in self.alarms]:
                    log.error("probes do not come back", extra={"broken": self._words(alarm)})
            if not alarms:
                log.info("probes come back on all paths")
            self.alarms = alarms
        for alarm in alarms:
            text = self._words(alarm)
            self._recent.pop(text, None)
            self._recent[text] = self._now_ms()
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]

    def _words(self, alarm: Alarm) -> str:
        match alarm.kind:
            case "proxy":
                return f"{self.name_of(alarm.proxy)}: no probe comes back by way of it"
            case "broker":
                return f"{self.name_of(alarm.broker)}: no probe comes back by way of it"
            case "way":
                return (
                    f"{self.name_of(alarm.proxy)} to {self.name_of(alarm.broker) or 'its broker'}: only this way fails"
                )
            case _:
                return "no probe comes back at all"

    def _offer(self) -> None:
        self._news.offer()
        self._here.offer()
        self._timers["offer"] = self._scheduler.after(OFFER_MS, self._offer)

    def _now_ms(self) -> float:
        return self._clock.monotonic_us() / 1000
