"""Pages of what waits for its time: all of it, in order, and nobody waits long for somebody else's page."""

from __future__ import annotations

import json
from struct import pack
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.commands import DELAYS
from pixiu.machines.queue_wire.messages import Message
from pixiu.queue.server import delay_pages
from pixiu.testing.queue.clients import Request
from tests.queue.test_writer import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 45
FEW = range(3, COUNT, 20)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """``COUNT`` wait in one topic, and some in another."""
    monkeypatch.setattr(delay_pages, "WALK_COUNT", 10)
    made = Queue()
    made.ask(made.control, Request("create", b"few"), wire.encode_create_topic(b"few"))
    for number in range(COUNT):
        for topic in (b"t", b"few") if number in FEW else (b"t",):
            delay = wire.encode_delay(topic, Message(b"later").encode(), delay_ms=60_000)
            assert made.ask(made.control, Request("delay", topic), delay).outcome == "ok"
    yield made
    made.scheduler.close()


def page(topic: bytes = b"", *, after: int = 0, limit: int = 1000) -> tuple[Request, bytes]:
    return Request("json"), wire.encode_extension(DELAYS, pack("<qI", after, limit), topic=topic)


def events(request: Request) -> list[int]:
    assert request.outcome == "ok", request
    return [row["event_id"] for row in json.loads(request.text)]


def test_pages_have_everything_once_and_in_order(queue: Queue) -> None:
    whole = events(queue.ask(queue.control, *page()))
    assert len(whole) == COUNT + len(FEW) and whole == sorted(whole)
    paged: list[int] = []
    while found := events(queue.ask(queue.control, *page(after=paged[-1] if paged else 0, limit=7))):
        paged += found
    assert paged == whole
    few = events(queue.ask(queue.control, *page(b"few")))
    assert len(few) == len(FEW) and set(few) < set(whole)
    assert events(queue.ask(queue.control, *page(b"few", limit=1))) == few[:1]
    assert events(queue.ask(queue.control, *page(b"nothing"))) == []


def test_others_are_served_while_somebody_looks_for_the_few(queue: Queue) -> None:
    """What the same client asks behind it waits for its page."""
    patient, other = queue.client(), queue.client()
    asked, first = page(b"few")
    behind, quick = Request("alive"), Request("alive")
    patient.wire.send(first + wire.encode_alive())
    patient.open.extend([asked, behind])
    assert not patient.wire.said, "one walk of ten is not enough"
    other.wire.send(wire.encode_alive())
    other.open.append(quick)
    assert other.take_answers() == [quick]
    queue.scheduler.run_for(5)
    assert patient.take_answers() == [asked, behind]
    assert len(events(asked)) == len(FEW)
