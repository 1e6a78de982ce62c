"""Whatever is wrong is refused with a typed error that names it, and leaves nothing behind."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pixiu.im import VERBS
from pixiu.im.draft import Actor, Params
from pixiu.model.errors import NotAllowed, NotFound, PixiuError, RequestError, TooLarge, Unauthenticated
from tests.im.world import World, unlimited

LATER = 2 * 10**12
"""Later than the world's clock, and than what may be scheduled."""


@pytest.fixture
def world() -> World:
    world = World(unlimited(message_bytes_max=100), creates_users=False)
    for name in ("alice", "bob"):
        world.actor(name)
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.do("alice", "send", to="bob", text="x")
    return world


SEND: Params = {"to": "bob", "text": "x"}
GSEND: Params = {"group": "tea", "text": "x"}

# Action, params, the error, and a part of its message.
REFUSED: list[tuple[str, object, type[PixiuError], str]] = [
    ("send", {}, RequestError, "to is missing"),
    ("signal", {}, RequestError, "to is missing"),
    ("signal", {**SEND, "send_id": "1"}, RequestError, "signal knows no 'send_id'"),
    ("signal", {"to": "bob"}, RequestError, "text is missing"),
    ("send", {"to": "bob"}, RequestError, "text is missing"),
    ("send", {"to": "bob", "text": ""}, RequestError, "text is empty"),
    ("send", {"to": "bob", "body": "", "kind": "text", "ref": "1"}, RequestError, "text is empty"),
    ("gsend", {"group": "tea", "text": ""}, RequestError, "text is empty"),
    ("send", [], RequestError, "object of params, not list"),
    ("send", None, RequestError, "object of params"),
    ("send", {**SEND, "tet": "x"}, RequestError, "send knows no 'tet'; did you mean 'text'?"),
    ("send", {**SEND, "zzzzz": "x"}, RequestError, "known: body, "),
    ("send", dict[object, object](SEND) | {5: "x"}, RequestError, "knows no '5'"),
    ("search", {}, RequestError, "q is missing"),
    ("send", {**SEND, "to": ""}, RequestError, "to must not be empty"),
    ("send", {**SEND, "to": "0"}, RequestError, "which is the system"),
    ("send", {**SEND, "to": "x" * 65}, TooLarge, "to may have 64 bytes, not 65"),
    ("send", {**SEND, "to": "é" * 33}, TooLarge, "to may have 64 bytes, not 66"),
    ("send", {**SEND, "to": "bo\nb"}, RequestError, "control characters"),
    ("send", {**SEND, "to": "bo\x85b"}, RequestError, "control characters"),
    ("send", {**SEND, "to": "\ud800"}, RequestError, "not Unicode text"),
    ("send", {**SEND, "to": 1.5}, RequestError, "to must be a public id, not the number 1.5"),
    ("send", {**SEND, "to": True}, RequestError, "to must be a public id"),
    ("send", {**SEND, "to": -1}, RequestError, "to must be a public id"),
    ("send", {**SEND, "to": 10**5000}, RequestError, "128 bits"),
    ("send", {**SEND, "to": ["bob"]}, RequestError, "to must be a public id, not a list"),
    ("send", {**SEND, "to": "nobody"}, NotFound, "no user 'nobody'"),
    ("send", {**SEND, "text": 5}, RequestError, "text must be a text, not the number 5"),
    ("send", {**SEND, "text": None}, RequestError, "text is missing"),
    ("send", {**SEND, "text": "\udfff"}, RequestError, "text is not Unicode"),
    ("send", {**SEND, "text": "x" * 101}, TooLarge, "100 bytes, not 101"),
    ("send", {**SEND, "body": "eA=="}, RequestError, "text or body, not both"),
    ("send", {"to": "bob", "body": "eA=="}, RequestError, "kind is missing"),
    ("send", {"to": "bob", "body": "no base64!", "kind": "file"}, RequestError, "body is not base64"),
    ("send", {"to": "bob", "body": "é", "kind": "file"}, RequestError, "body is not base64"),
    ("send", {"to": "bob", "body": 7, "kind": "file"}, RequestError, "body must be base64"),
    ("send", {**SEND, "kind": "delete"}, RequestError, "kind must be one of text, image"),
    ("send", {**SEND, "kind": "system"}, RequestError, "kind must be one of"),
    ("send", {**SEND, "kind": 3}, RequestError, "kind must be one of"),
    ("send", {**SEND, "send_id": "x" * 65}, TooLarge, "send_id may have 64 bytes, not 65"),
    ("send", {**SEND, "send_id": ["x"]}, RequestError, "send_id must be a text"),
    ("send", {**SEND, "send_id": "\ud800"}, RequestError, "send_id is not Unicode"),
    ("send", {**SEND, "ref": -1}, RequestError, "ref must be 1 to"),
    ("send", {**SEND, "ref": "0x10"}, RequestError, "ref must be a whole number"),
    ("send", {**SEND, "ref": 2**63}, RequestError, "ref must be 1 to 9223372036854775807"),
    ("send", {**SEND, "ref": "99999999999999999999"}, RequestError, "ref must be a whole number"),
    ("send", {**SEND, "ref": "１２"}, RequestError, "ref must be a whole number"),
    ("send", {**SEND, "fields": "x"}, RequestError, "fields must be an object"),
    ("send", {**SEND, "fields": {"a": 1}}, RequestError, "fields.a must be a text"),
    ("send", {**SEND, "fields": {"": "x"}}, RequestError, "texts as names"),
    ("send", {**SEND, "fields": {"a\0": "x"}}, RequestError, "control characters"),
    ("send", {**SEND, "fields": {"a": "x" * 5000}}, TooLarge, "fields.a may have 4096 bytes, not 5000"),
    ("send", {**SEND, "fields": {str(n): "" for n in range(65)}}, TooLarge, "64 fields, not 65"),
    ("send", {**SEND, "priority": "urgent"}, RequestError, "priority must be one of low, normal, high"),
    ("send", {**SEND, "enc": "rot13"}, RequestError, "enc must be one of"),
    ("send", {**SEND, "key_print": 2**63}, RequestError, "key_print must be"),
    ("send", {**SEND, "subtype": 2**31}, RequestError, "subtype must be"),
    ("gsend", {}, RequestError, "group is missing"),
    ("gsend", {**GSEND, "group": "coffee"}, NotFound, "no group 'coffee'"),
    ("gsend", {**GSEND, "to": "bob"}, RequestError, "gsend knows no 'to'"),
    ("recall", {}, RequestError, "message_id is missing"),
    ("recall", {"message_id": -5}, RequestError, "message_id must be 1 to"),
    ("recall", {"message_id": 5}, NotFound, "no message 5"),
    ("history", {"with": "bob", "group": "tea"}, RequestError, "with or group, not both"),
    ("history", {"with": "nobody"}, NotFound, "no user"),
    ("history", {"limit": 0}, RequestError, "limit must be 1 to"),
    ("history", {"limit": "ten"}, RequestError, "limit must be a whole number"),
    ("history", {"before": -1}, RequestError, "before must be 1 to"),
    ("history", {"after": -1}, RequestError, "after must be 0 to"),
    ("history", {"after": True}, RequestError, "after must be a whole number, not true or false"),
    ("history", {"direction": "sideways"}, RequestError, "direction must be one of forward, backward"),
    ("history", {"befor": 1}, RequestError, "did you mean 'before'?"),
    ("sync", {"cursor": -1}, RequestError, "cursor must be 0 to"),
    ("sync", {"cursor": 10**6}, RequestError, "is not of this inbox"),
    ("sync", {"cursor": 1, "with": {"bob": 1}}, RequestError, "not both"),
    ("sync", {"with": {"bob": -1}}, RequestError, "with.bob must be 0 to"),
    ("sync", {"with": {"bob": "x"}}, RequestError, "with.bob must be a whole number"),
    ("sync", {"with": ["bob"]}, RequestError, "with must be a public id, not a list"),
    ("sync", {"with": {5: 1}}, RequestError, "texts as names"),
    ("sync", {"group": {"coffee": 0}}, NotFound, "no group"),
    ("receive", {"start": -1}, RequestError, "start must be 0 to"),
    ("receive", {"start": 10**6}, RequestError, "is not of this inbox"),
    ("read", {}, RequestError, "with or group is missing"),
    ("read", {"with": "bob", "through": -1}, RequestError, "through must be 0 to"),
    ("receipt", {"kind": "read"}, RequestError, "message_ids is missing"),
    ("receipt", {"message_ids": [], "kind": "read"}, RequestError, "must not be empty"),
    ("receipt", {"message_ids": 5, "kind": "read"}, RequestError, "must be a list"),
    ("receipt", {"message_ids": [0], "kind": "read"}, RequestError, "message_ids must be 1 to"),
    ("receipt", {"message_ids": [1], "kind": "seen"}, RequestError, "kind must be one of delivered, read, both"),
    ("receipt", {"message_ids": [1]}, RequestError, "kind must be one of"),
    ("create_user", {"user": "a\tb"}, RequestError, "control characters"),
    ("create_user", {"user": "0"}, RequestError, "which is the system"),
    ("create_user", {"name": "x" * 257}, TooLarge, "name may have 256 bytes"),
    ("create_user", {"name": 5}, RequestError, "name must be a text"),
    ("create_user", {"city": 5}, RequestError, "params.city must be a text"),
    ("create_user", {"avatar": "x" * 2049}, TooLarge, "avatar may have 2048"),
    ("user", {"user": "nobody"}, NotFound, "no user"),
    ("user", {"name": "x"}, RequestError, "user knows no 'name'"),
    ("contact", {}, RequestError, "user is missing"),
    ("contact", {"user": "nobody"}, NotFound, "no user"),
    ("unlink", {"user": {}}, RequestError, "user must be a public id, not an object"),
    ("contacts", {"user": "bob"}, RequestError, "contacts knows no 'user'; known: cursor, limit"),
    ("block", {}, RequestError, "user is missing"),
    ("unblock", {"user": "alice"}, RequestError, "yourself"),
    ("register_push", {}, RequestError, "provider must be one of apns, fcm, webhook"),
    ("register_push", {"provider": "fcm"}, RequestError, "token is missing"),
    ("register_push", {"provider": "fcm", "token": ""}, RequestError, "token must not be empty"),
    ("register_push", {"provider": "fcm", "token": "a\nb"}, RequestError, "control characters"),
    ("register_push", {"provider": "fcm", "token": "x" * 4097}, TooLarge, "token may have 4096 bytes"),
    ("register_push", {"provider": "apns", "token": "../../3"}, RequestError, "token must be hexadecimal"),
    ("register_push", {"provider": "apns", "token": "aa", "topic": "a b"}, RequestError, "id of an app"),
    ("register_push", {"provider": "apns", "token": "aa", "device": "x"}, RequestError, "knows no 'device'"),
    ("unregister_push", {"token": "aa"}, RequestError, "unregister_push knows no 'token'"),
    ("create_group", {"group": ""}, RequestError, "group must not be empty"),
    ("create_group", {"group": "x" * 65}, TooLarge, "group may have 64 bytes"),
    ("create_group", {"members": "bob"}, RequestError, "members must be a list"),
    ("create_group", {"members": [5.0]}, RequestError, "members must be a public id"),
    ("create_group", {"members": ["nobody"]}, NotFound, "no user"),
    ("create_group", {"needs_approval": 1}, RequestError, "needs_approval must be true or false"),
    ("create_group", {"name": "\n"}, RequestError, "control characters"),
    ("group", {}, RequestError, "group is missing"),
    ("group", {"group": "coffee"}, NotFound, "no group"),
    ("group", {"group": "tea", "offset": -1}, RequestError, "offset must be"),
    ("join", {"group": "coffee"}, NotFound, "no group"),
    ("quit", {"group": "coffee"}, NotFound, "no group"),
    ("manage", {"group": "tea", "user": "bob"}, RequestError, "op must be one of approve, refuse"),
    ("manage", {"group": "tea", "user": "bob", "op": "ban"}, RequestError, "op must be one of"),
    ("manage", {"group": "tea", "user": "nobody", "op": "mute"}, NotFound, "no user"),
    ("schedule", SEND, RequestError, "at is missing"),
    ("schedule", {**SEND, "at": 1}, RequestError, "later than now"),
    ("schedule", {**SEND, "at": LATER}, TooLarge, "ms ahead"),
    ("schedule", {**SEND, "group": "tea", "at": LATER}, RequestError, ""),
    ("unschedule", {}, RequestError, "schedule_id is missing"),
    ("unschedule", {"schedule_id": 99}, NotFound, "no scheduled send 99"),
    ("scheduled", {"x": 1}, RequestError, "knows no 'x'"),
    ("system", SEND, NotAllowed, "for admins"),
    ("broadcast", GSEND, NotAllowed, "for admins"),
    ("push", {}, NotAllowed, "for admins"),
    ("erase_user", {"user": "bob"}, NotAllowed, "for admins"),
    ("ban_user", {"user": "bob"}, NotAllowed, "for admins"),
    ("unban_user", {"user": "bob"}, NotAllowed, "for admins"),
    ("sned", {}, RequestError, "no action 'sned'; did you mean 'send'?"),
    (5, {}, RequestError, "no action '5'"),  # type: ignore[list-item]
]

