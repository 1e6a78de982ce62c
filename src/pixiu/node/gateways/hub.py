"""The node's end of its gateway processes: each is a gateway of the relay and of the broker.

::

    gateway process ── Unix socket ── HubLink ─┬─ Messaging: logins, actions, acks
                                               ├─ Broker: enter, leave, say; one frame per gateway
                                               └─ LiveActions: typing, presence

A gateway that hangs up, that is silent for its lease, or that takes less than it is told is dropped with all its
sessions at once: one epoch ends, nothing is written per session. Its clients come back, or it comes back for them with
a new link (``roles.gateway.link``). Nothing here knows sockets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.wire import RoomFrame, encode
from pixiu.node.gateways.link import HubLink
from pixiu.roles.gateway.metrics import MOST, GatewayCounters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Params
    from pixiu.machines.room_link import Frame
    from pixiu.model.message import PublicNames
    from pixiu.node.gateways.link import NodeMessaging, RemoteSession
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.broker.broker import Broker
    from pixiu.roles.gateway.needs import Done, LiveCaller

__all__ = ["GatewayHub"]

log = logging.getLogger(__name__)

BROKER = "broker"
LOOKS_PER_LEASE = 4


class GatewayHub:
    """All gateway processes of a node."""

    def __init__(
        self,
        messaging: NodeMessaging,
        names: PublicNames,
        clock: Clock,
        scheduler: Scheduler,
        settings: GatewaySettings,
    ) -> None:
        self.messaging = messaging
        self.names = names
        self.settings = settings
        self.scheduler = scheduler
        self.broker: Broker | None = None
        """Set as soon as it is there: it needs this hub to push."""
        self.actions: dict[str, Callable[[LiveCaller, Params, Done], object]] = {}
        self.links: dict[str, HubLink] = {}
        """Those that have said hello, by name."""
        self.administer: Callable[[str, Params, Done], object] | None = None
        """Answers what an admin asks at a gateway; None where the node itself is asked."""
        self.when_open: Callable[[str], object] = lambda _name: None
        """Told the name of each gateway that begins to take clients."""
        self.counters = GatewayCounters(0)
        """Of all gateway processes together, as they said last."""
        self._clock = clock
        self._joined: list[Callable[[LiveCaller], object]] = []
        self._left: list[Callable[[LiveCaller], object]] = []
        self._strangers: set[HubLink] = set()
        self._gateways: dict[int, str] = {}  # of sessions
        self._heard_ms: dict[str, int] = {}
        self._looked_ms = self.now_ms()
        self._timer: Timer | None = None

    # Life.

    def start(self) -> None:
        """Watch for silence."""
        self._looked_ms = self.now_ms()
        self._look()

    def stop(self) -> None:
        """Hang up."""
        if self._timer is not None:
            self._timer.cancel()
        for link in [*self.links.values(), *self._strangers]:
            link.cut("the node stops")

    def accept(self) -> HubLink:
        """Somebody connects: the end that is to be told about it."""
        link = HubLink(self)
        self._strangers.add(link)
        return link

    # For typing and presence: ``LiveGateway``.

    def offer(self, action: str, perform: Callable[[LiveCaller, Params, Done], object]) -> None:
        """From now on this action is performed so."""
        self.actions[action] = perform

    def watch(self, joined: Callable[[LiveCaller], object], left: Callable[[LiveCaller], object]) -> None:
        """Tell of every session that comes and goes."""
        self._joined.append(joined)
        self._left.append(left)

    # For the broker.

    def gateway_of(self, session_id: int) -> str:
        """Where a session is."""
        return self._gateways.get(session_id, "")

    def push_frames(self, gateway: str, frames: list[Frame]) -> None:
        """What a broker says to all who listen at a gateway."""
        link = self.links.get(gateway)
        if link is not None:
            for frame in frames:
                link.say(encode(RoomFrame(BROKER, frame)))

    # What is counted.

    @property
    def sessions(self) -> int:
        """Sessions of all gateways."""
        return len(self._gateways)

    @property
    def connections(self) -> int:
        """Connections of all gateways, as they said last."""
        return sum(link.connections for link in self.links.values())

    @property
    def is_open(self) -> bool:
        """Does any gateway take clients?"""
        return any(link.is_open for link in self.links.values())

    def silence_ms(self, name: str) -> int:
        """How long a gateway has said nothing; 0 if it never was here."""
        return self.now_ms() - self._heard_ms.get(name, self.now_ms())

    def forget(self, name: str) -> None:
        """A gateway is being replaced: its silence counts no more."""
        self._heard_ms.pop(name, None)

    # What links tell.

    def now_ms(self) -> int:
        """The steady clock."""
        return self._clock.monotonic_us() // 1000

    def heard(self, name: str) -> None:
        """A gateway lives."""
        self._heard_ms[name] = self.now_ms()

    def greeted(self, link: HubLink, name: str) -> int:
        """A gateway has said who it is. An older link under the same name is over. Returns its epoch."""
        before = self.links.get(name)
        if before is not None:
            before.cut("it is here again")
        self._strangers.discard(link)
        self.links[name] = link
        self.heard(name)
        epoch = self.messaging.gateway_came(name)
        log.info("gateway is here", extra={"gateway": name, "epoch": epoch})
        return epoch

    def counted(self, link: HubLink, counts: Mapping[str, object]) -> None:
        """A gateway says what it has counted since its start: what is new of it counts here."""
        self.counters.add(link.counts, counts)
        link.counts = counts
        self.counters.connections = self.connections

    def opened(self, name: str) -> None:
        """A gateway takes clients."""
        self.when_open(name)

    def joined(self, session: RemoteSession, gateway: str) -> None:
        """A session has begun."""
        self._gateways[session.number] = gateway
        for call in self._joined:
            call(session)

    def left(self, session: RemoteSession) -> None:
        """A session is over, and the relay knows."""
        self._gateways.pop(session.number, None)
        if self.broker is not None:
            self.broker.session_gone(session.number)
        for call in self._left:
            call(session)

    def lost(self, link: HubLink, name: str, sessions: list[RemoteSession], reason: str) -> None:
        """A gateway is gone: all its sessions at once (P15)."""
        self._strangers.discard(link)
        if self.links.get(name) is not link:
            return
        del self.links[name]
        self.counters.connections = self.connections
        self.counters.add({MOST: link.counts.get(MOST, 0)}, {MOST: 0})
        level = logging.WARNING if sessions else logging.INFO
        log.log(level, "gateway is gone", extra={"gateway": name, "sessions": len(sessions), "reason": reason})
        for session in sessions:
            self._gateways.pop(session.number, None)
        self.messaging.gateway_gone(name)
        if self.broker is not None:
            self.broker.gateway_gone(name)
            self.broker.resume(name)  # should it come back, nothing holds it up
        for session in sessions:
            for call in self._left:
                call(session)

    # Time.

    def _look(self) -> None:
        """Drop whoever is silent, unless this process stood still itself: then nobody could be heard."""
        now_ms, lease_ms = self.now_ms(), self.settings.lease_ms
        has_stood = now_ms - self._looked_ms > lease_ms / 2
        self._looked_ms = now_ms
        for link in [*self.links.values(), *self._strangers]:
            if has_stood:
                link.heard_ms = now_ms
            elif now_ms - link.heard_ms > lease_ms:
                link.cut(f"silent for {now_ms - link.heard_ms} ms")
        self._timer = self.scheduler.after(lease_ms / LOOKS_PER_LEASE, self._look)
