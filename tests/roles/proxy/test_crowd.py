"""A crowd at the proxy: what comes while others are on their way into the log goes with those of its turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest

from pixiu.model.errors import CorruptData, PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import MsgChat
from tests.im.world import World
from tests.roles.proxy.test_proxy import SEND, Down, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.im.draft import Params
    from pixiu.ports.sendkeys import SendKeys


def test_a_crowd_is_said_in_its_order_and_everyone_gets_an_answer_of_their_own() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    answers = [world.begin(alice, "send", {"to": "bob", "text": f"{n}", "send_id": f"s{n}"}) for n in range(5)]
    answers.append(world.begin(alice, "contact", {"user": "bob"}))
    answers.append(world.begin(alice, "send", {"to": "bob", "text": "5"}))  # without a send_id
    assert world.proxy.appends.is_gathering
    assert world.proxy.appends.in_flight == 7
    world.settle()
    assert [len(each) for each in answers] == [1] * 7
    texts = [MsgChat.FromString(record.chat).data for record in world.records() if record.chat]
    assert [text for text in texts if text] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    ids = [int(cast("dict[str, str]", each[0])["message_id"]) for each in (*answers[:5], answers[6])]
    assert ids == sorted(set(ids))
    changed = [record.WhichOneof("what") for record in world.records()]
    assert changed[-2:] == ["contact", None]
    assert not world.proxy.appends.in_flight
    assert not world.proxy.appends.is_gathering


def test_a_repeat_within_a_crowd_gets_the_first_answer_from_the_index_or_from_the_log() -> None:
    world = World()
    alice = world.actor("alice")
    first = world.ask(alice, "send", dict(SEND))
    other = {"to": "bob", "text": "other", "send_id": "s2"}
    answers = [world.begin(alice, "send", params) for params in (other, SEND, other, SEND, other)]
    world.settle()
    assert [len(each) for each in answers] == [1] * 5
    assert answers[1] == answers[3] == [first]
    assert answers[0] == answers[2] == answers[4] != [first]
    assert said(world) == 2
    assert world.proxy.appends.repeats == 4
    assert world.proxy.appends.accepted == 2 + 3  # and two users with an inbox


def test_a_store_that_is_down_is_told_to_a_crowd_but_to_those_who_do_not_ask_it() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    keys = world.proxy.appends._keys
    first = world.begin(alice, "send", {"to": "bob", "text": "0"})
    world.proxy.appends._keys = cast("SendKeys", Down())
    crowd = [world.begin(alice, "send", params) for params in (SEND, {"to": "bob", "text": "1"})]
    world.settle()
    world.proxy.appends._keys = keys
    assert [isinstance(each[0], Unavailable) for each in (first, *crowd)] == [False, True, False]
    assert said(world) == 2
    assert world.proxy.appends.in_flight == 0


@pytest.mark.parametrize("error", [CorruptData("a block of the store is damaged"), ValueError("a row is too short")])
def test_an_index_that_fails_leaves_nobody_of_a_crowd_without_an_answer(error: Exception) -> None:
    """Neither do they count as under way for ever, which would refuse everyone in the end."""
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    keys = world.proxy.appends._keys
    first = world.begin(alice, "send", {"to": "bob", "text": "0"})
    world.proxy.appends._keys = cast("SendKeys", Down(error))
    crowd = [
        world.begin(alice, "send", params) for params in (SEND, {**SEND, "send_id": "s2"}, {"to": "bob", "text": "1"})
    ]
    if isinstance(error, PixiuError):
        world.settle()
    else:
        with pytest.raises(ValueError, match="too short"):  # it is noted, too
            world.settle()
        world.settle()
    world.proxy.appends._keys = keys
    assert [[isinstance(answer, PixiuError) for answer in each] for each in (first, *crowd)] == [
        [False], [True], [True], [False],
    ]  # fmt: skip
    assert said(world) == 2
    assert world.proxy.appends.in_flight == 0


def test_an_answer_that_fails_fails_alone() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    first = world.begin(alice, "send", {"to": "bob", "text": "0"})
    world.proxy.act(alice, "send", {"to": "bob", "text": "1"}, mock.Mock(side_effect=RuntimeError("nobody is here")))
    last = world.begin(alice, "send", {"to": "bob", "text": "2"})
    with pytest.raises(RuntimeError, match="nobody is here"):
        world.settle()
    world.settle()
    assert [len(first), len(last)] == [1, 1]
    assert said(world) == 3
    later = world.begin(alice, "send", {"to": "bob", "text": "3"})
    assert not world.proxy.appends.is_gathering, "one that comes alone goes at once again"
    world.settle()
    assert len(later) == 1


def test_who_goes_on_when_answered_is_one_of_many_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    append_all, sizes = world.log.append_all, []

    def many(topic: str, payloads: Sequence[bytes], *arguments: Any, **named: Any) -> None:
        sizes.append(len(payloads))
        append_all(topic, payloads, *arguments, **named)

    def go_on(rounds: int) -> None:
        params: Params = {"to": "bob", "text": "x"}
        world.proxy.act(alice, "send", params, lambda _: go_on(rounds - 1) if rounds > 1 else None)

    monkeypatch.setattr(world.log, "append_all", many)
    for _ in range(4):
        go_on(3)
    world.settle()
    assert sum(sizes) == 11  # the very first one was alone
    assert said(world) == 12


def test_what_was_gathered_is_in_the_log_once_it_is_flushed() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    for number in range(3):
        world.begin(alice, "send", {"to": "bob", "text": f"{number}"})
    written = len(world.log.records)
    world.proxy.appends.flush()
    assert len(world.log.records) == written + 2
    world.settle()
    assert said(world) == 3


class Blind:
    """An index that is asked for one key too early, and for those of a crowd when it knows them."""

    def __init__(self, keys: SendKeys) -> None:
        self.find = keys.find

    def get(self, _key: bytes) -> None:
        return None


def test_a_repeat_that_the_index_knows_is_not_told_before_one_who_came_first() -> None:
    """Whoever goes on when it is told, with a message to somebody who was just created, would overtake it."""
    world = World()
    world.number("bob")
    appends, told = world.proxy.appends, list[str]()
    payload, key = b"", next(record.key for record in world.log.read(0, 100) if record.key)
    assert appends._keys.get(key) is not None
    keys, applied = appends._keys, appends._applied
    appends._keys, appends._applied = cast("SendKeys", Blind(keys)), lambda: 0
    appends.append(payload, 1, key, lambda _: told.append("first"))
    appends._applied = applied
    for name in ("second", "third"):
        appends.append(payload, 1, key, partial(_note, told, name))
    assert appends.is_gathering
    world.settle()
    assert told == ["first", "second", "third"]
    assert (appends.in_flight, appends.waiting) == (0, 0)


def _note(told: list[str], name: str, _outcome: object) -> None:
    told.append(name)
