"""All connections of one gateway: who may come, who is looked after, who is sent away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.im.costs import size_cost
from pixiu.machines.session import FRAME_SLACK_BYTES, LENGTH_PREFIXED, codec_of, envelope_of
from pixiu.model.errors import Overloaded, PixiuError, Unauthenticated, Unavailable
from pixiu.roles.gateway.connection import Connection
from pixiu.roles.gateway.metrics import GatewayCounters, count
from pixiu.roles.gateway.outlet import OutletRules
from pixiu.roles.gateway.rates import Buckets
from pixiu.roles.gateway.tick import Tick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Answer, Params
    from pixiu.model.message import PublicNames
    from pixiu.ports.authentication import Identity
    from pixiu.ports.clients import ClientTransport, ConnectedClient
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.gateway.needs import Authenticate, LocalAction, Messaging

__all__ = ["Gateway"]

log = logging.getLogger(__name__)

BUCKETS = 64
"""Connections are looked after in so many parts, one after the other within a ping interval."""
DRAIN_PAUSE_MS = 20
REFUSED_RETRY_MS = 1_000
FRAME_BYTES_PER_TOKEN = 4_096
"""Bytes of a large frame that count as one request."""
FRAME_WAIT_MS_MAX = 5_000
"""Longest pause in reading from a client that sent large frames."""
ESCAPED = 3
"""A text may be three times as long in JSON as in UTF-8: four bytes of an emoji are two escapes of six."""
LOOPBACK = ("127.", "::1", "::ffff:127.")


class Gateway:
    """Holds clients' connections. Callbacks only; time comes from the scheduler."""

    def __init__(
        self,
        messaging: Messaging,
        authenticate: Authenticate,
        clock: Clock,
        scheduler: Scheduler,
        settings: GatewaySettings,
        *,
        names: PublicNames,
        message_bytes_max: int = 64 * 1024,
        connections_max: int | None = None,
    ) -> None:
        """``connections_max`` is what the system allows, if that is less than the setting."""
        self.messaging = messaging
        self.settings = settings
        self.connections_max = min(settings.connections_max, connections_max or settings.connections_max)
        self.counters = GatewayCounters(self.connections_max)
        self.tick = Tick(scheduler, names, self.counters)
        self.rules = OutletRules(settings, self.tick, scheduler, self.counters)
        self.frame_bytes_max = ESCAPED * message_bytes_max + FRAME_SLACK_BYTES
        self.actions: dict[str, LocalAction] = {"ping": self._ping}
        """What the gateway does itself, by name; everything else is the proxy's."""
        self.when_joined: list[Callable[[Connection], object]] = []
        self.when_left: list[Callable[[Connection], object]] = []
        """Told of every session that comes and goes: presence, rooms."""
        self.when_rejoined: list[Callable[[Connection, int], object]] = []
        """Told of every connection that has another session than before, with the number of that one."""
        self.when_not_rejoined: Callable[[Connection], object] = lambda _connection: self._rejoin_soon()
        """Called when a connection without a session could not get one yet; the connection stays open."""
        self.authenticate = authenticate
        self._clock = clock
        self.scheduler = scheduler
        self._count = 0
        self._number = 0
        self._is_draining = False
        self._is_cut_off = False
        self._is_rejoining = False
        self._timer: Timer | None = None
        self._at = 0
        interval = settings.ping_interval_ms
        self._parts: list[dict[int, Connection]] = [{} for _ in range(max(1, min(BUCKETS, interval // 100)))]
        self._silence_max = max(1, -(-settings.idle_timeout_ms // interval))
        self._connects_by_user = Buckets(
            "connects", per_second=settings.connects_per_user, burst=settings.connect_burst_per_user
        )
        self._connects_by_address = Buckets(
            "connects", per_second=settings.connects_per_address, burst=settings.connect_burst_per_address
        )
        self._requests_by_user = Buckets(
            "requests", per_second=settings.requests_per_user, burst=settings.request_burst_per_user
        )
        self._requests_by_address = Buckets(
            "requests", per_second=settings.requests_per_address, burst=settings.request_burst_per_address
        )

    # Life.

    def start(self) -> None:
        """Look after connections from now on."""
        self._timer = self.scheduler.after(self._pause_ms, self._look_after)

    def drain(self, done: Callable[[], object]) -> None:
        """Take nobody any more; send everyone away, a batch at a time; then ``done``. Sessions are gone by then."""
        self._is_draining = True
        leaving = [connection for part in self._parts for connection in part.values()]
        log.info("sending clients away", extra={"connections": len(leaving)})
        self._drain_batch(leaving, done)

    def stop(self) -> None:
        """No timer any more. ``drain`` comes before."""
        self._is_draining = True
        if self._timer is not None:
            self._timer.cancel()

    def _drain_batch(self, leaving: list[Connection], done: Callable[[], object]) -> None:
        batch = self.settings.drain_batch
        for connection in leaving[:batch]:
            connection.send_away()
        rest = leaving[batch:]
        if rest:
            self.scheduler.after(DRAIN_PAUSE_MS, lambda: self._drain_batch(rest, done))
        else:
            self.scheduler.after(0, done)

    def return_after_ms(self, number: int) -> int:
        """When one who is sent away should come back: spread evenly, and the same each time it is asked."""
        return (number * 2_654_435_761 % 2**32) * self.settings.drain_spread_ms >> 32

    # A node that is elsewhere, and may take this gateway for dead (B18, C9).

    def cut_off(self) -> None:
        """The node has dropped every session of this gateway, or will: nobody may come until it can be reached."""
        self._is_cut_off = True
        self.cut_off_those(lambda _connection: True)

    def cut_off_those(self, are_meant: Callable[[Connection], bool]) -> None:
        """Some sessions are over, because whoever had them is gone; their connections are not."""
        for part in self._parts:
            for connection in list(part.values()):
                if are_meant(connection):
                    connection.cut_off()

    def reached(self) -> None:
        """The node is there, under a new epoch: a share of the clients is closed, the others get new sessions."""
        self._is_cut_off = False
        self.rejoin_those(lambda _connection: True, close_percent=self.settings.resync_percent)

    def rejoin_those(self, are_meant: Callable[[Connection], bool], *, close_percent: int = 0) -> None:
        """Ask for new sessions for some of the connections without one; close ``close_percent`` of them instead."""
        staying = [each for part in self._parts for each in part.values() if each.is_cut_off and are_meant(each)]
        if staying:
            log.warning("resync", extra={"connections": len(staying)})
            self._rejoin_batch(staying, 0, close_percent)

    def _rejoin_soon(self) -> None:
        if not self._is_rejoining:
            self._is_rejoining = True
            self.scheduler.after(REFUSED_RETRY_MS, self._rejoin_again)

    def _rejoin_again(self) -> None:
        self._is_rejoining = False
        if not self._is_cut_off:  # otherwise ``reached`` does it
            self.rejoin_those(lambda _connection: True)

    def connections(self) -> Iterator[Connection]:
        """Every connection. May be continued in later turns: those that close or open meanwhile do no harm."""
        for part in self._parts:
            yield from list(part.values())

    def counted(self) -> tuple[int, Mapping[str, object]]:
        """How many connections there are, and what was counted since the start."""
        return self._count, self.counters.numbers()

    def send_all_away(self) -> None:
        """The node cannot be reached, and it is not known when it will be: let the clients look for another way."""
        leaving = [connection for part in self._parts for connection in part.values()]
        self._drain_batch(leaving, lambda: None)

    def _rejoin_batch(self, staying: list[Connection], first: int, percent: int) -> None:
        for index, connection in enumerate(staying[first : first + self.settings.drain_batch], first):
            if (index + 1) * percent // 100 > index * percent // 100:
                connection.kick("resync")
            else:
                connection.rejoin()
        first += self.settings.drain_batch
        if first < len(staying):
            self.scheduler.after(DRAIN_PAUSE_MS, lambda: self._rejoin_batch(staying, first, percent))

    # Who may come.

    def refusal(self, address: str) -> PixiuError | None:
        """Why nobody may connect from this address now. Asked once per connection, before anything is done for it."""
        error = self._refusal(address)
        if error is not None:
            count(self.counters.refused, error.code)
        return error

    def _refusal(self, address: str) -> PixiuError | None:
        if self._is_draining:
            return Unavailable("this server is stopping", retry_after_ms=REFUSED_RETRY_MS)
        if self._is_cut_off:
            return Unavailable("the node cannot be reached", retry_after_ms=REFUSED_RETRY_MS)
        if self._count >= self.connections_max:
            return Overloaded(
                f"this server has its {self.connections_max} connections", retry_after_ms=REFUSED_RETRY_MS
            )
        if address.startswith(LOOPBACK):
            return None
        return self._connects_by_address.take(address, self._clock.monotonic_us())

    def request_refusal(self, connection: Connection, params: Params | None = None) -> PixiuError | None:
        """The error, if this client asks too often. A request counts by the size of its params."""
        now = self._clock.monotonic_us()
        user = connection.identity.user if connection.identity is not None else ""
        cost = 1 if not params else size_cost(params)
        error = self._requests_by_user.take(user, now, cost)
        if error is None and not connection.address.startswith(LOOPBACK):
            error = self._requests_by_address.take(connection.address, now, cost)
        return error

    def frame_wait_ms(self, connection: Connection, size: int) -> int:
        """Charge a large frame, whose decoding takes time before anything else is known of it.

        Returns for how long nothing more should be read from this client.
        """
        now, cost = self._clock.monotonic_us(), size // FRAME_BYTES_PER_TOKEN
        user = connection.identity.user if connection.identity is not None else ""
        return min(self._requests_by_user.owe(user, now, cost), FRAME_WAIT_MS_MAX)

    def open(
        self, transport: ClientTransport, *, codec: str, is_websocket: bool, token: str, cursor: int, address: str
    ) -> ConnectedClient:
        """A client is here; nobody has refused it. Its token is checked before anything else."""
        chosen = codec_of(codec)
        envelope = envelope_of(chosen) if is_websocket else LENGTH_PREFIXED
        self._number += 1
        connection = Connection(self, self._number, transport, chosen, envelope, cursor, address)
        self._parts[connection.number % len(self._parts)][connection.number] = connection
        self._count += 1
        self.counters.connections = self._count
        connection.begin(token)
        connection.outlet.flush()  # goes with the handshake's answer, in one piece; most often that is all there is
        return connection

    def user_refusal(self, identity: Identity) -> PixiuError | None:
        """Why the one whose token was good may not come now."""
        if identity.expires_at and identity.expires_at <= self._clock.now_ms():
            return Unauthenticated("the token has expired")
        return self._connects_by_user.take(identity.user, self._clock.monotonic_us())

    # What others add.

    def offer(self, action: str, perform: LocalAction) -> None:
        """From now on this action is performed here, and so."""
        self.actions[action] = perform

    def watch(self, joined: Callable[[Connection], object], left: Callable[[Connection], object]) -> None:
        """Tell of every session that comes and goes."""
        self.when_joined.append(joined)
        self.when_left.append(left)

    # What connections tell.

    def accepted(self, connection: Connection, identity: Identity) -> None:
        """A token was good."""
        self.counters.accepted += 1
        self._expire_in_time(connection, identity)

    def confirmed(self, connection: Connection, identity: Identity) -> None:
        """A token was checked again and is still valid; its identity may expire at another time now."""
        before, connection.identity = connection.identity, identity
        if before is None or identity.expires_at < before.expires_at:
            self._expire_in_time(connection, identity)

    def joined(self, connection: Connection) -> None:
        """A client has its session."""
        for call in self.when_joined:
            call(connection)

    def rejoined(self, connection: Connection, before: int) -> None:
        """A client has another session than before."""
        for call in self.when_rejoined:
            call(connection, before)

    def left(self, connection: Connection) -> None:
        """A connection is over."""
        if self._parts[connection.number % len(self._parts)].pop(connection.number, None) is not None:
            self._count -= 1
            self.counters.connections = self._count
            if connection.actor.user:
                for call in self.when_left:
                    call(connection)

    def _ping(self, connection: Connection, params: Params, done: Callable[[Answer | PixiuError], object]) -> None:
        """For clients that cannot see the WebSocket's own."""
        done({"at": self._clock.now_ms()})

    # Time.

    @property
    def _pause_ms(self) -> float:
        return self.settings.ping_interval_ms / len(self._parts)

    def _look_after(self) -> None:
        """One part of the connections; all of them within a ping interval."""
        part = self._parts[self._at]
        self._at = (self._at + 1) % len(self._parts)
        for connection in list(part.values()):
            connection.visit(self._silence_max)
            if connection.identity is not None and not connection.is_closed:
                self._expire_in_time(connection, connection.identity)
        self._timer = self.scheduler.after(self._pause_ms, self._look_after)

    def _expire_in_time(self, connection: Connection, identity: Identity) -> None:
        """A timer for a token that ends before the next visit, and only for that."""
        if identity.expires_at:
            left_ms = identity.expires_at - self._clock.now_ms()
            if left_ms <= self.settings.ping_interval_ms:
                self.scheduler.after(max(left_ms, 0), lambda: self._expire(connection))

    def _expire(self, connection: Connection) -> None:
        """Close it, or wait on if its identity was confirmed again meanwhile and expires later now."""
        identity = connection.identity
        if identity is None or connection.is_closed:
            return
        if identity.expires_at <= self._clock.now_ms():
            connection.expire()
        else:
            self._expire_in_time(connection, identity)
