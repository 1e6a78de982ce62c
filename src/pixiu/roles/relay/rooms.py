"""One replica of the relays of rooms: it knows at which gateway the users of its partition are (``room_path = relay``).

It learns that as a router learns who is in which room: it subscribes to every gateway, for the users of its partition,
loads, replays and is Running only then. Brokers then need not know gateways, and gateways no rooms of others: a message
of a room goes from the broker to one replica of each partition that has somebody in it, and from there to each gateway
once (X71).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.links.replica import Replica
from pixiu.machines.links.messages import SESSIONS, RoomAck, RoomFrame, StreamKey
from pixiu.machines.links.packing import MESSAGE_BYTES_MAX
from pixiu.machines.room_link import Outgoing
from pixiu.machines.room_relay import RoomRelay
from pixiu.machines.rooms import sized
from pixiu.machines.routes import RouteTable
from pixiu.machines.scheduling import Priority
from pixiu.model.partitions import PROBE_ROOMS_BEGIN, owns

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.rooms import RoomSettings
    from pixiu.links.directory import Directory, PeerInfo
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.member import Member
    from pixiu.machines.links.news import NewsRules, Snapshot
    from pixiu.machines.room_link import Ack
    from pixiu.machines.rooms import Fan
    from pixiu.machines.routes import RouteRow
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["ClusterRelay"]

log = logging.getLogger(__name__)

TICK_MS = 50


class ClusterRelay:
    """One replica of one partition."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        member: Member,
        clock: Clock,
        scheduler: Scheduler,
        settings: RoomSettings,
        *,
        new_life: Callable[[], int],
        patience_ms: int = 5_000,
        rules: NewsRules | None = None,
    ) -> None:
        """``new_life`` gives numbers that rise, also from one start to the next.

        ``patience_ms``: so long a start waits for a gateway that is listed and says nothing.
        """
        self.table = RouteTable()
        self.relay = RoomRelay(self._gateway_of)
        self.frames = 0
        self.lost = 0
        """Reliable talk that a gateway never acked."""
        self._endpoint = endpoint
        self._directory = directory
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._new_life = new_life
        self._patience_ms = patience_ms
        self._partition = member.partition
        self._since_ms: int | None = None
        self._where: dict[int, int] = {}
        self._links: dict[int, Outgoing] = {}
        self._is_near = False
        self._timer: Timer | None = None
        self._gateways = directory.follow("gateway")
        self._relays = directory.follow("relay")
        self.replica = Replica(
            member, endpoint, clock, scheduler,
            wanted=self._sources, apply=self._applied, merge=self._merged,
            digest=lambda boot, _key: self.table.digest_of(boot), rules=rules,
        )  # fmt: skip
        self.replica.stray = self._stray
        directory.when_gone.append(self._gone)
        directory.when_changed.append(self.replica.look)
        endpoint.on(RoomFrame, self._frame)
        endpoint.on(RoomAck, self._acked)

    def start(self) -> None:
        """Begin."""
        self.replica.start()
        self._tick()

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    # Who is where.

    def _gateway_of(self, session_id: int) -> str | None:
        boot = self._where.get(session_id)
        return None if boot is None else f"{boot:x}"

    @property
    def _key(self) -> StreamKey:
        count = self._relays.counts.kept_count
        return StreamKey(SESSIONS, self._partition % count, count)

    def _sources(self) -> dict[int, StreamKey] | None:
        if not self._directory.is_read:
            return None
        now_ms = self._clock.monotonic_us() // 1000
        if self._relays.counts.cleans(now_ms):
            self._follow(self.table.keep(self._partition, self._relays.counts.count))
        if self._since_ms is None:
            self._since_ms = now_ms
        is_patient = now_ms - self._since_ms < self._patience_ms
        usable, key = set(self._gateways.usable()), self._key
        needed = self._gateways.known() if is_patient else [boot for boot in self._gateways.known() if boot in usable]
        return dict.fromkeys({*needed, *(boot for boot in self.replica.sinks if boot in self._gateways.peers)}, key)

    def _stray(self, boot: int) -> StreamKey | None:
        if boot in self._gateways.peers:
            return self._key
        self._directory.refresh("gateway")
        return None

    def _applied(self, rows: list[RouteRow]) -> None:
        count = self._relays.counts.kept_count
        for row in rows:
            if owns(self._partition, row.room, count):
                self._follow(self.table.apply(row))
        self._look()

    def _merged(self, _boot: int, snapshot: Snapshot) -> None:
        key = self._key
        rows = [row for row in snapshot.rows if owns(self._partition, row.room, key.partitions)]
        self._follow(self.table.snapshot(rows, snapshot.marks, key.partition, key.partitions))
        self._look()

    def _follow(self, changed: list[RouteRow]) -> None:
        for row in changed:
            if row.is_in:
                self._where[row.session_id] = row.gateway
            elif self._where.get(row.session_id) == row.gateway:  # a late leave is not about a new place (E43)
                del self._where[row.session_id]

    def _gone(self, info: PeerInfo) -> None:
        if info.role == "gateway":
            self.replica.sinks.pop(info.boot, None)
            self._follow(self.table.purge(info.boot))
            link = self._links.pop(info.boot, None)
            if link is not None:
                self._tell(self.relay.arrived(f"{info.boot:x}", link.close()))
        elif info.role == "broker":
            self.relay.source_gone(f"{info.boot:x}")

    # Talk.

    def _frame(self, broker: int, message: RoomFrame) -> None:
        if not self.replica.life.takes_work:
            return  # whoever sends reliable talk sends it again, to one that runs
        frame = message.frame
        if any(fan.room >= PROBE_ROOMS_BEGIN and fan.message_id for fan in frame.fans):
            frame = frame._replace(fans=[self._stamped(fan) for fan in frame.fans])
        ack = self.relay.receive(f"{broker:x}", frame, self._clock.monotonic_us() // 1000)
        if ack is not None:
            self._endpoint.send(broker, RoomAck(ack), Priority.CONTROL)
        self._near()

    def _stamped(self, fan: Fan) -> Fan:
        if fan.room < PROBE_ROOMS_BEGIN or not fan.message_id:
            return fan
        return fan._replace(body=self._endpoint.stamp("relay", fan.body))

    def _acked(self, gateway: int, message: RoomAck) -> None:
        link = self._links.get(gateway)
        if link is not None:
            self._tell(self.relay.arrived(f"{gateway:x}", link.acked(message.ack)))

    def _tell(self, acks: list[tuple[str, Ack]]) -> None:
        for broker, ack in acks:
            self._endpoint.send(int(broker, 16), RoomAck(ack), Priority.CONTROL)

    def _look(self) -> None:
        if self.relay.waiting:
            self._tell(self.relay.look(self._clock.monotonic_us() // 1000))
            self._near()

    def _near(self) -> None:
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self._flush)

    def _flush(self) -> None:
        self._is_near = False
        now_ms = self._clock.monotonic_us() // 1000
        for gateway, fans in self.relay.take().items():
            boot = int(gateway, 16)
            link = self._links.get(boot)
            if link is None:
                link = self._links[boot] = Outgoing(
                    self._new_life(), resend_ms=self._settings.resend_ms, reliable_ms=self._settings.reliable_ms
                )
            for part in sized(fans, MESSAGE_BYTES_MAX):
                self.frames += 1
                self._endpoint.send(boot, RoomFrame(link.seal(part, now_ms)), Priority.CHAT)

    def _tick(self) -> None:
        """Send again what was not acked; give up what has waited too long."""
        self._timer = self._scheduler.after(TICK_MS, self._tick)
        now_ms = self._clock.monotonic_us() // 1000
        for boot, link in list(self._links.items()):
            frames, lost = link.due(now_ms)
            if lost:
                self.lost += len(lost)
                log.warning("reliable room messages given up", extra={"gateway": f"{boot:x}", "count": len(lost)})
                self._tell(self.relay.arrived(f"{boot:x}", lost))
            for frame in frames:
                self._endpoint.send(boot, RoomFrame(frame), Priority.CHAT)
        self._look()