REFUSED_TO_ADMINS: list[tuple[str, Params, type[PixiuError], str]] = [
    ("push", {"uids": "bob"}, RequestError, "uids must be a list"),
    ("push", {"uids": ["nobody"], "msg_bodies": ["x"]}, NotFound, "no user"),
    ("push", {"uids": ["bob"], "msg_bodies": [5]}, RequestError, "msg_bodies[0] must be a text"),
    ("push", {"uids": ["bob"], "msg_bodies": [{"tex": "x"}]}, RequestError, "did you mean 'text'?"),
    ("push", {"uids": ["bob"], "msg_bodies": [{"@type": 5, "value": ""}]}, RequestError, "must be a text"),
    ("push", {"uids": ["bob"], "msg_bodies": ["x"], "msg_options": -1}, RequestError, "0 to 7"),
    ("push", {"platform_config": []}, RequestError, "platform_config must be an object"),
    ("push", {"platform_config": {"platform": []}}, RequestError, "did you mean 'platforms'?"),
    ("push", {"platform_config": {"platforms": ["first"]}}, RequestError, "must not be 'first'"),
    ("push", {"platform_config": {"platforms": [5]}}, RequestError, "platforms as texts"),
    ("push", {"exclusive_msg_options": {"bob": 9}, "uids": ["bob"]}, RequestError, "0 to 7"),
    ("system", {"text": "x"}, RequestError, "to is missing"),
    ("broadcast", {"text": "x"}, RequestError, "group is missing"),
    ("erase_user", {}, RequestError, "user is missing"),
    ("ban_user", {}, RequestError, "user is missing"),
    ("ban_user", {"user": "nobody"}, NotFound, "no user"),
    ("unban_user", {"user": "nobody"}, NotFound, "no user"),
    ("erase_user", {"user": "nobody"}, NotFound, "no user"),
]


