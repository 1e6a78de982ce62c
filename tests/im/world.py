"""A proxy on memory: the real verbs, a log, the real appliers, and a clock that moves when told to."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from pixiu.backends.memory.stores import MemoryStores
from pixiu.config.messaging import MessagingSettings
from pixiu.im.draft import Actor, Answer, Params
from pixiu.model.errors import PixiuError
from pixiu.model.pixiu_pb2 import Record
from pixiu.ports.log import MAIN
from pixiu.ports.search import Searches
from pixiu.ports.stores import Stores
from pixiu.roles.carrier.appliers import Appliers, parse
from pixiu.roles.carrier.reached import Limits
from pixiu.roles.proxy.service import Proxy
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

DAY_MS = 86_400_000

make_stores: Callable[[], Stores] = MemoryStores
"""Tests of engines put their own here, to run all that these worlds do on them."""


class World:
    """One node. ``do`` acts as a user who is on the platform ``web``, and gives the answer or raises the error."""

    def __init__(
        self,
        settings: MessagingSettings | None = None,
        *,
        creates_users: bool = True,
        in_flight_max: int = 10_000,
        searches: Searches | None = None,
    ) -> None:
        self.clock = SimulatedClock()
        self.turns = SimulatedScheduler(self.clock, random.Random(1), slow_us=0, pause_chance=0)
        self.stores = make_stores()
        self.log = MemoryLog(self.clock, self.turns)
        self.appliers = Appliers(self.stores, Limits())
        self.is_applying = True
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        self._position = 0
        self.proxy = Proxy(
            self.stores, self.log, self.clock, self.turns, settings or unlimited(), when_applied=self.when_applied,
            applied=lambda: self.appliers.reached.inboxes, applied_all=lambda: self._position,
            creates_users=creates_users, in_flight_max=in_flight_max, searches=searches,
        )  # fmt: skip

    def when_applied(self, event_id: int, call: Callable[[], object]) -> None:
        self._waiting.append((event_id, call))

    def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        for _ in range(1000):
            self.turns.run_ready()
            if not self._apply():
                return
        raise AssertionError("the world does not come to rest")

    def _apply(self) -> bool:
        """Apply what was committed, then tell who waited. False when there was nothing to do."""
        records = self.log.read(self._position, 1000) if self.is_applying else []
        for record in records:
            if record.topic == MAIN:
                self.appliers.apply(record, parse(record))
            self._position = record.event_id
        if self.is_applying and not records:
            self._position = max(self._position, self.log.committed)
        ready = [call for event_id, call in self._waiting if event_id <= self._position]
        self._waiting = [each for each in self._waiting if each[0] > self._position]
        for call in ready:
            call()
        return bool(records or ready)

    def pass_time(self, milliseconds: float) -> None:
        self.turns.run_for(milliseconds)
        self.settle()

    # Acting.

    def number(self, public_id: str) -> int:
        """The number of a user, who is created if need be and has an inbox for ``web``."""
        found: list[int | PixiuError] = []
        self.proxy.find_user(public_id, found.append, creates=True)
        self.settle()
        assert isinstance(found[0], int), found
        return found[0]

    def actor(self, public_id: str, platform: str = "web", *, is_admin: bool = False) -> Actor:
        user = self.number(public_id)
        opened: list[Answer | PixiuError] = []
        self.proxy.open_inbox(user, platform, opened.append)
        self.settle()
        assert not isinstance(opened[0], PixiuError), opened
        return Actor(user, platform, "device-1", session_id=0, is_admin=is_admin)

    def begin(self, actor: Actor, action: str, params: Mapping[str, object]) -> list[Answer | PixiuError]:
        """Ask; the answer comes into the list, now or later."""
        answers: list[Answer | PixiuError] = []
        self.proxy.act(actor, action, cast("Params", params), answers.append)
        return answers

    def ask(self, actor: Actor, action: str, params: Mapping[str, object]) -> Answer:
        answers = self.begin(actor, action, params)
        self.settle()
        assert len(answers) == 1, answers
        if isinstance(answers[0], PixiuError):
            raise answers[0]
        return answers[0]

    def do(self, public_id: str, action: str, params: Mapping[str, object] | None = None, **more: object) -> Answer:
        return self.ask(self.actor(public_id), action, {**(params or {}), **more})

    def admin(self, action: str, **params: object) -> Answer:
        return self.ask(Actor(0, is_admin=True), action, dict(params))

    # Looking.

    def records(self) -> list[Record]:
        """Everything in the log that changed something or was said."""
        return [Record.FromString(each.payload) for each in self.log.records if each.topic == MAIN]

    def texts(self, public_id: str, params: Mapping[str, object] | None = None, **more: object) -> list[object]:
        """The texts of a page of history."""
        return texts(self.do(public_id, "history", params, **more))

    def inbox(self, public_id: str, platform: str = "web") -> list[Answer]:
        """All messages that wait."""
        answer = self.ask(self.actor(public_id, platform), "receive", {})
        return messages(answer)

    def unread(self, public_id: str) -> dict[object, object]:
        contacts = self.do(public_id, "contacts")
        rows = [*contacts["contacts"], *contacts["others"]]  # type: ignore[misc]
        return {row.get("user") or row.get("group"): row["unread"] for row in rows}


def unlimited(**settings: Any) -> MessagingSettings:
    """Settings for tests that are not about rates."""
    return replace(MessagingSettings(), **{"sends_per_second": 0, **settings})


def messages(answer: Answer) -> list[Answer]:
    """The messages of an answer."""
    found = answer["messages"]
    assert isinstance(found, list)
    return found


def texts(answer: Answer) -> list[object]:
    return [each.get("text") for each in messages(answer)]


def ids(answer: Answer) -> list[str]:
    return [str(each["message_id"]) for each in messages(answer)]
