"""The horn: who is told, how often, and what becomes of failures."""

import logging
import random

import pytest

from pixiu.backends.memory.push_tokens import MemoryPushTokens
from pixiu.backends.memory.users import MemoryUsers
from pixiu.config.messaging import HornSettings
from pixiu.model.errors import Unavailable
from pixiu.model.failure import Failure
from pixiu.model.pixiu_pb2 import Notify, Task
from pixiu.model.push_token import PushToken
from pixiu.model.user import Profile
from pixiu.ports.notifications import Notification, Refused, Told
from pixiu.roles.horn.horn import Horn
from pixiu.roles.horn.providers import LoggedNotifications, NoNotifications
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler


class Phones:
    """A provider that keeps what it is given, and fails for some platforms."""

    def __init__(self) -> None:
        self.sent: list[Notification] = []
        self.broken: set[str] = set()

    def send(self, notification: Notification, done: Told) -> None:
        self.sent.append(notification)
        done(Refused("no such device") if notification.platform in self.broken else None)


class Stage:
    def __init__(self, collapse_ms: int = 1000) -> None:
        self.scheduler = SimulatedScheduler(SimulatedClock(), random.Random(1), slow_us=0, pause_chance=0)
        self.users = MemoryUsers()
        self.users.put(Profile(1, "anna", "Anna"))
        self.users.put(Profile(2, "bert", "Bert"))
        self.phones = Phones()
        self.horn = Horn(self.users, self.phones, self.scheduler, HornSettings(collapse_ms=collapse_ms))
        self.answers: list[Failure | None] = []

    def perform(self, message_id: int, *platforms: str, conversation: str = "u:1", user: int = 2) -> None:
        notify = Notify(
            user=user, platforms=platforms, message_id=message_id, conversation=conversation, unread=3, text="hi"
        )
        setattr(notify, "from", 1)
        self.horn.perform(Task(notify=notify), self.answers.append)

    def run(self, ms: float = 2000) -> None:
        self.scheduler.run_for(ms)


@pytest.mark.feature("T2")
def test_each_platform_that_is_named_is_told_once_with_public_ids() -> None:
    stage = Stage()
    stage.perform(10, "ios", "web", "ios")
    stage.run()
    assert stage.phones.sent == [
        Notification("bert", platform, 10, "u:1", "anna", "hi", 3, sender_name="Anna") for platform in ("ios", "web")
    ]
    assert stage.answers == [None]
    assert stage.horn.counters.sent == 2


def test_of_a_conversation_that_talks_fast_the_newest_is_shown() -> None:
    stage = Stage(collapse_ms=1000)
    for message_id in range(10, 20):
        stage.perform(message_id, "ios")
        stage.run(50)
    assert stage.phones.sent == []
    stage.run(1000)
    assert [notification.message_id for notification in stage.phones.sent] == [19]
    assert stage.answers == [None] * 10
    assert stage.horn.counters.collapsed == 9
    stage.perform(20, "ios")
    stage.run()
    assert [notification.message_id for notification in stage.phones.sent] == [19, 20]


def test_other_conversations_and_platforms_are_told_apart() -> None:
    stage = Stage()
    stage.perform(10, "ios")
    stage.perform(11, "ios", conversation="g:7")
    stage.perform(12, "web")
    stage.run()
    assert [notification.message_id for notification in stage.phones.sent] == [10, 11, 12]


def test_an_older_message_that_is_tried_again_does_not_replace_a_newer_one() -> None:
    stage = Stage()
    stage.perform(11, "ios")
    stage.perform(10, "ios")
    stage.run()
    assert [notification.message_id for notification in stage.phones.sent] == [11]
    assert stage.answers == [None, None]


@pytest.mark.feature("P08")
def test_the_failure_names_the_platforms_that_were_not_told() -> None:
    stage = Stage(collapse_ms=0)
    stage.phones.broken = {"web"}
    stage.perform(10, "ios", "web")
    stage.run()
    assert stage.answers == [Failure("no such device", ("web",))]
    assert (stage.horn.counters.sent, stage.horn.counters.failed) == (1, 1)


def test_a_user_who_does_not_exist_is_told_nothing() -> None:
    stage = Stage()
    stage.perform(10, "ios", user=404)
    stage.perform(10)
    stage.run()
    assert stage.phones.sent == []
    assert stage.answers == [None, None]


def test_the_number_of_conversations_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.roles.horn.horn._WAITING_MAX", 2)
    stage = Stage()
    for number in range(4):
        stage.perform(number, "ios", conversation=f"u:{number}")
    assert [notification.message_id for notification in stage.phones.sent] == [2, 3]
    stage.run()
    assert len(stage.phones.sent) == 4


def test_a_stopped_horn_tells_nobody_and_finishes_nothing() -> None:
    stage = Stage()
    stage.perform(10, "ios")
    stage.horn.stop()
    stage.run()
    assert (stage.phones.sent, stage.answers) == ([], [])