@pytest.mark.feature("R20")
@pytest.mark.parametrize(
    ("action", "params", "error", "message"), REFUSED, ids=[f"{i} {row[0]}" for i, row in enumerate(REFUSED)]
)
def test_what_is_wrong_is_refused_by_name_and_nothing_is_appended(
    world: World, action: str, params: Params, error: type[PixiuError], message: str
) -> None:
    check_refused(world, world.actor("alice"), action, params, error, message)


@pytest.mark.parametrize(("action", "params", "error", "message"), REFUSED_TO_ADMINS)
def test_admins_are_checked_too(
    world: World, action: str, params: Params, error: type[PixiuError], message: str
) -> None:
    check_refused(world, Actor(0, is_admin=True), action, params, error, message)


def check_refused(
    world: World, actor: Actor, action: str, params: Params, error: type[PixiuError], message: str
) -> None:
    before = len(world.log.records), len(world.log.scheduled("pixiu.schedule"))
    with pytest.raises(error) as caught:
        world.ask(actor, action, params)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
    assert (len(world.log.records), len(world.log.scheduled("pixiu.schedule"))) == before


def test_every_verb_has_its_refusals() -> None:
    assert set(VERBS) <= {row[0] for row in [*REFUSED, *REFUSED_TO_ADMINS]}


