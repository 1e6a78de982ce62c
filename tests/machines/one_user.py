"""One user in bad weather: links that lose, repeat, delay and reorder, and a client that comes and goes.

Stores are perfect, but an ack takes its time to reach them, as it does through the log. At the end the links heal;
nobody is made to log in again, since a fresh login would hide a stall.
"""

from __future__ import annotations

import heapq
import random
from itertools import islice
from typing import TYPE_CHECKING, assert_never

from pixiu.config import InboxSettings
from pixiu.machines.delivery import (
    AckInbox,
    BodyLost,
    CancelTimer,
    Command,
    Delivery,
    Expire,
    FetchBodies,
    FetchIds,
    Kick,
    Push,
    PushEarly,
    PushTo,
    Resend,
    SetTimer,
    State,
    TimerKind,
)
from pixiu.model.inbox import NEED_ALL, Entry, Page
from pixiu.model.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SETTINGS", "App", "World", "run"]

SETTINGS = InboxSettings(window=8, read_limit=10)
STORM_MS = 12_000
HEAL_MS = 25_000
NOW = 1_760_000_000_000


class App:
    """The client: takes a push only if it holds what comes before, and always answers with the last it holds."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.last = 0
        self.seen: list[int] = []
        self.own: set[int] = set()

    def takes(self, push: Push) -> bool:
        return push.previous_useq <= self.last < push.useq

    def receive(self, push: Push) -> None:
        if self.takes(push):
            self.seen.append(push.useq)
            self.last = push.useq


class World:
    """Events in the order of their time. ``failure`` says what went wrong first."""

    def __init__(self, seed: int, loss: float, delivery: Delivery, app: App) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.loss = loss
        self.repeat = self.rng.choice([0.0, 0.1, 0.3])
        self.delay_ms = self.rng.choice([5, 50, 400])
        self.flap_ms = self.rng.choice([500, 2_000, 8_000])
        self.has_rereads = self.rng.random() < 0.5  # they repair much, and so hide much
        self.has_refusals = self.rng.random() < 0.5  # so do they
        self.with_bodies = self.rng.choice([0.0, 0.0, 0.5, 1.0])
        self.messages = self.rng.choice([4, 20, 60])
        self.is_split = self.rng.random() < 0.3  # each push on its own, so that they overtake each other
        self.delivery = delivery
        self.app = app
        self.entries: dict[int, Entry] = {}
        self.latest = 0
        self.numbers = 0
        self.timer = 0
        self.pushes = 0
        self.failure = ""
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._tie = 0

    # Time and links.

    def at(self, delay: float, call: Callable[[], object]) -> None:
        self._tie += 1
        heapq.heappush(self._heap, (self.now + int(delay), self._tie, call))

    def link(self, call: Callable[[], object], *, is_sure: bool = False) -> None:
        if is_sure or self.rng.random() >= self.loss:
            self.at(self.rng.randint(1, self.delay_ms), call)
        if self.rng.random() < self.repeat:
            self.at(self.rng.randint(1, 3 * self.delay_ms), call)

    def run_until(self, end: int) -> None:
        for _ in range(200_000):
            if not self._heap or self._heap[0][0] > end or self.failure:
                self.now = end
                return
            self.now, _, call = heapq.heappop(self._heap)
            call()
            self.delivery.check(self.entries)
        self.failure = "no end of it"

    # The relay.

    def perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case FetchIds(turn, after, limit):
                    self.link(lambda t=turn, a=after, n=limit: self.read(t, a, n))  # type: ignore[misc]
                case FetchBodies(turn, ids):
                    bodies = dict.fromkeys(ids, b"x")
                    self.link(lambda t=turn, b=bodies: self.answer(lambda: self.delivery.bodies_fetched(t, b)))  # type: ignore[misc]
                case PushTo(session_id, pushes, _) | Resend(session_id, pushes):
                    self.pushes += len(pushes)
                    for frame in [[push] for push in pushes] if self.is_split else [pushes]:
                        self.link(lambda s=session_id, f=frame: self.show(s, f))  # type: ignore[misc]
                case PushEarly():
                    self.failure = f"{command} of a message that is not urgent"
                case AckInbox(first, through):
                    self.settle(first, through)
                case Kick(session_id, _):
                    self.link(lambda s=session_id: self.kicked(s), is_sure=True)  # type: ignore[misc]
                case SetTimer(kind, attempt):
                    self.set_timer(kind, attempt)
                case CancelTimer():
                    self.timer += 1
                case Expire() | BodyLost():
                    self.failure = f"{command} for no reason"
                case _:
                    assert_never(command)

    def set_timer(self, kind: TimerKind, attempt: int) -> None:
        self.timer += 1
        mine = self.timer
        is_ack = kind is TimerKind.ACK
        delay = SETTINGS.ack_timeout_ms if is_ack else SETTINGS.request_timeout_ms * 2 ** min(attempt, 3)

        def fire() -> None:
            if self.timer == mine:
                self.perform(self.delivery.ack_timed_out() if is_ack else self.delivery.request_timed_out())

        self.at(delay, fire)

    def read(self, turn: int, after: int, limit: int) -> None:
        entries = list(islice((entry for useq, entry in self.entries.items() if useq > after), limit))
        floor = min(self.entries, default=self.latest + 1) - 1
        page = Page(entries, floor, self.latest)
        self.answer(lambda: self.delivery.ids_fetched(turn, page, NOW))

    def answer(self, call: Callable[[], Sequence[Command]]) -> None:
        slow_ms = self.rng.randint(0, 3 * self.delay_ms)
        self.at(slow_ms, lambda: self.link(lambda: self.perform(call())))

    def settle(self, first: int, through: int) -> None:
        missing = set(range(first, through + 1)) - set(self.app.seen) - self.app.own
        if missing:
            self.failure = f"settled, and the client has not got {sorted(missing)}"
        self.at(self.rng.randint(1, 100), lambda: self.remove(through))

    def remove(self, through: int) -> None:
        for useq in [useq for useq in self.entries if useq <= through]:
            del self.entries[useq]

    # The carrier: store first, then wake.

    def say(self) -> None:
        session = self.app.session
        origin = session.session_id if session is not None and self.rng.random() < 0.15 else 0
        self.latest += 1
        if origin:
            self.app.own.add(self.latest)
        entry = Entry(self.latest, 1000 + self.latest, self.latest, NOW, NEED_ALL, origin)
        self.entries[self.latest] = entry
        bodies = {entry.message_id: b"x"} if self.rng.random() < self.with_bodies else None
        wake = lambda: self.perform(self.delivery.woken(entry.useq, [entry], bodies))  # noqa: E731
        self.link(wake, is_sure=not self.has_rereads)

    # The client.

    def show(self, session_id: int, pushes: list[Push]) -> None:
        session = self.app.session
        if session is None or session.session_id != session_id:
            return
        for push in pushes:
            self.app.receive(push)
        self.link(lambda last=self.app.last: self.perform(self.delivery.acked(session_id, last)))  # type: ignore[misc]

    def connect(self) -> None:
        self.disconnect()
        self.numbers += 1
        session = Session(100 + self.numbers, 1, "web", "d", self.numbers, "g", 1)
        self.app.session = session
        self.link(lambda: self.perform(self.delivery.logged_in(session)))
        self.at(300, lambda: self.beat(session))

    def disconnect(self) -> None:
        session, self.app.session = self.app.session, None
        if session is not None:
            self.link(lambda: self.perform(self.delivery.logged_out(session.session_id)))

    def beat(self, session: Session) -> None:
        if self.app.session is session:
            self.link(lambda: self.hear(session))
            self.at(300, lambda: self.beat(session))

    def hear(self, session: Session) -> None:
        if not self.has_rereads and session == self.delivery.session:
            return
        self.perform(self.delivery.heartbeat(session))
        if self.delivery.state is State.OFFLINE and self.has_refusals:  # unknown here: connect again
            self.link(lambda: self.kicked(session.session_id))

    def kicked(self, session_id: int) -> None:
        if self.app.session is not None and self.app.session.session_id == session_id:
            self.app.session = None
            self.at(self.rng.randint(10, 300), self.connect_if_away)

    def connect_if_away(self) -> None:
        if self.app.session is None:
            self.connect()

    def flap(self) -> None:
        if self.now < STORM_MS:
            if self.app.session is None or self.rng.random() < 0.5:
                self.connect()
            else:
                self.disconnect()
            self.at(min(self.rng.expovariate(1 / self.flap_ms), STORM_MS - self.now + 1), self.flap)
        else:
            self.connect()
            self.at(self.rng.randint(0, 2 * self.delay_ms), self.say)  # the last one, perhaps into an empty read


def run(seed: int, loss: float, make: Callable[[InboxSettings], Delivery] = Delivery, app: App | None = None) -> World:
    """A storm, then fair weather. The world's ``failure`` is empty if all was well."""
    world = World(seed, loss, make(SETTINGS), app or App())
    for _ in range(world.messages - 1):
        world.at(world.rng.uniform(0, STORM_MS), world.say)
    world.flap()
    try:
        world.run_until(STORM_MS + 1_000)
        world.loss = world.repeat = 0.0
        world.delay_ms = 1
        world.run_until(STORM_MS + 1_000 + HEAL_MS)
    except AssertionError as error:
        world.failure = world.failure or f"an invariant broke: {error}"
    if not world.failure:
        missing = set(range(1, world.messages + 1)) - set(world.app.seen) - world.app.own
        if missing:
            world.failure = f"lost or stuck: {sorted(missing)}"
        elif world.app.session is None or world.delivery.session != world.app.session:
            world.failure = "the client and the delivery do not agree on the session"
        elif world.entries:
            world.failure = f"never acked: {list(world.entries)}"
    return world