def test_the_log_is_told_everything_but_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    answers: list[Refused | None] = []
    provider = LoggedNotifications(stage.scheduler)
    with caplog.at_level(logging.INFO):
        provider.send(Notification("bert", "ios", 10, "u:1", "anna", "a secret", 3), answers.append)
    stage.run()
    assert answers == [None]
    (record,) = caplog.records
    assert vars(record)["platform"] == "ios"
    assert "a secret" not in str(vars(record))


def test_nobody_can_be_told_too() -> None:
    stage = Stage()
    answers: list[Refused | None] = []
    NoNotifications(stage.scheduler).send(Notification("bert", "ios", 10, "u:1", "anna", "", 3), answers.append)
    assert answers == []
    stage.run()
    assert answers == [None]


class PhoneStage(Stage):
    """With push tokens; ``dead`` tokens are gone, since when they say."""

    def __init__(self, collapse_ms: int = 0) -> None:
        super().__init__(collapse_ms)
        self.tokens = MemoryPushTokens()
        self.retired: list[PushToken] = []
        self.dead: dict[str, int | None] = {}
        self.broken: set[str] = set()
        self.told: list[str] = []
        self.horn = Horn(
            self.users, self, self.scheduler, HornSettings(provider="phones", collapse_ms=collapse_ms), self.tokens,
            self.retired.append,
        )  # fmt: skip
        for event_id, (platform, device) in enumerate((("ios", "a"), ("ios", "b"), ("android", "c")), 1):
            self.tokens.put(PushToken(2, platform, device, "fcm", f"t{device}", at=1000, event_id=event_id))

    def send(self, notification: Notification, done: Told) -> None:
        assert notification.push_token is not None
        token = notification.push_token.token
        self.told.append(token)
        if token in self.dead:
            done(Refused("gone", is_token_dead=True, dead_since=self.dead[token]))
        else:
            done(Refused(f"no {token}") if token in self.broken else None)

    def again(self, failure: Failure, message_id: int = 10) -> None:
        """As the log gives it back."""
        notify = Notify(
            user=2, platforms=failure.platforms, message_id=message_id, conversation="u:1", devices=failure.devices
        )
        self.horn.perform(Task(notify=notify), self.answers.append)
        self.run()


@pytest.mark.feature("T2")
def test_each_phone_of_the_platforms_that_are_named_is_told_once() -> None:
    stage = PhoneStage()
    stage.perform(10, "ios")
    stage.run()
    assert stage.told == ["ta", "tb"]
    stage.perform(11, "ios", "android", "web")
    stage.run()
    assert stage.told[2:] == ["ta", "tb", "tc"]
    assert stage.answers == [None, None]
    assert (stage.horn.counters.sent, stage.horn.counters.unreachable) == (5, 1)


def test_who_never_logged_in_is_told_on_every_phone() -> None:
    stage = PhoneStage()
    stage.perform(10, "first")
    stage.run()
    assert stage.told == ["ta", "tb", "tc"]


@pytest.mark.feature("T2", "P08")
def test_after_a_failure_only_the_phones_that_were_not_told_are_told_again() -> None:
    stage = PhoneStage()
    stage.broken = {"tb", "tc"}
    stage.perform(10, "ios", "android")
    stage.run()
    (failure,) = stage.answers
    assert failure == Failure("no tc", ("ios", "android"), devices=("ios/b", "android/c"))
    stage.told.clear()
    stage.broken = {"tc"}
    stage.again(failure)
    assert stage.told == ["tb", "tc"]
    failure = stage.answers[1]
    assert failure == Failure("no tc", ("android",), devices=("android/c",))
    stage.tokens.remove(2, "android", "c")
    stage.again(failure)
    assert stage.answers[2] is None, "who has gone meanwhile is told no more"
    assert stage.told == ["tb", "tc"]


def test_a_token_that_is_dead_is_retired_unless_it_was_registered_later() -> None:
    stage = PhoneStage()
    stage.dead = {"ta": None, "tb": 999, "tc": 1000}
    stage.perform(10, "ios", "android")
    stage.run()
    assert stage.answers == [None]
    assert [each.token for each in stage.retired] == ["ta", "tc"]
    assert (stage.horn.counters.retired, stage.horn.counters.failed, stage.horn.counters.sent) == (2, 0, 0)


def test_a_store_that_is_down_is_a_failure_of_that_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = PhoneStage()

    def fail(user: int) -> list[PushToken]:
        raise Unavailable("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(stage.tokens, "of", fail)
        stage.perform(10, "ios")
        stage.run()
    (failure,) = stage.answers
    assert failure == Failure("the store is down", ("ios",), devices=("ios",))
    stage.again(failure)
    assert stage.told == ["ta", "tb"]


def test_phones_are_told_of_the_newest_of_a_conversation_alone() -> None:
    stage = PhoneStage(collapse_ms=1000)
    for message_id in (10, 11, 12):
        stage.perform(message_id, "ios")
    stage.run()
    assert stage.told == ["ta", "tb"]
    assert stage.answers == [None, None, None]
