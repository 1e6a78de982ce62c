"""The shards of a cluster, seen from a gateway: one link to the leader of each shard that the registry lists.

::

    connections ── ShardLinks ──▶ home_of(user) ──▶ ShardLink 0 ──▶ the replica that leads shard 0

A user's sessions and requests go to the user's home shard. A public id that is a canonical decimal is its own number.
The gateway asks a shard once for the number of any other public id, and remembers the answer.

The registry names the leader of each shard. When the leader changes, the gateway asks the new one for new sessions, as
after any link that ended (``link``). Clients stay connected. While a shard cannot be reached, requests of its users
that need it are answered with ``unavailable``, and live rooms work. This holds for any length of time, also while no
shard can be reached. The gateway closes a share of its connections only after it was frozen itself (B18).

A cluster without shards has rooms only: ``alone`` has the sessions until the registry lists a shard.

Bounds: at most ``NUMBERS_MAX`` numbers of users are remembered; beyond that the oldest are dropped.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pixiu.im.draft import UnknownUsers
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.metric import Metric
from pixiu.model.names import own_number
from pixiu.roles.gateway.link import NodeLink
from pixiu.roles.gateway.link_names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Actor, Params
    from pixiu.links.leaders import Leader, Leaders
    from pixiu.machines.room_link import Ack, Frame
    from pixiu.model.metric import Snapshot
    from pixiu.model.session import LogoutCause, Session
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway
    from pixiu.roles.gateway.needs import Done, SessionSink
    from pixiu.roles.gateway.room_sessions import RoomSessions

__all__ = ["METRICS", "ROSTER_SHARD", "Closes", "DialShard", "ShardLink", "ShardLinks", "home_of"]

log = logging.getLogger(__name__)

NUMBERS_MAX = 200_000
ROSTER_SHARD = 0
"""The shard that holds every public id."""
RETRY_MS = 500
REJOIN_MS = 1_000
"""How long a connection waits for its next session after a shard that can be reached has refused one."""

METRICS = (
    Metric("pixiu_gateway_shard_up", "gauge", "Whether the leader of a shard can be reached.", ("shard",)),
    Metric("pixiu_gateway_shard_sessions", "gauge", "Sessions at a shard.", ("shard",)),
    Metric("pixiu_gateway_shard_moves_total", "counter", "How often the leader of a shard changed."),
)


def home_of(_user: int) -> int:
    """Return the shard that has a user's inboxes and sessions. A cluster has one shard for now."""
    return 0


class Closes(Protocol):
    """A connection that is being made or is open."""

    def close(self) -> object:
        """Close it without telling the link."""
        ...


class DialShard(Protocol):
    """Begins to connect to the leader of a shard, and tells the link whether that succeeds."""

    def __call__(self, shard: int, leader: Leader, link: NodeLink, /) -> Closes:
        """Return what to close if the leader changes before the connection is open."""
        ...


class ShardLink:
    """The link to one shard, wherever its leader is. ``LinkOwner`` of that link."""

    def __init__(self, shards: ShardLinks, number: int, link_of: Callable[[ShardLink], NodeLink]) -> None:
        self.number = number
        self.leader: Leader | None = None
        self.moves = 0
        self._shards = shards
        self._dialled: Closes | None = None
        self.link = link_of(self)

    def led_by(self, leader: Leader | None) -> None:
        """Take what the registry names as the leader."""
        if leader != self.leader and leader is not None:
            self.moves += self.leader is not None
            self.leader = leader
            log.info(
                "shard_leader_changed",
                extra={"shard": self.number, "replica": leader.name, "epoch": leader.epoch, "address": leader.address},
            )
            self._hang_up()
            self.link.move("another replica leads the shard")

    def dial(self, link: NodeLink) -> None:
        """Connect to the leader."""
        self._hang_up()
        if self.leader is None:
            self._shards.scheduler.soon(
                lambda: link.lost("the shard has no leader") if self.leader is None else None
            )  # fmt: skip
        else:
            self._dialled = self._shards.dial(self.number, self.leader, link)

    def close(self) -> None:
        """End the link for good."""
        self.link.stop()
        self._hang_up()

    def _hang_up(self) -> None:
        dialled, self._dialled = self._dialled, None
        if dialled is not None and not self.link.is_up:
            dialled.close()

    # Called by its link.

    def cut_off(self) -> None:
        """The sessions at this shard are over."""
        self._shards.cut_off(self)

    def reached(self) -> None:
        """The leader has accepted this gateway: users of the shard can get sessions."""
        self._shards.reached(self)

    def send_all_away(self) -> None:
        """Do nothing: clients stay connected without the shard, since live rooms do not need it."""

    def counted(self) -> tuple[int, Mapping[str, object]]:
        """Return how many sessions are at this shard, and what the gateway has counted."""
        return self.link.sessions, self._shards.counts()


