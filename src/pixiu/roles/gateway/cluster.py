"""Rooms of a gateway in a cluster: its sessions enter, leave and talk; routers learn of it, brokers answer.

Who is in which room here is this gateway's own table, the truth for everyone else. Each change has the next version,
and goes to every router that asks for the rooms of its partition. A room that a broker sends to and that nobody here is
in is told back (negative feedback), at most once in a while.

What a session says goes to the room's proxy with an id from here, and comes back from a broker like what others say.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pixiu.im import params as read
from pixiu.im.content import plain_text, send_id, send_key
from pixiu.im.params import check_known
from pixiu.links.telling import Telling
from pixiu.machines.links.messages import FROM_GATEWAY, SESSIONS, AskRoutes, RoomAck, RoomFrame, Want
from pixiu.machines.links.news import NewsRules
from pixiu.machines.room_bodies import LINK_CLASSES, message_body
from pixiu.machines.rooms import room_number
from pixiu.machines.routes import RouteRow, nobody
from pixiu.machines.scheduling import Priority
from pixiu.model.errors import NotAllowed, NotFound, PixiuError, RequestError, TooLarge
from pixiu.model.names import new_public_id
from pixiu.model.partitions import SLICES, is_slice
from pixiu.roles.gateway.rates import Buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.config.rooms import RoomSettings
    from pixiu.im.draft import Actor, Params
    from pixiu.links.bigrooms import BigRooms
    from pixiu.links.directory import Directory
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.publishing import Publishing, TalkMode
    from pixiu.machines.bigrooms import BigRoom
    from pixiu.machines.room_link import Ack, Frame
    from pixiu.machines.rooms import Fan
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.gateway.needs import Done

__all__ = ["ClusterRooms"]

log = logging.getLogger(__name__)

FEEDBACK_MS = 5_000
"""A room that nobody is in is told back at most so often."""
FEEDBACK_MAX = 10_000
FEW = 3
"""News of a room with fewer sessions here goes three times: no later news would repair it (X37)."""
OFFER_MS = 1_000
ROOM_PARAMS = frozenset({"room"})
SAY_PARAMS = frozenset({"room", "text", "class", "priority", "send_id"})
PRIORITY_NAMES = {name: name for name in LINK_CLASSES}
GROUP_PREFIX = "g:"

_encode = msgspec.json.Encoder().encode


class ClusterRooms:
    """``enter``, ``leave`` and ``say`` for a ``RoomListening``, and both ways of what follows."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        publishing: Publishing,
        clock: Clock,
        scheduler: Scheduler,
        settings: RoomSettings,
        *,
        user_name: Callable[[Actor], str],
        new_life: Callable[[], int],
        reliable_mode: TalkMode = "acked",
        rules: NewsRules | None = None,
        bigs: BigRooms | None = None,
    ) -> None:
        """``bigs``: the rooms that are big."""
        told = partial(Telling, endpoint=endpoint, clock=clock, scheduler=scheduler, new_life=new_life,
                       rules=rules or NewsRules())  # fmt: skip
        self._news = told(FROM_GATEWAY, listeners=directory.follow("router"))
        self._here_news = told(SESSIONS, listeners=directory.follow("relay"))
        self._tellings = {telling.kind: telling for telling in (self._news, self._here_news)}
        self._users: dict[int, int] = {}
        """The user of each session that has been in a room."""
        self.table = self._news.table
        self.feedback = 0
        """How often a broker had to be told that nobody is in a room."""
        self.receive: Callable[[str, Frame], Ack | None] = lambda _source, _frame: None
        """Where frames of brokers go: ``RoomListening.receive``."""
        self.sessions_in: Callable[[int], Sequence[int]] = lambda _room: ()
        """Who listens here: ``Listeners.sessions``."""
        self.join: Callable[[int, int, str, int, bool], object] = lambda *_words: None
        """Let a session listen in a slice: room, slice, name, session, and whether both are told of."""
        self.overlaps_no_more: Callable[[int, range], object] = lambda _room, _pieces: None
        self.joined: Callable[[int], object] = lambda _version: None
        """Told when all big rooms through a version of their record are joined."""
        self._endpoint = endpoint
        self._directory = directory
        self._publishing = publishing
        self._clock = clock
        self._scheduler = scheduler
        self._settings = settings
        self._user_name = user_name
        self._reliable_mode: TalkMode = reliable_mode
        self._rooms_of: dict[int, dict[int, str]] = {}
        self._members: dict[int, int] = {}
        self._told_back: OrderedDict[int, int] = OrderedDict()
        self._timer: Timer | None = None
        self._bigs = bigs
        self._bigs_timer: Timer | None = None
        self._whole: dict[int, BigRoom] = {}
        """Big rooms of which this gateway tells routers as rooms, too."""
        self._pieces: dict[tuple[int, int], int] = {}
        """By room and session: the slice that it is in."""
        self._here: dict[int, int] = {}
        """Sessions of this gateway in each big room."""
        self._told: dict[int, dict[int, int]] = {}
        """What brokers said of the slices of a big room: their sessions."""
        if bigs is not None:
            bigs.when_changed.append(self._bigs_changed)
        self._rates = Buckets("messages in rooms", per_second=settings.says_per_second, burst=settings.say_burst)
        endpoint.on(RoomFrame, self._frame)
        endpoint.on(Want, self._want)
        endpoint.on(AskRoutes, self._ask)

    def start(self) -> None:
        """Offer what is here to routers that have not asked."""
        self._offer()

    def stop(self) -> None:
        """No more."""
        for timer in (self._timer, self._bigs_timer):
            if timer is not None:
                timer.cancel()

    # What sessions do.

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """One of enter, leave and say."""
        try:
            if action == "say":
                self._say(actor, params, done)
            else:
                done(self._enter(actor, params) if action == "enter" else self._leave(actor, params))
        except PixiuError as error:
            done(error)

    def session_gone(self, session_id: int) -> None:
        """A connection is over: it leaves every room."""
        for room, name in list(self._rooms_of.pop(session_id, {}).items()):
            self._change_all(room, name, 0, session_id)
        self._went(session_id)

    def _enter(self, actor: Actor, params: Params) -> dict[str, object]:
        name = self._room(actor, "enter", params)
        self._take_rate(actor)
        room, mine = room_number(name), self._rooms_of.setdefault(actor.session_id, {})
        if room not in mine:
            if len(mine) >= self._settings.rooms_per_session_max:
                limit = self._settings.rooms_per_session_max
                raise TooLarge(f"you are in {len(mine)} rooms; you may be in {limit}")
            members, most = self._count_of(room), self._settings.sessions_max
            most = most if self._big(room) is None else most * SLICES
            if members >= most:
                raise TooLarge(f"the room has {members} sessions; it may have {most}")
            mine[room] = name
            if actor.session_id not in self._users:
                self._came(actor.user, actor.session_id)
            big = self._big(room)
            if big is None or big.has_whole(self._clock.now_ms()):
                self._change(room, name, actor.user, actor.session_id, is_in=True)
            if big is not None:
                self._join(big, actor.user, actor.session_id)
        return {"room": name, "members": self._count_of(room)}

    def _leave(self, actor: Actor, params: Params) -> dict[str, object]:
        name = self._room(actor, "leave", params)
        room, mine = room_number(name), self._rooms_of.get(actor.session_id, {})
        if mine.pop(room, None) is not None:
            self._change_all(room, name, actor.user, actor.session_id)
        return {"room": name, "members": self._count_of(room)}

    def _say(self, actor: Actor, params: Params, done: Done) -> None:
        name = self._room(actor, "say", params)
        text = read.required(params, "text")
        if type(text) is not str:
            raise RequestError(f"text must be a text, not {read.kind_of(text)}")
        token = send_id(params)
        send_key(actor.user, token)  # checks its size
        talk_class = read.choice(params, "class", {"live": "live", "reliable": "reliable"}, "live")
        priority = read.choice(params, "priority", PRIORITY_NAMES, "normal")
        plain_text(text, self._settings.message_bytes_max)
        self._take_rate(actor)
        room = room_number(name)
        if room not in self._rooms_of.get(actor.session_id, {}):
            raise NotAllowed(f"enter room {name!r} before you talk in it")
        message_id, at = self._publishing.next_id(), self._clock.now_ms()
        body = message_body(message_id, self._user_name(actor), name, at, text, token, priority)
        answer = {"room": name, "message_id": str(message_id), "at": at, "members": self._count_of(room)}
        mode: TalkMode = "live" if talk_class == "live" else self._reliable_mode
        self._publishing.publish(
            room, message_id, body, mode, lambda error: done(answer if error is None else error),
            sender=actor.session_id, priority=LINK_CLASSES[priority],
        )  # fmt: skip

    def _room(self, actor: Actor, action: str, params: Params) -> str:
        if type(params) is not dict:
            raise RequestError(f"{action} takes an object of params, not {type(params).__name__}")
        check_known(action, params, SAY_PARAMS if action == "say" else ROOM_PARAMS)
        if not actor.session_id:
            raise NotAllowed(f"{action} is done over a connection that stays; this call has none")
        name = read.public_id_text(params.get("room"), "room")
        if name.startswith(GROUP_PREFIX):
            raise NotFound(f"there is no group {name.removeprefix(GROUP_PREFIX)!r} here")
        return new_public_id(name, what="room")

    def _take_rate(self, actor: Actor) -> None:
        error = self._rates.take(str(actor.user), self._clock.monotonic_us())
        if error is not None:
            raise error

    def _count_of(self, room: int) -> int:
        """How many are in a room, as the broker said last; at least those who are here."""
        big = self._big(room)
        if big is None:
            return max(self._members.get(room, 0), self.table.count(room))
        told = self._told.get(room)
        # Users are spread evenly: the slices that are heard of here speak for the others.
        return max(self._here.get(room, 0), round(sum(told.values()) * SLICES / len(told)) if told else 0)

    # Big rooms.

    def _big(self, room: int) -> BigRoom | None:
        return None if self._bigs is None else self._bigs.map.rooms.get(room)

    def _join(self, big: BigRoom, user: int, session_id: int) -> None:
        """A session of a big room is in its slice; it listens there when its request is answered."""
        piece = big.slice(user)
        if self._pieces.get((big.number, session_id)) != piece:
            self._pieces[big.number, session_id] = piece
            self._here[big.number] = self._here.get(big.number, 0) + 1
            self._change(piece, big.name, user, session_id, is_in=True)
            self.join(big.number, piece, big.name, session_id, big.has_whole(self._clock.now_ms()))

    def _change_all(self, room: int, name: str, user: int, session_id: int) -> None:
        """A session has left a room, and its slice."""
        piece = self._pieces.pop((room, session_id), None)
        if piece is None or self.table.has(room, session_id):
            self._change(room, name, user, session_id, is_in=False)
        if piece is not None:
            self._change(piece, name, user, session_id, is_in=False)
            self._here[room] -= 1
            if not self._here[room]:
                del self._here[room]
                self._told.pop(room, None)

    def _bigs_changed(self) -> None:
        """Rooms have become big, or are so for good: sessions that are in them go along."""
        assert self._bigs is not None
        now_ms, record = self._clock.now_ms(), self._bigs.map
        due = []
        for big in record.rooms.values():
            for row in self.table.of(big.number):
                self._join(big, row.user, row.session_id)
            if big.has_whole(now_ms):
                self._whole[big.number] = big
                if big.clean_at_ms:
                    due.append(big.clean_at_ms - now_ms)
            elif self._whole.pop(big.number, None) is not None or self.table.of(big.number):
                for row in self.table.of(big.number):
                    self._change(row.room, row.name, row.user, row.session_id, is_in=False)
                self.overlaps_no_more(big.number, big.rooms)
        self.joined(record.version + 1)
        if self._bigs_timer is not None:
            self._bigs_timer.cancel()
        if due:
            self._bigs_timer = self._scheduler.after(max(min(due), 1), self._bigs_changed)

    def _told_of(self, message: RoomFrame) -> RoomFrame:
        """Counts of a slice become those of its room, before sessions see them."""
        fans = message.frame.fans
        if not any(is_slice(fan.room) and not fan.message_id for fan in fans):
            return message
        return RoomFrame(message.frame._replace(fans=[self._whole_counts(fan) for fan in fans]))

    def _whole_counts(self, fan: Fan) -> Fan:
        if not is_slice(fan.room) or fan.message_id:
            return fan
        try:
            told = msgspec.json.decode(fan.body)
            if told.get("push") != "presence" or "members" not in told:
                return fan
            room = room_number(str(told["room"]))
            self._told.setdefault(room, {})[fan.room] = int(told["members"])
            scale = int(told["members"]) / max(int(told.get("users", 0)), 1)
            members = self._count_of(room)
        except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError):
            return fan
        return fan._replace(body=_encode({**told, "members": members, "users": round(members / scale)}))

    # News to routers.

    def _change(self, room: int, name: str, user: int, session_id: int, *, is_in: bool) -> None:
        row = RouteRow(room, name, user, session_id, self._endpoint.boot, self._news.next_version(), is_in)
        count = self.table.count(room) + (1 if is_in else -1)
        self._news.tell(row, is_hedged=count < FEW)
        if not self.table.count(room):
            self._members.pop(room, None)

    def _came(self, user: int, session_id: int) -> None:
        """A session is in its first room: relays learn where it is."""
        version = self._here_news.next_version()
        row = RouteRow(user, "", user, session_id, self._endpoint.boot, version, is_in=True)
        self._users[session_id] = user
        self._here_news.tell(row, is_hedged=True)

    def _went(self, session_id: int) -> None:
        user = self._users.pop(session_id, None)
        if user is not None:
            version = self._here_news.next_version()
            row = RouteRow(user, "", user, session_id, self._endpoint.boot, version, is_in=False)
            self._here_news.tell(row, is_hedged=False)

    def _offer(self) -> None:
        self._news.offer()
        self._here_news.offer()
        self._timer = self._scheduler.after(OFFER_MS, self._offer)

    def _want(self, boot: int, want: Want) -> None:
        telling = self._tellings.get(want.key.kind)
        if telling is not None:
            telling.want(boot, want)

    def _ask(self, boot: int, ask: AskRoutes) -> None:
        telling = self._tellings.get(ask.key.kind)
        if telling is not None:
            telling.ask(boot, ask)

    # What brokers send.

    def _frame(self, boot: int, message: RoomFrame) -> None:
        message = self._told_of(message)
        ack = self.receive(f"{boot:x}", message.frame)
        if ack is not None:
            self._endpoint.send(boot, RoomAck(ack), Priority.CONTROL)
        for fan in message.frame.fans:
            if not self.sessions_in(fan.room):
                self._nobody(fan.room)
            elif not fan.message_id and not is_slice(fan.room):
                self._note_members(fan.room, fan.body)

    def _nobody(self, room: int) -> None:
        """Negative feedback: whoever the broker thinks is there is not."""
        now_ms = self._clock.monotonic_us() // 1000
        told_ms = self._told_back.get(room)
        if told_ms is not None and now_ms - told_ms < FEEDBACK_MS:
            return
        self._told_back.pop(room, None)
        self._told_back[room] = now_ms
        if len(self._told_back) > FEEDBACK_MAX:
            self._told_back.popitem(last=False)
        self.feedback += 1
        self._news.tell(nobody(room, "", self._endpoint.boot, self._news.next_version()), is_hedged=False)

    def _note_members(self, room: int, body: bytes) -> None:
        """What a broker says of the room itself."""
        try:
            told = msgspec.json.decode(body)
            if told.get("push") == "presence" and isinstance(told.get("members"), int):
                self._members[room] = told["members"]
        except (msgspec.MsgspecError, AttributeError):
            log.warning("a broker's words make no sense", extra={"room": room})