@pytest.mark.parametrize("action", sorted(VERBS))
def test_nobody_does_nothing(world: World, action: str) -> None:
    for actor in (Actor(0), Actor(5), Actor(2**62), Actor(-1)):
        with pytest.raises(Unauthenticated):
            world.ask(actor, action, {})


# Params as a hostile client might give them: anything JSON can say, and names and ids that exist.

names = st.sampled_from(["alice", "bob", "tea", "0", "", "nobody", "\ud800", "x" * 70, 1, 2**63, 10**400])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8), names,
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=8), names), inner, max_size=3)
    ),
    max_leaves=6,
)
PARAM_NAMES = sorted({name for verb in VERBS.values() for name in verb.params})


SOUND: dict[str, st.SearchStrategy[object]] = {
    "text": st.text(max_size=30),
    "to": st.sampled_from(["alice", "bob"]),
    "user": st.sampled_from(["alice", "bob"]),
    "group": st.sampled_from(["tea", "tea", "coffee"]),
    "with": st.one_of(st.just("bob"), st.dictionaries(st.just("bob"), st.integers(0, 2**62))),
    "op": st.sampled_from(["approve", "refuse", "invite", "remove", "mute", "unmute", "admin", "member", "transfer"]),
    "message_id": st.integers(1, 2**62),
    "message_ids": st.lists(st.integers(1, 2**62), max_size=3),
    "uids": st.lists(st.sampled_from(["alice", "bob"]), max_size=3),
    "msg_bodies": st.lists(st.text(max_size=5), max_size=3),
    "at": st.integers(LATER - 240 * 10**9, LATER - 230 * 10**9),
    "send_id": st.text(max_size=20),
    "limit": st.integers(1, 200),
    "members": st.lists(st.sampled_from(["alice", "bob"]), max_size=3),
}


