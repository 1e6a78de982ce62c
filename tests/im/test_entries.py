"""Entries of a stream as actions: the seed's names, JSON for what is no text, and what makes a repeat harmless."""

import json
from typing import TYPE_CHECKING

import pytest

from pixiu.im import VERBS
from pixiu.im.entries import ENTRY_BYTES_MAX, Asking, asking_of, key_of
from pixiu.model.errors import PixiuError, RequestError
from tests.im.world import World

if TYPE_CHECKING:
    from pixiu.im.draft import Answer


def asking(entry_id: str = "1-0", **fields: str) -> Asking:
    return asking_of(entry_id, [(name.encode(), value.encode()) for name, value in fields.items()])


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@pytest.mark.feature("R10")
def test_the_names_of_the_seed_are_the_params_of_the_action() -> None:
    sent = asking(action="send", uid="alice", tuid="bob", text="hi", color="red")
    assert (sent.action, sent.user, sent.is_alone) == ("send", "alice", False)
    assert sent.params["to"] == "bob"
    assert sent.params["fields"] == {"color": "red"}
    assert asking(action="contact", uid="a", tuid="b").params["user"] == "b"
    assert asking(action="read", uid="a", gid="9", through="5").params == {"group": "9", "through": "5"}
    assert asking(action="history", uid="a", tuid="b").params["with"] == "b"
    assert asking(action="ulink", uid="a", tuid="b").action == "unlink"
    assert asking(action="recive", uid="a").action == "receive"
    assert asking(action="create_user", uid="a", name="A", city="Turin").params == {
        "user": "a",
        "name": "A",
        "city": "Turin",
    }


def test_what_is_no_text_comes_as_json() -> None:
    made = asking(action="create_group", uid="a", params=json.dumps({"members": ["b"]}), gid="9")
    assert made.params == {"members": ["b"], "group": "9"}
    assert made.is_alone


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"uid": "a"}, "action is missing"),
        ({"action": "sned", "uid": "a"}, "no action 'sned'"),
        ({"action": "send", "uid": "a", "params": "{"}, "no JSON"),
        ({"action": "send", "uid": "a", "params": "[1]"}, "a JSON object"),
        ({"action": "send", "uid": "a", "params": "[" * 100_000}, "no JSON"),
        ({"action": "send", "uid": "a", "text": "x", "params": '{"text": "y"}'}, "text is given twice"),
        ({"action": "send", "uid": "a", "text": b"\xff"}, "not UTF-8"),
        ({"action": "send", "uid": "a", "text": "x" * ENTRY_BYTES_MAX}, "bytes, not"),
        ({"action": "send", "uid": "a", "send_id": "x" * 65}, "64 bytes"),
        ({"action": "send", "uid": "a", "params": '{"send_id": []}'}, "send_id must be a text"),
        ({"action": "send", "uid": "a", "params": '{"fields": 3}', "color": "red"}, "fields must be an object"),
        ({"action": "create_user", "uid": "a", "user": "b"}, "uid is who is created"),
        ({"action": "send", **{f"f{number}": "x" for number in range(256)}}, "256 fields"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(fields: dict[str, str | bytes], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        asking_of("1-0", [(name.encode(), _bytes(value)) for name, value in fields.items()])
    with pytest.raises(RequestError, match="there twice"):
        asking_of("1-0", [(b"action", b"send"), (b"action", b"send")])


@pytest.mark.feature("R10")
def test_all_that_would_be_made_up_comes_from_the_entry() -> None:
    for action in VERBS:
        first, again = asking("5-1", action=action, uid="a"), asking("5-1", action=action, uid="a")
        assert first == again
        assert key_of(7, first) == key_of(7, again) != key_of(8, again)
        other = asking("5-2", action=action, uid="a")
        assert key_of(7, other) != key_of(7, first)
    assert (
        asking("5-1", action="send", uid="a").params["send_id"]
        != asking("5-2", action="send", uid="a").params["send_id"]
    )
    reused = asking("5-1", action="send", uid="a", text="another")
    assert reused.params["send_id"] != asking("5-1", action="send", uid="a", text="one").params["send_id"]


def test_a_send_id_names_the_action_wherever_it_comes_from() -> None:
    one = asking("1-0", action="join", uid="a", gid="9", send_id="x")
    two = asking("2-0", action="join", uid="a", gid="9", send_id="x")
    assert key_of(7, one) == key_of(7, two)
    assert "send_id" not in one.params, "the action has no such param"
    assert asking("1-0", action="send", uid="a", send_id="x").params["send_id"] == "x", "as over HTTP"
    assert key_of(7, asking("1-0", action="quit", uid="a", gid="9", send_id="x")) != key_of(7, one)


@pytest.mark.feature("R10", "R20")
def test_a_change_under_a_key_takes_effect_once_and_its_repeat_is_not_judged_again() -> None:
    world = World()
    world.do("1", "create_group", group="9", members=["2"])
    quitting = asking("7-0", action="quit", uid="2", gid="9")
    actor = world.actor("2")
    answers: list[Answer | PixiuError] = []
    for _ in range(2):
        world.proxy.act(actor, quitting.action, dict(quitting.params), answers.append, key=key_of(actor.user, quitting))
        world.settle()
    first, again = answers
    assert not isinstance(first, PixiuError)
    assert not isinstance(again, PixiuError), "who has quit cannot quit again, but this is the same quitting"
    assert again["is_repeat"] is True
    assert sum(record.HasField("member") for record in world.records()) == 1
