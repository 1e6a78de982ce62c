"""A carrier in simulated time, on a log and stores in memory, and short ways to write records."""

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from pixiu.backends.memory.stores import MemoryStores
from pixiu.config.messaging import CarrierSettings
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.failure import Failure
from pixiu.model.inbox import NEED_ALL, Entry
from pixiu.model.pixiu_pb2 import (
    DELETE,
    GROUP,
    P2P,
    SYSTEM,
    TEXT,
    ChatType,
    ContactChanged,
    GroupChanged,
    InboxOpened,
    Ledger,
    MemberChanged,
    MsgChat,
    Push,
    ReadThrough,
    Recalled,
    Receipt,
    Record,
    Rows,
    Task,
    UserChanged,
)
from pixiu.ports.log import MAIN, Appended, LogRecord
from pixiu.ports.stores import Lane, Stores
from pixiu.roles.carrier.appliers import Appliers
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.carrier.reached import Limits
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    from pixiu.model.wake import Wake
    from pixiu.roles.carrier.apply_timelines import Said

AT = 1_760_000_001_000
ANNA, BERT, CARL = 1, 2, 3
ALL = [ANNA, BERT, CARL]


def chat(
    from_id: int, to_id: int, text: str = "hi", *, kind: ChatType = P2P, ref: int = 0, is_delete: bool = False
) -> bytes:
    return MsgChat(
        fromId=from_id,
        toId=to_id,
        tm=AT,
        data=text.encode(),
        chatType=kind,
        refMessageId=ref,
        msgType=DELETE if is_delete else TEXT,
    ).SerializeToString()


def user(number: int, public_id: str = "", *, at: int = AT, name: str = "") -> Record:
    public_id = public_id or str(number)
    return Record(at=at, user=UserChanged(user=number, public_id=public_id, name=name or public_id))


def opened(number: int, platform: str) -> Record:
    return Record(at=AT, inbox=InboxOpened(user=number, platform=platform))


def send(actor: int, to: int, text: str = "hi", *, options: int = NEED_ALL, session: int = 0, at: int = AT) -> Record:
    return Record(at=at, actor=actor, to=to, chat=chat(actor, to, text), options=options, session=session)


def from_system(to: int, text: str = "welcome") -> Record:
    return Record(at=AT, to=to, chat=chat(0, to, text, kind=SYSTEM), options=NEED_ALL)


def say(actor: int, group: int, text: str = "hi", *, options: int = NEED_ALL) -> Record:
    return Record(at=AT, actor=actor, group=group, chat=chat(actor, group, text, kind=GROUP), options=options)


def group_made(number: int, owner: int, members: Iterable[int] = (), *, is_large: bool = False) -> Record:
    change = GroupChanged(
        group=number, public_id=f"g{number}", name="A group", owner=owner, members=members, is_large=is_large
    )
    notice = chat(owner, number, "created", kind=SYSTEM)
    return Record(at=AT, actor=owner, group=number, chat=notice, options=3, group_info=change)


def member(group: int, number: int, op: MemberChanged.Op, *, actor: int = 0, is_told: bool = True) -> Record:
    record = Record(at=AT, actor=actor or number, group=group, member=MemberChanged(group=group, user=number, op=op))
    if is_told:
        record.chat = chat(actor or number, group, "changed", kind=SYSTEM)
        record.options = 3
    return record


def linked(number: int, peer: int, *, is_linked: bool = True) -> Record:
    change = ContactChanged(user=number, peer=peer, is_linked=is_linked)
    return Record(at=AT, actor=number, to=peer, chat=chat(number, peer, "", kind=SYSTEM), options=3, contact=change)


def recall(actor: int, message_id: int, *, to: int = 0, group: int = 0) -> Record:
    recalled = Recalled(message_id=message_id, to=to, group=group)
    setattr(recalled, "from", actor)
    said = chat(actor, to or group, "", kind=P2P if to else GROUP, ref=message_id, is_delete=True)
    return Record(at=AT, actor=actor, to=to, group=group, chat=said, options=3, recalled=recalled)


def receipt(sender: int, peer: int, ids: Iterable[int], *, is_read: bool = False, at: int = AT + 5) -> Record:
    change = Receipt(peer=peer, message_ids=ids, is_delivered=not is_read, is_read=is_read)
    setattr(change, "from", sender)
    return Record(at=at, actor=peer, receipt=change)


def read(number: int, through: int, *, peer: int = 0, group: int = 0) -> Record:
    return Record(at=AT, actor=number, read=ReadThrough(user=number, peer=peer, group=group, through=through))


def push(users: Iterable[int], *, options: int = NEED_ALL, **more: object) -> Record:
    what = Push(users=users, **more)  # type: ignore[arg-type]
    return Record(at=AT, chat=chat(0, 0, "pushed", kind=SYSTEM), options=options, push=what)


def rows(*ranges: tuple[int, int, int, int]) -> Rows:
    """(user, platform index, first, through)."""
    columns = list(zip(*ranges, strict=True)) or [(), (), (), ()]
    return Rows(user=columns[0], platform=columns[1], first=columns[2], through=columns[3])


def ledger(platforms: list[str], **kinds: Any) -> Record:
    return Record(at=AT, ledger=Ledger(platforms=platforms, **kinds))


