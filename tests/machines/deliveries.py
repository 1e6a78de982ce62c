"""Delivery machines in each of their states, and what tests say of their commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.config import InboxSettings
from pixiu.machines.delivery import (
    CancelTimer,
    Command,
    Delivery,
    FetchBodies,
    FetchIds,
    Push,
    PushTo,
    SetTimer,
    State,
    TimerKind,
)
from pixiu.model.inbox import NEED_ALL, Entry, Page
from pixiu.model.pixiu_pb2 import HIGH, MsgChat
from pixiu.model.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CANCEL",
    "FIRST",
    "NOW",
    "SECOND",
    "SETTINGS",
    "SET_ACK",
    "SET_REQUEST",
    "bodies_of",
    "entries",
    "entry",
    "fetching_bodies",
    "fetching_ids",
    "online",
    "pushed",
    "sending",
    "urgent",
    "useqs",
    "wake",
]

SETTINGS = InboxSettings(window=4, read_limit=3)
NOW = 1_760_000_000_000
FIRST = Session(11, 1, "web", "a", 1, "gateway", 1)
SECOND = Session(12, 1, "web", "b", 2, "gateway", 1)
SET_REQUEST = SetTimer(TimerKind.REQUEST, 0)
SET_ACK = SetTimer(TimerKind.ACK, 0)
CANCEL = CancelTimer()


def entry(useq: int, *, at: int = NOW, options: int = NEED_ALL, session: int = 0) -> Entry:
    return Entry(useq, 1000 + useq, 5000 + useq, at, options, session)


def entries(first: int, through: int) -> list[Entry]:
    return [entry(useq) for useq in range(first, through + 1)]


def bodies_of(found: Sequence[Entry]) -> dict[int, bytes]:
    return {each.message_id: b"body %d" % each.useq for each in found}


def urgent(message_id: int) -> bytes:
    """The body of a message with the priority ``high``."""
    return MsgChat(msgId=message_id, priority=HIGH, data=b"fire").SerializeToString()


def useqs(pushes: Sequence[Push]) -> list[int]:
    return [push.useq for push in pushes]


def pushed(commands: Sequence[Command]) -> list[int]:
    return [useq for command in commands if isinstance(command, PushTo) for useq in useqs(command.pushes)]


def online(settings: InboxSettings = SETTINGS, session: Session = FIRST) -> Delivery:
    """Logged in, with an empty inbox."""
    delivery = Delivery(settings)
    delivery.logged_in(session)
    delivery.ids_fetched(delivery.turn, Page([], 0, 0), NOW)
    assert delivery.state is State.IDLE
    return delivery


def fetching_ids(latest: int = 3) -> Delivery:
    delivery = online()
    assert delivery.woken(latest) == [SET_REQUEST, FetchIds(delivery.turn, 0, 3)]
    assert delivery.state is State.FETCHING_IDS
    return delivery


def fetching_bodies(latest: int = 3) -> Delivery:
    delivery = fetching_ids(latest)
    page = Page(entries(1, min(latest, 3)), 0, latest)
    commands = delivery.ids_fetched(delivery.turn, page, NOW)
    assert commands == [SET_REQUEST, FetchBodies(delivery.turn, [each.message_id for each in page.entries])]
    assert delivery.state is State.FETCHING_BODIES
    return delivery


def sending(latest: int = 3, settings: InboxSettings = SETTINGS) -> Delivery:
    """Entries 1 to ``latest`` were live; those that fit are in the window."""
    delivery = online(settings)
    wake(delivery, entries(1, latest))
    assert delivery.state is State.SENDING
    delivery.check(range(1, latest + 1))
    return delivery


def wake(delivery: Delivery, found: Sequence[Entry], bodies: Mapping[int, bytes] | None = None) -> Sequence[Command]:
    return delivery.woken(found[-1].useq, found, bodies_of(found) if bodies is None else bodies)
