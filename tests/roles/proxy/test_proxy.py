"""The proxy: repeats, answers in time, limits, first logins."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from pixiu.config.messaging import MessagingSettings
from pixiu.im.draft import Actor, Answer
from pixiu.model.errors import Conflict, NotFound, Overloaded, PixiuError, RateLimited, Unauthenticated, Unavailable
from pixiu.ports.log import MAIN
from pixiu.ports.sendkeys import SendKeys, Sent
from pixiu.roles.proxy.catching_up import PATIENCE_MS
from pixiu.roles.proxy.metrics import METRICS, snapshot
from tests.im.world import World, messages, unlimited

SEND = {"to": "bob", "text": "hi", "send_id": "s1"}


def said(world: World) -> int:
    """How many messages were said."""
    return sum(1 for record in world.records() if record.chat)


# Repeats.


def test_a_repeat_gets_the_first_answer_from_the_index() -> None:
    world = World()
    alice = world.actor("alice")
    first = world.ask(alice, "send", dict(SEND))
    world.pass_time(100)
    answers = world.begin(alice, "send", {**SEND, "text": "changed"})
    assert answers == [first]
    assert said(world) == 1


def test_a_repeat_that_is_not_applied_yet_gets_the_first_answer_from_the_log() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    world.is_applying = False
    first = world.begin(alice, "send", dict(SEND))
    world.turns.run_for(50)
    assert len(first) == 1
    second = world.begin(alice, "send", dict(SEND))
    world.turns.run_for(50)
    assert second == []  # when it was said is known once it is applied
    world.is_applying = True
    world.settle()
    assert second == first
    assert said(world) == 1


def test_repeats_in_flight_are_one_message() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    answers = [world.begin(alice, "send", dict(SEND)) for _ in range(5)]
    world.settle()
    assert [len(each) for each in answers] == [1] * 5
    assert len({str(each[0]) for each in answers}) == 1
    assert said(world) == 1


def test_the_same_send_id_of_another_user_or_none_at_all_is_another_message() -> None:
    world = World()
    world.do("alice", "send", dict(SEND))
    world.do("carol", "send", dict(SEND))
    world.do("alice", "send", to="bob", text="hi")
    world.do("alice", "send", to="bob", text="hi")
    assert said(world) == 4


def test_a_send_id_is_a_text_or_a_number_and_both_are_the_same() -> None:
    world = World()
    first = world.do("alice", "send", to="bob", text="hi", send_id="77")
    assert world.do("alice", "send", to="bob", text="hi", send_id=77) == first


class _ForgetfulLog:
    """A log whose memory of keys does not reach back, a number of times."""

    def __init__(self, world: World, times: int) -> None:
        self._log = world.log
        self._turns = world.turns
        self.times = times

    def append(self, topic: str, payload: bytes, done, *, key: bytes = b"", unless_after: int = 0) -> None:  # type: ignore[no-untyped-def]
        if key and self.times:
            self.times -= 1
            self._turns.soon(lambda: done(Conflict("behind: too many to read back")))
        else:
            self._log.append(topic, payload, done, key=key, unless_after=unless_after)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


@pytest.mark.parametrize(("times", "is_said"), [(1, True), (2, True), (3, False)])
def test_when_the_index_is_too_far_behind_the_proxy_waits_for_it_and_tries_again(times: int, is_said: bool) -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    world.proxy.appends._log = _ForgetfulLog(world, times)  # type: ignore[assignment]
    answers = world.begin(alice, "send", dict(SEND))
    world.settle()
    assert said(world) == int(is_said)
    assert isinstance(answers[0], dict if is_said else Unavailable)
    assert world.proxy.appends.in_flight == 0


def test_repeats_that_wait_for_the_index_are_bounded() -> None:
    world = World(in_flight_max=2)
    alice = world.actor("alice")
    world.number("bob")
    world.is_applying = False
    world.begin(alice, "send", dict(SEND))
    world.settle()
    answers = []
    for _ in range(3):
        answers.append(world.begin(alice, "send", dict(SEND)))
        world.settle()
    assert [[type(one) for one in each] for each in answers] == [[], [], [Unavailable]]
    world.is_applying = True
    world.settle()
    assert [len(each) for each in answers] == [1, 1, 1]
    assert world.proxy.appends.waiting == 0


def test_a_store_that_is_down_is_told_to_the_caller() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    keys = world.proxy.appends._keys
    world.proxy.appends._keys = cast("SendKeys", Down())
    with pytest.raises(Unavailable, match="the store is down"):
        world.ask(alice, "send", dict(SEND))
    world.proxy.appends._keys = keys
    assert world.ask(alice, "send", dict(SEND))["message_id"]
    assert said(world) == 1


class Down:
    """An index of keys that cannot be reached, or fails in another way."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error or Unavailable("the store is down")

    def get(self, key: bytes) -> Sent | None:
        raise self._error

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Sent]:
        raise self._error

    def put(self, key: bytes, sent: Sent) -> None:
        raise self._error