@st.composite
def actions(draw: st.DrawFn) -> tuple[str, object]:
    """Mostly what the verb knows and wants, with a little that it does not."""
    action = draw(st.sampled_from(sorted(VERBS)))
    if draw(st.integers(0, 30)) == 0:
        return action, draw(values)
    known = sorted(VERBS[action].params)
    params = {each: draw(SOUND[each]) for each in known if each in SOUND and draw(st.integers(0, 3))}
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        others = PARAM_NAMES if not known or draw(st.integers(0, 9)) == 0 else known
        params[draw(st.sampled_from(others))] = draw(values)
    return action, params


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[World]:
    world = World(unlimited(message_bytes_max=100), creates_users=False)
    for name in ("alice", "bob"):
        world.actor(name)
    world.do("alice", "create_group", group="tea", members=["bob"])
    yield world


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(asked=actions(), is_admin=st.booleans())
def test_no_params_bring_anything_but_an_answer_or_a_typed_error(
    fuzzed: World, asked: tuple[str, Params], is_admin: bool
) -> None:
    action, params = asked
    actor = fuzzed.actor("alice")._replace(is_admin=is_admin)
    answers = fuzzed.begin(actor, action, params)
    fuzzed.settle()
    assert len(answers) == 1
    answer = answers[0]
    if isinstance(answer, PixiuError):
        assert answer.code != "internal"
        assert not isinstance(answer, Unauthenticated)
    else:
        json.dumps(answer).encode()
