"""The verbs of rooms: who may ask, and for what."""

from __future__ import annotations

import pytest

from pixiu.im.draft import Actor
from pixiu.model.errors import NotAllowed, PixiuError, RequestError, TooLarge
from pixiu.roles.broker import ROOM_VERBS
from tests.roles.broker.scene import Scene

WITHOUT_CONNECTION = Actor(5)


def test_the_verbs_are_those_of_the_design() -> None:
    assert {name: sorted(verb.params) for name, verb in ROOM_VERBS.items()} == {
        "enter": ["room"],
        "leave": ["room"],
        "say": ["class", "priority", "room", "send_id", "text"],
    }


def test_entering_and_leaving_answer_how_many_are_there() -> None:
    scene = Scene()
    first, second = scene.connect(1), scene.connect(1)
    assert first.ask("enter", room="lobby") == {"room": "lobby", "members": 1}
    assert second.ask("enter", room="lobby") == {"room": "lobby", "members": 2}
    assert second.ask("enter", room="lobby") == {"room": "lobby", "members": 2}
    assert first.ask("leave", room="lobby") == {"room": "lobby", "members": 1}
    assert first.ask("leave", room="lobby") == {"room": "lobby", "members": 1}
    assert first.ask("leave", room="elsewhere") == {"room": "elsewhere", "members": 0}


def test_a_room_may_be_named_by_a_number() -> None:
    scene = Scene()
    session = scene.connect(1)
    session.ask("enter", room=42)
    session.ask("say", room="42", text="hi")
    scene.pass_time(100)
    assert session.messages[0]["room"] == "42"


@pytest.mark.parametrize("action", ["enter", "leave", "say"])
def test_a_caller_without_a_connection_is_refused(action: str) -> None:
    params = {"room": "lobby"} | ({"text": "hi"} if action == "say" else {})
    with pytest.raises(NotAllowed, match=f"{action} is done over a connection that stays; this call has none"):
        Scene().ask(WITHOUT_CONNECTION, action, **params)


@pytest.mark.parametrize(
    ("action", "params", "words"),
    [
        ("enter", {}, "room is missing"),
        ("enter", {"room": ""}, "room must not be empty"),
        ("enter", {"room": "0"}, "room must not be '0'"),
        ("enter", {"room": "a\nb"}, "room must not hold control characters"),
        ("enter", {"room": "\ud800"}, "room is not Unicode text"),
        ("enter", {"room": ["x"]}, "room must be a public id, not a list"),
        ("enter", {"room": "g:"}, "group must not be empty"),
        ("leave", {"room": "\ud800"}, "room is not Unicode text"),
        ("say", {"room": "lobby"}, "text is missing"),
        ("say", {"room": "lobby", "text": 5}, "text must be a text, not the number 5"),
        ("say", {"room": "lobby", "text": "\ud800"}, "text is not Unicode text"),
        ("say", {"room": "lobby", "text": "x", "class": "loud"}, "class must be one of live, reliable, not 'loud'"),
        ("say", {"room": "lobby", "txt": "x"}, "say knows no 'txt'; did you mean 'text'?"),
        ("say", {"room": "lobby", "text": "x", "send_id": []}, "send_id must be a text"),
    ],
)
def test_what_is_wrong_is_said(action: str, params: dict[str, object], words: str) -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    with pytest.raises(RequestError) as refused:
        session.ask(action, **params)
    assert words in str(refused.value)


def test_names_and_tokens_are_bounded() -> None:
    scene = Scene()
    (session,) = scene.in_room("x" * 64)
    for action, params in (
        ("enter", {"room": "x" * 65}),
        ("enter", {"room": "g:" + "x" * 65}),
        ("say", {"room": "x" * 64, "text": "hi", "send_id": "x" * 65}),
    ):
        with pytest.raises(TooLarge):
            session.ask(action, **params)


def test_params_must_be_an_object() -> None:
    scene = Scene()
    with pytest.raises(RequestError, match="enter takes an object of params, not list"):
        ROOM_VERBS["enter"].run(scene.broker, scene.connect(1).actor, [])  # type: ignore[arg-type]


def test_say_with_a_callback_answers_or_gives_the_error() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    answers: list[object] = []
    scene.broker.say(session.actor, "lobby", "hi", "live", answers.append)
    scene.broker.say(session.actor, "kitchen", "hi", "live", answers.append)
    first, second = answers
    assert isinstance(first, dict)
    assert first["members"] == 1
    assert isinstance(second, PixiuError)
    assert second.code == "forbidden"