class ShardLinks:
    """``Messaging`` over all shards, for the sessions of one gateway."""

    def __init__(
        self,
        name: str,
        leaders: Leaders,
        dial: DialShard,
        clock: Clock,
        scheduler: Scheduler,
        settings: GatewaySettings,
        *,
        alone: RoomSessions,
    ) -> None:
        """``name`` must differ from that of every other gateway; ``alone`` has the sessions while there is no shard."""
        self.names = LinkNames()
        self.dial = dial
        self.scheduler = scheduler
        self.receive_room: Callable[[str, Frame], Ack | None] = lambda _source, _frame: None
        """Takes the frames of groups' rooms, which come from the shards."""
        self.shards: dict[int, ShardLink] = {}
        self._name = name
        self._leaders = leaders
        self._clock = clock
        self._settings = settings
        self._alone = alone
        self._gateway: Gateway | None = None
        self._is_open = False
        self._will_rejoin = False
        self._homes: dict[int, ShardLink] = {}
        self._users: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    # Start and stop.

    def start(self, gateway: Gateway) -> None:
        """Follow the registry, and connect to the leaders."""
        self._gateway = gateway
        gateway.when_not_rejoined = lambda _connection: self._rejoin_later()
        gateway.when_left.append(lambda connection: self._forget(connection.actor.session_id))
        gateway.when_rejoined.append(lambda _connection, before: self._forget(before))
        self._leaders.when_changed = self._look
        self._leaders.start()

    def open(self, *, is_open: bool = True) -> None:
        """Tell the shards whether this gateway accepts clients."""
        self._is_open = is_open
        for each in self.shards.values():
            each.link.open(is_open=is_open)

    def stop(self) -> None:
        """Close all links."""
        self._leaders.stop()
        for each in self.shards.values():
            each.close()

    @property
    def count(self) -> int:
        """How many shards the cluster has; 0 while it has rooms only."""
        return self._leaders.count

    def problems(self) -> dict[str, str]:
        """What cannot be reached: ``registry``, or ``shards`` with their numbers."""
        if not self._leaders.is_known:
            return {"registry": "the registry has not been read"}
        down = [str(each.number) for each in self.shards.values() if not each.link.is_up]
        if not down:
            return {}
        hint = "; do they use the same secret?" if len(down) == self.count else ""
        return {"shards": f"cannot be reached: shard {', '.join(down)} of {self.count}{hint}"}

    @property
    def is_useful(self) -> bool:
        """Can any client be served?"""
        return self._leaders.is_known and (not self.count or any(each.link.is_up for each in self.shards.values()))

    def snapshot(self) -> Snapshot:
        """The present values, by metric name."""
        return {
            "pixiu_gateway_shard_up": {(str(k),): int(each.link.is_up) for k, each in self.shards.items()},
            "pixiu_gateway_shard_sessions": {(str(k),): each.link.sessions for k, each in self.shards.items()},
            "pixiu_gateway_shard_moves_total": sum(each.moves for each in self.shards.values()),
        }

    def counts(self) -> Mapping[str, object]:
        """What the gateway has counted since its start, for the statistics of the shards."""
        return {} if self._gateway is None else self._gateway.counters.numbers()

    def name_of(self, actor: Actor) -> str:
        """The public id of the acting user."""
        return self._users.get(actor.session_id) or self._alone.name_of(actor)

    # ``Messaging``, called by the gateway.

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Perform an action at the shard of the session."""
        home = self._homes.get(actor.session_id)
        if home is not None:
            home.link.act(actor, action, params, done)
        elif self._alone.has(actor.session_id):
            self._alone.act(actor, action, params, done)
        else:
            done(_unavailable())

    def call(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Perform an action without a session, over HTTP. A publisher that is no user has the number 0."""
        at = self._home(actor.user)
        if at is None:
            done(self._no_shard())
        else:
            at.link.call(actor, action, params, done)

    def connect(
        self,
        user: str,
        platform: str,
        device: str,
        sink: SessionSink,
        done: Callable[[Session | PixiuError], object],
        *,
        cursor: int = 0,
    ) -> None:
        """Log a client in."""
        if not self._leaders.is_known:
            done(Unavailable("the registry cannot be reached", retry_after_ms=RETRY_MS))
            return
        if not self.count:
            self._alone.connect(user, platform, device, sink, done, cursor=cursor)
            return

        def found(number: int | PixiuError) -> None:
            at = None if isinstance(number, PixiuError) else self._home(number)
            if isinstance(number, PixiuError):
                done(number)
            elif at is None:
                done(_unavailable())
            else:
                logged_in = partial(self._logged_in, at, user, done)
                at.link.connect(user, platform, device, sink, logged_in, cursor=cursor)

        number = own_number(user)
        if number is None:
            self.find_user(user, found)
        else:
            found(number)

    def find_user(self, user: str, done: Callable[[int | PixiuError], object]) -> None:
        """Call ``done`` with the number of a user, or with ``UnknownUsers`` or ``Unavailable``."""
        known = self._numbers.get(user)
        at = self.shards.get(ROSTER_SHARD)
        if known is not None:
            done(known)
            return
        if at is None:
            done(self._no_shard())
            return

        def found(number: int | PixiuError) -> None:
            if isinstance(number, PixiuError):
                done(number)
            elif not number:
                done(UnknownUsers([user]))
            else:
                self._numbers[user] = number  # a user's number never changes
                if len(self._numbers) > NUMBERS_MAX:
                    del self._numbers[next(iter(self._numbers))]
                done(number)

        at.link.find(user, found)

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        """End a session: its connection is gone."""
        home = self._homes.pop(session_id, None)
        if home is not None:
            home.link.disconnect(session_id, cause)
        else:
            self._alone.disconnect(session_id, cause)

    def ack(self, session_id: int, cursor: int) -> bool:
        """A client holds everything through this cursor. False: its session is not known."""
        home = self._homes.get(session_id)
        return home.link.ack(session_id, cursor) if home is not None else self._alone.ack(session_id, cursor)

    def heartbeat(self, session_id: int) -> bool:
        """A client lives. False: its session is not known."""
        home = self._homes.get(session_id)
        return home.link.heartbeat(session_id) if home is not None else self._alone.heartbeat(session_id)

    def writing(self, session_id: int) -> None:
        """Messages that were handed over have not reached the client yet."""
        home = self._homes.get(session_id)
        if home is not None:
            home.link.writing(session_id)

    # Called by the links.

    def cut_off(self, shard: ShardLink) -> None:
        """End the sessions at a shard; their connections stay open."""
        over = {session_id for session_id, home in self._homes.items() if home is shard}
        if over and self._gateway is not None:
            self._gateway.cut_off_those(lambda connection: connection.actor.session_id in over)
        for session_id in over:
            del self._homes[session_id]

    def reached(self, shard: ShardLink) -> None:
        """Ask a shard for new sessions for the connections that have lost theirs."""
        if self._gateway is not None:
            percent = self._settings.resync_percent if shard.link.was_frozen else 0
            self._gateway.rejoin_those(partial(self._is_at, shard), close_percent=percent)

    # Steps.

    def _look(self) -> None:
        """Take over what the registry says now."""
        had_none = not self.shards
        for number in range(len(self.shards), self.count):
            made = self.shards[number] = ShardLink(self, number, self._link)
            made.link.start(made)
            made.link.open(is_open=self._is_open)
        if had_none and self.shards:
            self._leave_alone()
        for number, each in self.shards.items():
            each.led_by(self._leaders.of(number))

    def _leave_alone(self) -> None:
        """The cluster has shards now: sessions that were for rooms only end, and ``reached`` asks for others."""
        over: list[int] = []

        def is_over(connection: Connection) -> bool:
            session_id = connection.actor.session_id
            if connection.session is None or not self._alone.has(session_id):
                return False
            over.append(session_id)
            return True

        if self._gateway is not None:
            self._gateway.cut_off_those(is_over)
        for session_id in over:
            self._alone.disconnect(session_id, "server")

    def _rejoin_later(self) -> None:
        if not self._will_rejoin:
            self._will_rejoin = True
            self.scheduler.after(REJOIN_MS, self._rejoin)

    def _rejoin(self) -> None:
        """Ask again for connections whose request for a session was refused. ``reached`` does it for other shards."""
        self._will_rejoin = False
        for each in self.shards.values():
            if each.link.is_up and self._gateway is not None:
                self._gateway.rejoin_those(partial(self._is_at, each))

    def _link(self, shard: ShardLink) -> NodeLink:
        link = NodeLink(
            f"{self._name}.{shard.number}", shard.dial, self._clock, self.scheduler, self._settings,
            names=self.names, notices_silence=True,
        )  # fmt: skip
        link.receive_room = lambda source, frame: self.receive_room(f"{source}.{shard.number}", frame)
        return link

    def _logged_in(
        self, at: ShardLink, user: str, done: Callable[[Session | PixiuError], object], session: Session | PixiuError
    ) -> None:
        if not isinstance(session, PixiuError):
            self._homes[session.session_id] = at
            self._users[session.session_id] = user
        done(session)
        if not isinstance(session, PixiuError) and session.session_id not in self._homes:
            self._users.pop(session.session_id, None)  # the client went away while it logged in

    def _forget(self, session_id: int) -> None:
        self._homes.pop(session_id, None)
        self._users.pop(session_id, None)
        self._alone.disconnect(session_id)

    def _home(self, user: int) -> ShardLink | None:
        return self.shards.get(home_of(user))

    @staticmethod
    def _is_at(shard: ShardLink, connection: Connection) -> bool:
        return home_of(connection.actor.user) == shard.number

    def _no_shard(self) -> PixiuError:
        if self._leaders.is_known and not self.count:
            return Unavailable("this cluster has no shard, so it stores nothing; live rooms work")
        return _unavailable()


def _unavailable() -> Unavailable:
    return Unavailable("the shard of this user cannot be reached", retry_after_ms=RETRY_MS)