# Answers.


def test_sends_are_answered_when_committed_and_other_changes_when_applied() -> None:
    world = World()
    alice = world.actor("alice")
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.is_applying = False
    sends = [
        world.begin(alice, "send", {"to": "bob", "text": "x"}),
        world.begin(alice, "gsend", {"group": "tea", "text": "x"}),
        world.begin(alice._replace(is_admin=True), "push", {"uids": ["bob"], "msg_bodies": ["x"]}),
    ]
    changes = [
        world.begin(alice, "contact", {"user": "bob"}),
        world.begin(alice, "read", {"with": "bob"}),
        world.begin(alice, "manage", {"group": "tea", "user": "bob", "op": "mute"}),
    ]
    assert sends == [[], [], []]
    world.settle()
    assert [len(each) for each in sends] == [1, 1, 1]
    assert [len(each) for each in changes] == [0, 0, 0]
    assert world.proxy.unapplied == 3
    world.is_applying = True
    world.settle()
    assert [len(each) for each in changes] == [1, 1, 1]
    assert world.proxy.unapplied == 0


def test_whoever_changed_something_reads_it() -> None:
    world = World()
    contacts = world.do("alice", "contact", user="bob")
    assert contacts["contacts"] == world.do("alice", "contacts")["contacts"]
    assert [row["user"] for row in contacts["contacts"]] == ["bob"]  # type: ignore[attr-defined]


def test_a_log_that_refuses_is_told_to_the_caller_and_nothing_was_done() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    world.log.refusal = Unavailable("the disk is full")
    for action, params in (
        ("send", {"to": "bob", "text": "x"}),
        ("contact", {"user": "bob"}),
        ("schedule", {"to": "bob", "text": "x", "at": world.clock.now_ms() + 5}),
    ):
        with pytest.raises(Unavailable, match="the disk is full"):
            world.ask(alice, action, params)
    world.log.refusal = None
    assert world.do("alice", "contacts")["contacts"] == []
    assert world.proxy.appends.in_flight == 0


# Limits.


@pytest.mark.feature("C38")
def test_a_user_may_send_in_bursts_and_so_often_on_average() -> None:
    world = World(replace(MessagingSettings(), sends_per_second=10, send_burst=5))
    alice, bob = world.actor("alice"), world.actor("bob")
    send = {"to": "bob", "text": "x"}
    for _ in range(5):
        world.ask(alice, "send", send)
    with pytest.raises(RateLimited, match="at most 10 actions a second") as caught:
        world.ask(alice, "send", send)
    assert caught.value.retry_after_ms == 100
    world.ask(bob, "send", send)
    world.ask(alice, "contacts", {})
    world.pass_time(caught.value.retry_after_ms)
    world.ask(alice, "send", send)
    with pytest.raises(RateLimited):
        world.ask(alice, "send", send)
    world.ask(alice._replace(is_admin=True), "send", send)


def test_more_appends_than_may_be_under_way_are_refused_as_busy() -> None:
    world = World(in_flight_max=3)
    alice = world.actor("alice")
    world.number("bob")
    answers = [world.begin(alice, "send", {"to": "bob", "text": str(each)}) for each in range(5)]
    assert [[type(one) for one in each] for each in answers] == [[], [], [], [Overloaded], [Overloaded]]
    world.settle()
    assert said(world) == 3
    assert world.do("alice", "send", to="bob", text="again")["message_id"]


def test_more_changes_than_may_wait_to_be_applied_are_refused_and_sends_go_on() -> None:
    world = World(in_flight_max=2)
    alice = world.actor("alice")
    for name in ("bob", "carol", "dave"):
        world.number(name)
    world.is_applying = False
    answers = []
    for name in ("bob", "carol", "dave"):
        answers.append(world.begin(alice, "contact", {"user": name}))
        world.settle()
    assert [[type(one) for one in each] for each in answers] == [[], [], [Overloaded]]
    assert isinstance(world.ask(alice, "send", {"to": "bob", "text": "x"}), dict)


# What the stores do not show yet.


@pytest.mark.feature("B07")
def test_what_was_accepted_can_be_recalled_before_the_stores_have_it() -> None:
    world = World()
    alice, bob = world.actor("alice"), world.actor("bob")
    world.do("alice", "create_group", group="team", members=["bob"])
    world.is_applying = False
    sent = world.ask(alice, "send", {"to": "bob", "text": "oops"})
    said_there = world.ask(bob, "gsend", {"group": "team", "text": "oops"})
    waiting = [
        world.begin(alice, "recall", {"message_id": sent["message_id"]}),
        world.begin(bob, "recall", {"message_id": said_there["message_id"]}),
        world.begin(bob, "receipt", {"message_ids": [sent["message_id"]], "kind": "read"}),
    ]
    world.settle()
    assert waiting == [[], [], []] and world.proxy.catching_up.waiting == 3
    world.is_applying = True
    world.settle()
    assert waiting == [[{}], [{}], [{"marked": 1}]] and not world.proxy.catching_up.waiting
    assert "oops" not in [*world.texts("bob", {"with": "alice"}), *world.texts("alice", group="team")]