class Applied:
    """Appliers over stores in memory, without a carrier: every record is numbered and applied at once."""

    def __init__(self, *records: Record, stores: Stores | None = None, limits: Limits | None = None) -> None:
        self.stores = stores if stores is not None else MemoryStores()
        self.appliers = Appliers(self.stores, limits or Limits())
        self.log: list[LogRecord] = []
        for record in records:
            self.apply(record)

    def apply(self, record: Record, *, key: bytes = b"") -> int:
        """Returns its message_id."""
        logged = self.number(record, key=key)
        self.appliers.apply(logged, record)
        return logged.message_id

    def number(self, record: Record, *, key: bytes = b"") -> LogRecord:
        """What the log would make of it, as the next one."""
        event_id = len(self.log) + 1
        logged = LogRecord(event_id, (1 << 60) + event_id, MAIN, record.SerializeToString(), key, record.at)
        self.log.append(logged)
        return logged

    def waiting(self, number: int, platform: str = "first") -> list[int]:
        """The message ids in an inbox."""
        return [entry.message_id for entry in self.entries(number, platform)]

    def entries(self, number: int, platform: str = "first") -> list[Entry]:
        return self.stores.inboxes.after(number, platform, 0, 100_000).entries

    def body(self, message_id: int) -> MsgChat:
        return MsgChat.FromString(self.stores.bodies.get([message_id])[message_id])


def people(*more: Record, limits: Limits | None = None) -> Applied:
    """Three users, and what else is said."""
    return Applied(*map(user, ALL), *more, limits=limits)


def trio(*more: Record) -> Applied:
    """A group 7 of Anna (owner), Bert and Carl; its notice has been acked."""
    world = people(group_made(7, ANNA, [BERT, CARL]))
    world.apply(ledger(["first"], acked=rows(*((number, 0, 1, 1) for number in ALL))))
    for record in more:
        world.apply(record)
    return world


class Down:
    """A port that can be switched off: then every call fails."""

    def __init__(self, port: object) -> None:
        self._port = port
        self.is_down = False
        self.calls_left: int | None = None
        """Fail once, after this many more calls."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._port, name)

        def call(*args: object, **kwargs: object) -> object:
            if self.calls_left is not None:
                self.calls_left -= 1
                if self.calls_left < 0:
                    self.calls_left = None
                    raise Unavailable("the store hiccuped")
            if self.is_down:
                raise Unavailable("the store is down")
            return method(*args, **kwargs)

        return call


class World:
    """A carrier that can die and be followed by another. Stores fall back to their last commit then."""

    def __init__(self, settings: CarrierSettings | None = None, *, limits: Limits | None = None) -> None:
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.log = MemoryLog(self.clock, self.scheduler)
        self.settings = settings or CarrierSettings(commit_ms=50)
        self.limits = limits or Limits()
        self.stores: Stores = CommittedStores()
        self.wakes: list[Wake] = []
        self.told: list[tuple[int, dict[str, object]]] = []
        self.said: list[Said] = []
        self.performed: list[Task] = []
        self.answer: Callable[[Task], Failure | None] = lambda task: None
        self.wake: Callable[[list[Wake]], object] = self.wakes.extend
        self.is_writer_busy = False
        self.is_serving = True
        self.carrier = self.new_carrier()

    def new_carrier(self) -> Carrier:
        return Carrier(
            self.stores,
            self.log,
            self.clock,
            self.scheduler,
            self.settings,
            wake=lambda wakes: self.wake(wakes),
            tell=lambda number, event: self.told.append((number, event)),
            say=self.said.extend,
            notify=self.perform,
            general=self.perform,
            schedule=lambda record, parsed, done: done(None),
            limits=self.limits,
            is_writer_busy=lambda: self.is_writer_busy,
            is_serving=lambda: self.is_serving,
        )

    def perform(self, task: Task, done: Callable[[Failure | None], None]) -> None:
        self.performed.append(task)
        done(self.answer(task))

    def start(self, *records: Record) -> Self:
        for record in records:
            self.append(record)
        self.carrier.start()
        self.run()
        return self

    def append(self, record: Record | bytes, *, key: bytes = b"") -> None:
        payload = record if isinstance(record, bytes) else record.SerializeToString()
        self.log.append(MAIN, payload, self._appended, key=key)

    @staticmethod
    def _appended(result: Appended | PixiuError) -> None:
        assert isinstance(result, Appended), result

    def write(self, *records: Record) -> list[int]:
        """Append, let it be applied, and return the message ids."""
        before = len(self.log.records)
        for record in records:
            self.append(record, key=b"write:%d" % len(self.log.records))
        self.run()
        return [record.message_id for record in self.log.records[before:] if record.topic == MAIN]

    def run(self, ms: float = 1) -> None:
        self.scheduler.run_for(ms)

    def crash(self) -> None:
        """The process ends: what was not committed is gone, and another carrier takes over."""
        self.scheduler.close()
        self.scheduler = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.log.move(self.scheduler)
        self.stores = cast("CommittedStores", self.stores).committed()
        self.carrier = self.new_carrier()
        self.carrier.start()


class CommittedStores(MemoryStores):
    """Stores in memory that remember what they were at the last commit."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: MemoryStores | None = None
        self.commits = 0

    def commit(self, applied: Mapping[Lane, int]) -> None:
        super().commit(applied)
        self.commits += 1
        self._kept = None
        self._kept = copy.deepcopy(self)

    def committed(self) -> "CommittedStores":
        """As they were; empty if there was no commit."""
        return cast("CommittedStores", copy.deepcopy(self._kept)) if self._kept is not None else CommittedStores()


def content(stores: Stores) -> dict[str, object]:
    """Everything in stores of memory, for comparison."""
    names = ("users", "contacts", "groups", "inboxes", "bodies", "unread", "keys", "timelines", "recent")
    return {name: _plain(getattr(stores, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, int | str | bytes):
        return value
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_plain(each) for each in value]
    if hasattr(value, "__dict__"):
        return {key: _plain(each) for key, each in vars(value).items()}
    if hasattr(value, "__slots__"):
        return {key: _plain(getattr(value, key)) for key in value.__slots__}
    return value
