"""The carriers of a cluster, seen from a gateway: one link for each partition of users.

Every user is at one partition, by the user's number. A public id that is a canonical decimal is its own number; others
are asked for once, at any carrier that can be reached (all know all users), and remembered. What a user does goes to
the user's partition.

The registry says which replica serves a partition. When another replica serves it, the gateway asks there for new
sessions, as after any link that ended (``link``). The connections stay. While no carrier serves a partition, requests
of its users that need one are answered with ``unavailable``. Users of other partitions are not affected, and live rooms
work for all. This holds as well while no carrier at all is reachable, for however long. A share of the connections is
closed only after this gateway was frozen itself (B18).

A cluster without carriers has rooms only: then sessions are ``alone``'s, until carriers come.

Bounds: ``NUMBERS_MAX`` names are remembered, of which the oldest give way.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from pixiu.im.draft import UnknownUsers
from pixiu.model.errors import NotOwner, PixiuError, Unavailable
from pixiu.model.metric import Metric
from pixiu.model.names import own_number
from pixiu.model.partitions import user_partition
from pixiu.roles.gateway.link import NodeLink
from pixiu.roles.gateway.link_names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.im.draft import Actor, Answer, Params
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

__all__ = ["METRICS", "CarrierLinks", "Closes", "DialCarrier", "Partition"]

log = logging.getLogger(__name__)

NUMBERS_MAX = 200_000
BY_TARGET = {"erase_user": "user", "signal": "to"}
"""Actions that are performed at the partition of another user, with the param that names the user."""
RETRY_MS = 500
SETTLE_MS = 1_000
"""How long a client whose user has moved waits for the registry to say where to. If it has not, the client is told to
come again later."""

METRICS = (
    Metric("pixiu_gateway_carrier_up", "gauge", "Whether a partition's carrier can be reached.", ("partition",)),
    Metric("pixiu_gateway_carrier_sessions", "gauge", "Sessions at a partition's carrier.", ("partition",)),
    Metric("pixiu_gateway_carrier_moves_total", "counter", "How often another replica served a partition."),
)


class Closes(Protocol):
    """A connection that is being made, or is there."""

    def close(self) -> object:
        """Give it up; nobody is told."""
        ...


class DialCarrier(Protocol):
    """Begins to connect to the replica that serves a partition, and tells the link what becomes of it."""

    def __call__(self, partition: int, leader: Leader, link: NodeLink, /) -> Closes:
        """Return what is to be closed should another one serve before that is known."""
        ...


class Partition:
    """One partition of users: its link, and who of this gateway's clients is there. ``LinkOwner`` of that link."""

    def __init__(self, carriers: CarrierLinks, number: int, link_of: Callable[[Partition], NodeLink]) -> None:
        self.number = number
        self.leader: Leader | None = None
        self.moves = 0
        self._carriers = carriers
        self._dialled: Closes | None = None
        self.link = link_of(self)

    def led_by(self, leader: Leader | None) -> None:
        """Who serves, by the registry."""
        if leader != self.leader and leader is not None:
            self.moves += self.leader is not None
            self.leader = leader
            log.info("a carrier serves", extra={"partition": self.number, "carrier": leader.name})
            self._hang_up()
            self.link.move("another replica serves")

    def dial(self, link: NodeLink) -> None:
        """Connect to whoever serves."""
        self._hang_up()
        if self.leader is None:
            self._carriers.scheduler.soon(
                lambda: link.lost("nobody serves the partition") if self.leader is None else None
            )
        else:
            self._dialled = self._carriers.dial(self.number, self.leader, link)

    def close(self) -> None:
        """No more."""
        self.link.stop()
        self._hang_up()

    def _hang_up(self) -> None:
        dialled, self._dialled = self._dialled, None
        if dialled is not None and not self.link.is_up:
            dialled.close()

    # What its link tells.

    def cut_off(self) -> None:
        """Its sessions are over."""
        self._carriers.cut_off(self)

    def reached(self) -> None:
        """Its users may come."""
        self._carriers.reached(self)

    def send_all_away(self) -> None:
        """Do nothing: clients stay connected without a carrier, since their live rooms need none."""

    def counted(self) -> tuple[int, Mapping[str, object]]:
        """Connections of this partition's users."""
        return self.link.sessions, {}