def test_who_names_a_message_that_stores_never_show_is_told_to_come_again() -> None:
    world = World(in_flight_max=2)
    alice = world.actor("alice")
    world.number("bob")
    world.is_applying = False
    sent = world.ask(alice, "send", {"to": "bob", "text": "oops"})
    answers = [world.begin(alice, "recall", {"message_id": sent["message_id"]}) for _ in range(3)]
    assert [[type(one) for one in each] for each in answers] == [[], [], [Overloaded]]
    world.pass_time(PATIENCE_MS + 1)
    assert [[type(one) for one in each] for each in answers] == [[Unavailable], [Unavailable], [Overloaded]]
    world.is_applying = True
    world.settle()
    assert all(len(each) == 1 for each in answers), "nobody is told twice"
    assert len(messages(world.do("bob", "history", {"with": "alice"}))) == 1, "nor recalled behind their backs"


def test_what_is_not_there_is_told_once_the_stores_have_caught_up() -> None:
    world = World()
    alice = world.actor("alice")
    world.number("bob")
    at_once = world.begin(alice, "recall", {"message_id": "5"})
    assert len(at_once) == 1 and isinstance(at_once[0], NotFound)
    world.is_applying = False
    world.ask(alice, "send", {"to": "bob", "text": "hello"})
    answers = world.begin(alice, "recall", {"message_id": "5"})
    assert answers == []
    world.is_applying = True
    world.settle()
    assert len(answers) == 1 and isinstance(answers[0], NotFound) and world.proxy.refused["not_found"] == 2


# Logins.


def open_inbox(world: World, user: int, platform: str) -> Answer | PixiuError:
    answers: list[Answer | PixiuError] = []
    world.proxy.open_inbox(user, platform, answers.append)
    world.settle()
    assert len(answers) == 1
    return answers[0]


def test_an_inbox_opens_with_the_first_login_on_a_platform() -> None:
    world = World()
    user = world.number("alice")
    world.do("bob", "send", to="alice", text="while away")
    assert open_inbox(world, user, "web") == {"platform": "web"}
    assert world.stores.inboxes.platforms(user) == ("web",)
    before = len(world.log.records)
    assert open_inbox(world, user, "web") == {"platform": "web"}
    assert len(world.log.records) == before
    assert [each["text"] for each in messages(world.ask(Actor(user, "web"), "receive", {}))] == ["while away"]
    open_inbox(world, user, "mobile")
    assert world.stores.inboxes.platforms(user) == ("web", "mobile")


def test_an_inbox_is_a_known_users_on_a_sound_platform() -> None:
    world = World()
    user = world.number("alice")
    assert isinstance(open_inbox(world, 12345, "web"), Unauthenticated)
    for platform in ("", "first", "x" * 33, "a\n"):
        assert isinstance(open_inbox(world, user, platform), PixiuError)


def test_whom_a_token_names_is_found_or_created_once() -> None:
    world = World(creates_users=False)
    found: list[int | PixiuError] = []
    world.proxy.find_user("alice", found.append)
    assert isinstance(found[0], NotFound)
    world.proxy.find_user("a\n", found.append)
    assert isinstance(found[1], PixiuError)
    both: list[int | PixiuError] = []
    world.proxy.find_user("alice", both.append, creates=True)
    world.proxy.find_user("alice", both.append, creates=True)
    world.settle()
    assert both == [world.stores.users.number_of("alice")] * 2
    assert len(world.stores.users.all()) == 1


# What is counted.


def test_the_metrics_are_those_declared_and_count() -> None:
    world = World()
    world.do("alice", "send", dict(SEND))
    world.do("alice", "send", dict(SEND))
    with pytest.raises(NotFound):
        world.do("alice", "join", group="tea")
    values = snapshot(world.proxy)
    assert set(values) == {metric.name for metric in METRICS}
    assert values["pixiu_proxy_actions_total"][("send",)] == 2  # type: ignore[index]
    assert values["pixiu_proxy_refused_total"] == {("not_found",): 1}
    assert values["pixiu_proxy_repeats_total"] == 1


def test_everything_the_proxy_writes_is_on_the_main_topic() -> None:
    world = World(unlimited())
    world.do("alice", "send", to="bob", text="x")
    assert {each.topic for each in world.log.records} == {MAIN}
