"""APNs over real HTTP/2 with TLS: what is asked, what the answers mean, and how many go at a time."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pixiu.backends.phones.apns import ApnsNotifications
from pixiu.backends.phones.credentials import APNS_FORCED_MS, APNS_RENEW_MS
from pixiu.model.errors import ConfigError
from pixiu.model.push_token import PushToken
from pixiu.ports.notifications import Notification, Refused
from tests.backends.phones.apple import TOPIC, Apple, apple_server

pytestmark = pytest.mark.feature("T2")

PHONE = PushToken(2, "ios", "phone", "apns", "00ff", at=1_000)
HELLO = Notification("bert", "ios", 2**61, "u:1", "anna", "hello 貔貅", 3, PHONE, "Anna")


class HandClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_760_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now * 1000


class Stage:
    """APNs, and what it was given back."""

    def __init__(self, apple: Apple, **settings: Any) -> None:
        self.clock = HandClock()
        self.apns = ApnsNotifications(asyncio.get_running_loop(), self.clock, apple.settings(**settings))
        self.answers: list[Refused | None] = []

    async def tell(self, *notifications: Notification) -> list[Refused | None]:
        count = len(self.answers) + len(notifications)
        for notification in notifications:
            self.apns.send(notification, self.answers.append)
        async with asyncio.timeout(20):
            while len(self.answers) < count:
                await asyncio.sleep(0.005)
        return self.answers[count - len(notifications) :]


@pytest.fixture
async def apple(tmp_path: Path) -> AsyncIterator[Apple]:
    async with apple_server(tmp_path) as apple:
        yield apple


@pytest.fixture
async def stage(apple: Apple) -> AsyncIterator[Stage]:
    stage = Stage(apple)
    yield stage
    await stage.apns.close()


async def test_a_request_has_what_apple_asks_for(apple: Apple, stage: Stage) -> None:
    assert await stage.tell(HELLO) == [None]
    (headers,) = apple.headers
    assert (headers[":method"], headers[":path"]) == ("POST", "/3/device/00ff")
    assert headers["apns-topic"] == TOPIC
    assert headers["apns-push-type"] == "alert"
    assert headers["apns-priority"] == "10"
    assert headers["apns-expiration"] == str(stage.clock.now // 1000 + 86_400)
    assert headers["apns-collapse-id"] == "u:1"
    assert apple.payloads == [
        {
            "aps": {
                "alert": {"title": "Anna", "body": "hello 貔貅"},
                "badge": 3,
                "sound": "default",
                "thread-id": "u:1",
                "mutable-content": 1,
            },
            "pixiu": {"user": "bert", "conversation": "u:1", "message_id": str(2**61), "sender": "anna"},
        }
    ]


async def test_many_go_over_one_connection_so_many_at_a_time_and_more_wait_or_are_refused(apple: Apple) -> None:
    stage = Stage(apple, in_flight_max=8, waiting_max=20)
    apple.delay_seconds = 0.02
    answers = await stage.tell(*[HELLO] * 40)
    assert answers.count(None) == 28
    assert {answer.reason for answer in answers if answer} == {"20 notifications wait for APNs already"}
    assert (apple.connections, apple.open_most) == (1, 8)
    assert len({headers["apns-id"] for headers in apple.headers}) == 1, "the same one is known by its id"
    await stage.apns.close()


async def test_the_token_is_made_anew_between_20_and_60_minutes(apple: Apple, stage: Stage) -> None:
    for minutes in range(0, 121, 10):
        apple.now_seconds = stage.clock.now // 1000
        assert await stage.tell(HELLO) == [None], minutes
        stage.clock.now += 10 * 60_000
    assert len(apple.bearers) == 3
    assert 20 * 60_000 <= APNS_FORCED_MS < APNS_RENEW_MS < 60 * 60_000


async def test_a_clock_that_is_set_back_makes_a_new_token(apple: Apple, stage: Stage) -> None:
    await stage.tell(HELLO)
    stage.clock.now -= 86_400_000
    assert await stage.tell(HELLO) == [None]
    assert len(apple.bearers) == 2


async def test_a_token_that_apple_calls_expired_is_made_anew_once(apple: Apple, stage: Stage) -> None:
    assert await stage.tell(HELLO) == [None]
    stage.clock.now += 5_000
    apple.answers = [(403, "ExpiredProviderToken")]
    assert await stage.tell(HELLO) == [None]
    assert len(apple.headers) == 3
    assert len(apple.bearers) == 2
    apple.answers = [(403, "ExpiredProviderToken")]
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert "check the clock of this machine" in refused.reason
    assert len(apple.headers) == 4, "yet another token so soon would not help"


@pytest.mark.parametrize("reason", ["Unregistered", "ExpiredToken"])
async def test_a_phone_that_is_gone_is_to_be_retired(apple: Apple, stage: Stage, reason: str) -> None:
    apple.gone = {"00ff": 5_000}
    assert await stage.tell(HELLO) == [Refused("APNs answered with status 410 Unregistered", True, 5_000)]
    apple.answers = [(410, reason)]
    (refused,) = await stage.tell(HELLO)
    assert refused == Refused(f"APNs answered with status 410 {reason}", True)


async def test_a_token_that_is_none_is_to_be_retired(apple: Apple, stage: Stage) -> None:
    apple.unknown = {"00ff"}
    assert await stage.tell(HELLO) == [Refused("APNs answered with status 400 BadDeviceToken", True)]


@pytest.mark.parametrize(
    ("status", "word", "advice"),
    [
        (403, "InvalidProviderToken", "check phones.apns_key_file, apns_key_id and apns_team_id"),
        (403, "MissingProviderToken", "check phones.apns_key_file"),
        (403, "BadEnvironmentKeyInToken", "check phones.apns_url"),
        (400, "TopicDisallowed", "check phones.apns_topic"),
        (400, "DeviceTokenNotForTopic", "the phone has another app"),
        (404, "BadPath", "status 404 BadPath"),
    ],
)
async def test_a_mistake_in_the_settings_is_told_and_no_phone_is_blamed(
    apple: Apple, stage: Stage, caplog: pytest.LogCaptureFixture, status: int, word: str, advice: str
) -> None:
    apple.answers = [(status, word)] * 2
    with caplog.at_level(logging.ERROR):
        for refused in await stage.tell(HELLO, HELLO):
            assert refused is not None
            assert advice in refused.reason
            assert not refused.is_token_dead
    assert len(caplog.records) == 1, "once is enough"
    assert "00ff" not in str(vars(caplog.records[0]))


async def test_a_key_of_another_account_is_refused_by_apple(apple: Apple) -> None:
    apple.private = ec.generate_private_key(ec.SECP256R1())
    stage = Stage(apple)
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert "InvalidProviderToken" in refused.reason
    await stage.apns.close()


async def test_too_many_for_one_phone_do_not_hold_up_the_others(apple: Apple, stage: Stage) -> None:
    apple.answers = [(429, "TooManyRequests")]
    first, second = await stage.tell(HELLO, HELLO)
    assert first == Refused("APNs answered with status 429 TooManyRequests")
    assert second is None


@pytest.mark.parametrize("answer", [(503, "ServiceUnavailable"), (500, "InternalServerError"), (503, "Shutdown")])
async def test_a_provider_that_is_down_is_left_alone_for_a_while(
    apple: Apple, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: tuple[int, str]
) -> None:
    monkeypatch.setattr("pixiu.backends.phones.sender.BACKOFF_MS_MIN", 20)
    stage = Stage(apple, in_flight_max=1)
    apple.answers = [answer, answer, (200, ""), answer]
    with caplog.at_level(logging.WARNING):
        answers = await stage.tell(*[HELLO] * 5)
    assert [answer is None for answer in answers] == [False, False, True, False, True]
    waits = [vars(record)["wait_ms"] for record in caplog.records]
    assert waits == [20, 40, 20], "longer each time, until all is well again"
    assert len(apple.headers) == 5
    await stage.apns.close()


async def test_a_connection_that_was_lost_is_opened_again(apple: Apple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.backends.phones.sender.BACKOFF_MS_MIN", 10)
    stage = Stage(apple)
    assert await stage.tell(HELLO) == [None]
    apple.hang_up()
    for _ in range(3):  # the first one may find out
        answers = await stage.tell(HELLO)
    assert answers == [None]
    assert apple.connections == 2
    await stage.apns.close()


async def test_a_provider_that_is_not_there_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.backends.phones.sender.BACKOFF_MS_MIN", 10)
    async with apple_server(tmp_path) as gone:
        pass
    stage = Stage(gone, timeout_ms=2000)
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert refused.reason.startswith("APNs: ConnectError")
    assert not refused.is_token_dead
    await stage.apns.close()


async def test_a_provider_that_takes_too_long_is_a_failure(apple: Apple) -> None:
    apple.delay_seconds = 20
    stage = Stage(apple, timeout_ms=700)
    assert await stage.tell(HELLO) == [Refused("APNs: no answer within 0.7 s")]
    apple.delay_seconds = 0
    assert await stage.tell(HELLO) == [None]
    assert apple.connections == 2, "a connection that is silent is given up"
    await stage.apns.close()


async def test_closing_gives_up_what_is_under_way(apple: Apple) -> None:
    apple.delay_seconds = 5
    stage = Stage(apple)
    stage.apns.send(HELLO, stage.answers.append)
    async with asyncio.timeout(20):
        while not apple.open_now:
            await asyncio.sleep(0.005)
    await stage.apns.close()
    assert stage.answers == []


async def test_a_server_with_another_certificate_is_not_trusted(apple: Apple, stage: Stage) -> None:
    await stage.apns.close()
    strict = replace(apple.settings(), ca_file="")
    stage.apns = ApnsNotifications(asyncio.get_running_loop(), stage.clock, strict)
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert "CERTIFICATE_VERIFY_FAILED" in refused.reason
    assert apple.headers == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"apns_key_id": ""}, "phones.apns_key_id must be set"),
        ({"apns_team_id": ""}, "phones.apns_team_id must be set"),
        ({"apns_topic": ""}, "phones.apns_topic must be set"),
        ({"apns_key_file": "/nowhere/key.p8"}, "cannot read /nowhere/key.p8: No such file"),
        ({"apns_key_file": "RSA"}, "must hold a P-256 key"),
        ({"apns_key_file": "TEXT"}, "holds no private key"),
        ({"apns_url": "ftp://x"}, "phones.apns_url must be an http or https URL"),
        ({"ca_file": "/nowhere/ca.pem"}, "phones.ca_file"),
    ],
)
async def test_settings_that_cannot_work_are_refused_at_the_start(
    apple: Apple, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "RSA").write_bytes(other.private_bytes(serialization.Encoding.PEM, form, plain))
    (tmp_path / "TEXT").write_text("no key")
    given: dict[str, Any] = {
        key: str(tmp_path / value) if value in ("RSA", "TEXT") else value for key, value in changes.items()
    }
    settings = replace(apple.settings(), **given)
    with pytest.raises(ConfigError, match=words):
        ApnsNotifications(asyncio.get_running_loop(), HandClock(), settings)


@pytest.mark.parametrize("package", ["httpx", "h2"])
async def test_a_package_that_is_missing_is_named(apple: Apple, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"phones need the package {package}; install it with: "):
        Stage(apple)


@pytest.mark.parametrize("mode", [0o600, 0o644])
async def test_a_key_that_others_can_read_is_pointed_out(
    apple: Apple, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    apple.key_file.chmod(mode)
    with caplog.at_level(logging.WARNING):
        await Stage(apple).apns.close()
    assert [record.message for record in caplog.records] == ["others can read a provider's key"] * (mode == 0o644)
