"""Whatever a network does to a client's session: everything is shown once and in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.machines.client_session import Arrived, Connect, Drop, Incoming, Write
from tests.machines.client_frames import CONTACTS, frame, message, push, session


class Server:
    """An inbox with one connection at a time; the network between loses the end of what was sent."""

    def __init__(self) -> None:
        self.inbox: list[int] = []
        self.floor = 0
        self.at = 0
        self.is_open = False

    def connect(self, cursor: int) -> None:
        self.floor = max(self.floor, min(cursor, len(self.inbox)))
        self.at = self.floor
        self.is_open = True

    def frames(self, count: int) -> list[bytes]:
        end = min(self.at + count, len(self.inbox))
        sent = [push(number + 1, self.inbox[number]) for number in range(self.at, end)]
        self.at = end
        return sent


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 5)),
        st.tuples(st.just("deliver"), st.integers(1, 6)),
        st.tuples(st.just("twice"), st.integers(1, 4)),
        st.tuples(st.just("hold"), st.integers(1, 6)),
        st.tuples(st.just("cut"), st.integers(0, 3)),
        st.tuples(st.just("resync"), st.integers(1, 4)),
        st.tuples(st.just("late answer"), st.integers(1, 4)),
    ),
    max_size=60,
)


class World:
    """A session, its server, the program that holds what arrives, and time."""

    def __init__(self) -> None:
        self.server, self.client = Server(), session()
        self.now = 0
        self.shown: list[int] = []
        self.items: list[Incoming] = []
        self.last: list[bytes] = []
        self.syncs: list[dict[str, Any]] = []
        self.do(self.client.start(0))

    def do(self, commands: list[Any]) -> None:
        for command in commands:
            if isinstance(command, Connect):
                self.server.connect(command.cursor)
                self.do(self.client.received(frame(CONTACTS), self.now))
            elif isinstance(command, Drop):
                self.server.is_open = False
            elif isinstance(command, Arrived):
                self.items += command.items
                self.shown += [int(i.message["message_id"]) for i in command.items if i.message and i.is_shown]
            elif isinstance(command, Write):
                asked = json.loads(command.payload)
                if asked["action"] == "ack":
                    assert int(asked["params"]["cursor"]) <= len(self.server.inbox)
                    self.server.floor = max(self.server.floor, int(asked["params"]["cursor"]))
                elif asked["action"] == "sync":
                    self.syncs.append(asked)

    def feed(self, frames: list[bytes]) -> None:
        for each in frames:
            if self.server.is_open:
                self.do(self.client.received(each, self.now))

    def answer_sync(self, limit: int) -> None:
        if not self.syncs or not self.server.is_open:
            return
        asked = self.syncs.pop(0)
        after = int(asked["params"].get("cursor", self.server.floor))
        end = min(after + limit, len(self.server.inbox))
        result = {
            "messages": [message(number) for number in self.server.inbox[after:end]], "gaps": [],
            "has_more": end < len(self.server.inbox), "cursor": str(max(end, after)),
        }  # fmt: skip
        self.server.at = max(self.server.at, end)
        self.do(self.client.received(frame({"id": asked["id"], "result": result}), self.now))

    def cut(self, lost: int) -> None:
        """What was sent last does not arrive: it is as if it had not been sent."""
        if self.server.is_open:
            self.server.is_open = False
            self.syncs.clear()
            self.do(self.client.closed(1006, "", self.now))
        self.reconnect()

    def reconnect(self) -> None:
        while not self.server.is_open:
            self.now = max(self.client.due() or 0, self.now)
            self.do(self.client.tick(self.now))

    def hold(self, count: int) -> None:
        held, self.items = self.items[:count], self.items[count:]
        for item in held:
            if item.cursor:
                self.do(self.client.held(item.cursor, item.generation))

    def step(self, name: str, count: int) -> None:
        if name == "say":
            first = len(self.server.inbox) + 1000
            self.server.inbox += range(first, first + count)
        elif name == "deliver":
            self.last = self.server.frames(count)
            self.feed(self.last)
        elif name == "twice":
            self.feed(self.last[-count:])
        elif name == "hold":
            self.hold(count)
        elif name == "cut":
            self.server.frames(count)
            self.cut(count)
        elif name == "resync":
            self.feed([frame({"push": "resync"})])
        else:
            self.answer_sync(count)


@pytest.mark.feature("B20")
@given(STEPS)
@settings(max_examples=300)
def test_whatever_the_network_does_everything_is_shown_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    world = World()
    for name, count in steps:
        world.step(name, count)
        assert world.shown == world.server.inbox[: len(world.shown)]
        assert world.client.cursor <= len(world.shown), "nothing is acked that was not shown"
    world.cut(0)
    for _ in range(40):
        world.feed(world.server.frames(50))
        world.answer_sync(50)
    world.hold(10_000)
    assert world.shown == world.server.inbox
    assert world.server.floor == len(world.server.inbox)