class CarrierLinks:
    """``Messaging`` over all partitions, for the sessions of one gateway."""

    def __init__(
        self,
        name: str,
        leaders: Leaders,
        dial: DialCarrier,
        clock: Clock,
        scheduler: Scheduler,
        settings: GatewaySettings,
        *,
        alone: RoomSessions,
    ) -> None:
        """``name`` is this gateway's, like no other's; ``alone`` has the sessions while there are no carriers."""
        self.names = LinkNames()
        self.dial = dial
        self.scheduler = scheduler
        self.receive_room: Callable[[str, Frame], Ack | None] = lambda _source, _frame: None
        """Where frames of groups' rooms go, which carriers have."""
        self.when_reached: Callable[[Partition], object] = lambda _partition: None
        self.partitions: dict[int, Partition] = {}
        self._name = name
        self._leaders = leaders
        self._clock = clock
        self._settings = settings
        self._alone = alone
        self._gateway: Gateway | None = None
        self._is_open = False
        self._is_settling = False
        self._homes: dict[int, Partition] = {}
        self._users: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    # Life.

    def start(self, gateway: Gateway) -> None:
        """Follow the registry, and connect to whoever serves."""
        self._gateway = gateway
        gateway.when_moved = self._moved
        gateway.when_not_rejoined = lambda _connection: self._rejoin_soon()
        gateway.when_left.append(lambda connection: self._forget(connection.actor.session_id))
        gateway.when_rejoined.append(lambda _connection, before: self._forget(before))
        self._leaders.when_changed = self._look
        self._leaders.start()

    def open(self, *, is_open: bool = True) -> None:
        """Clients may come from now on, or no more."""
        self._is_open = is_open
        for each in self.partitions.values():
            each.link.open(is_open=is_open)

    def stop(self) -> None:
        """Hang up on all."""
        self._leaders.stop()
        for each in self.partitions.values():
            each.close()

    @property
    def count(self) -> int:
        """Partitions of users; 0 while there are no carriers."""
        return self._leaders.count

    def problems(self) -> dict[str, str]:
        """What is missing, by part; ``carriers`` names the partitions that nobody serves."""
        if not self._leaders.is_read:
            return {"registry": "the registry has not been read"}
        down = [str(each.number) for each in self.partitions.values() if not each.link.is_up]
        if not down:
            return {}
        hint = "; do they have this secret?" if len(down) == self.count else ""
        return {"carriers": f"out of reach: partition {', '.join(down)} of {self.count}{hint}"}

    @property
    def is_useful(self) -> bool:
        """Can anybody be served?"""
        return self._leaders.is_read and (not self.count or any(each.link.is_up for each in self.partitions.values()))

    def snapshot(self) -> Snapshot:
        """The present values, by metric name."""
        return {
            "pixiu_gateway_carrier_up": {(str(k),): int(each.link.is_up) for k, each in self.partitions.items()},
            "pixiu_gateway_carrier_sessions": {(str(k),): each.link.sessions for k, each in self.partitions.items()},
            "pixiu_gateway_carrier_moves_total": sum(each.moves for each in self.partitions.values()),
        }

    def name_of(self, actor: Actor) -> str:
        """The public id of whoever acts."""
        return self._users.get(actor.session_id) or self._alone.name_of(actor)

    # What the gateway asks for: ``Messaging``.

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Do what a user asks for, at the partition of the session."""
        home = self._homes.get(actor.session_id)
        if action in BY_TARGET and (home is not None or actor.is_admin):
            self.call(actor, action, params, done)
        elif home is not None:
            home.link.act(actor, action, params, self._minding(done))
        elif self._alone.has(actor.session_id):
            self._alone.act(actor, action, params, done)
        else:
            done(_unavailable())

    def call(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """Do what a user without a session asks for, over HTTP. A publisher who is no user, 0, is at the first."""

        def ask(number: int | PixiuError) -> None:
            at = None if isinstance(number, PixiuError) else self._at(number)
            if isinstance(number, PixiuError):
                done(number)
            elif at is None:
                done(self._none() if not self.count else _unavailable())
            else:
                at.link.call(actor._replace(session_id=0), action, params, self._minding(done))

        target = params.get(BY_TARGET.get(action, ""))
        if isinstance(target, str) and (action == "signal" or actor.is_admin):
            self.find_user(target, ask)
        else:
            ask(actor.user)

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
        """A client logs in."""
        if not self._leaders.is_read:
            done(Unavailable("the registry cannot be reached", retry_after_ms=RETRY_MS))
            return
        if not self.count:
            self._alone.connect(user, platform, device, sink, done, cursor=cursor)
            return

        def found(number: int | PixiuError) -> None:
            if isinstance(number, PixiuError):
                done(number)
                return
            at = self._at(number)
            if at is None:
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
        """The number of a user who exists. Raises nothing: ``UnknownUsers`` is told."""
        known = self._numbers.get(user)
        if known is not None:
            done(known)
            return
        own = own_number(user)
        at = self._any_up(user) if own is None else self._at(own)
        if at is None:
            done(self._none() if not self.count else _unavailable())
            return

        def found(number: int | PixiuError) -> None:
            if isinstance(number, PixiuError):
                done(number)
            elif not number:
                done(UnknownUsers([user]))
            else:
                self._numbers[user] = number  # which never changes
                if len(self._numbers) > NUMBERS_MAX:
                    del self._numbers[next(iter(self._numbers))]
                done(number)

        at.link.find(user, found)

    def disconnect(self, session_id: int, cause: LogoutCause = "quit") -> None:
        """A connection is gone."""
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

    def home_of(self, session_id: int) -> Partition | None:
        """Where a session is."""
        return self._homes.get(session_id)

    # What partitions tell.

    def cut_off(self, partition: Partition) -> None:
        """A partition's sessions are over.

        Who logged in there while the partitions doubled may be another one's: that one is not reached anew, and has to
        be asked all the same.
        """
        over = {session_id for session_id, home in self._homes.items() if home is partition}
        strays: list[Connection] = []

        def is_over(connection: Connection) -> bool:
            if connection.actor.session_id not in over:
                return False
            if not self._is_of(partition, connection):
                strays.append(connection)
            return True

        if over and self._gateway is not None:
            self._gateway.cut_off_those(is_over)
        for session_id in over:
            del self._homes[session_id]
        if strays:
            self._rejoin_soon()

    def reached(self, partition: Partition) -> None:
        """A partition is served: connections that lost their session there get another."""
        if self._gateway is not None:
            percent = self._settings.resync_percent if partition.link.was_frozen else 0
            self._gateway.rejoin_those(partial(self._is_of, partition), close_percent=percent)
        self.when_reached(partition)

    # Steps.

    def _look(self) -> None:
        """The registry says something else than before."""
        before = len(self.partitions)
        for number in range(before, self.count):
            made = self.partitions[number] = Partition(self, number, self._link)
            made.link.start(made)
            made.link.open(is_open=self._is_open)
        for number, each in self.partitions.items():
            each.led_by(self._leaders.of(number))
        if self.count > before and self._gateway is not None:
            self._settle_anew(self._gateway)

    def _settle_anew(self, gateway: Gateway) -> None:
        """There are more partitions than before, or carriers at all: some sessions belong elsewhere now."""

        def is_misplaced(connection: Connection) -> bool:
            session_id = connection.actor.session_id
            home = self._homes.get(session_id)
            return self._alone.has(session_id) or (home is not None and home is not self._at(connection.actor.user))

        moving: list[int] = []

        def is_moving(connection: Connection) -> bool:
            if connection.session is None or not is_misplaced(connection):
                return False
            moving.append(connection.actor.session_id)
            return True

        gateway.cut_off_those(is_moving)
        for session_id in moving:
            self.disconnect(session_id, "server")
        for each in self.partitions.values():
            if each.link.is_up:
                self.reached(each)

    def _moved(self, connection: Connection) -> None:
        """A carrier says that a user is elsewhere now. Where, the registry says sooner or later."""
        self._forget_home(connection.actor.session_id)
        self._leaders.refresh()
        self._rejoin_soon()

    def _rejoin_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self.scheduler.after(SETTLE_MS, self._rejoin)

    def _rejoin(self) -> None:
        self._is_settling = False
        for each in self.partitions.values():
            if each.link.is_up and self._gateway is not None:
                self._gateway.rejoin_those(partial(self._is_of, each))

    def _link(self, partition: Partition) -> NodeLink:
        link = NodeLink(
            f"{self._name}.{partition.number}", partition.dial, self._clock, self.scheduler, self._settings,
            names=self.names, notices_silence=True,
        )  # fmt: skip
        link.receive_room = lambda source, frame: self.receive_room(f"{source}.{partition.number}", frame)
        return link

    def _logged_in(
        self, at: Partition, user: str, done: Callable[[Session | PixiuError], object], session: Session | PixiuError
    ) -> None:
        if isinstance(session, PixiuError):
            self._mind(session)
        else:
            self._homes[session.session_id] = at
            self._users[session.session_id] = user
        done(session)
        if not isinstance(session, PixiuError) and session.session_id not in self._homes:
            self._users.pop(session.session_id, None)  # the client went away while it logged in

    def _forget_home(self, session_id: int) -> None:
        self._homes.pop(session_id, None)

    def _forget(self, session_id: int) -> None:
        self._forget_home(session_id)
        self._users.pop(session_id, None)
        self._alone.disconnect(session_id)

    def _minding(self, done: Done) -> Done:
        def answered(answer: Answer | PixiuError) -> object:
            self._mind(answer)
            return done(answer)

        return answered

    def _mind(self, answer: object) -> None:
        """A carrier that does not have the user any more knows a newer count."""
        if isinstance(answer, NotOwner):
            self._leaders.refresh()

    def _is_of(self, partition: Partition, connection: Connection) -> bool:
        return self.count > 0 and user_partition(connection.actor.user, self.count) == partition.number

    def _at(self, user: int) -> Partition | None:
        return self.partitions.get(user_partition(user, self.count)) if self.count else None

    def _any_up(self, key: str) -> Partition | None:
        """One that can be reached: the same for one key as long as it is there."""
        up = [each for each in self.partitions.values() if each.link.is_up]
        return up[crc32(key.encode()) % len(up)] if up else None

    @staticmethod
    def _none() -> PixiuError:
        return Unavailable("this cluster has no carriers: nothing can be stored; rooms work")


def _unavailable() -> Unavailable:
    return Unavailable("the carrier of this user cannot be reached", retry_after_ms=RETRY_MS)
