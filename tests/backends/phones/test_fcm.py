"""FCM with a real HTTP server: access tokens, what is asked, what the answers mean."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pixiu.backends.phones.fcm import FcmNotifications
from pixiu.model.errors import ConfigError
from pixiu.model.push_token import PushToken
from pixiu.ports.notifications import Notification, Refused
from pixiu.runtime.clock import SystemClock
from tests.backends.phones.google import PROJECT, Google, Reply, google_server, refusal

pytestmark = pytest.mark.feature("T2")

NAMES = ("project_id", "client_email", "private_key", "private_key_id", "token_uri")
PHONE = PushToken(2, "android", "phone", "fcm", "token:1")
HELLO = Notification("bert", "android", 2**61, "g:7", "anna", "hello 貔貅", 3, PHONE, "Anna")


class Stage:
    """FCM, and what it was given back. Its clock runs, and can be put forward."""

    def __init__(self, google: Google, **settings: Any) -> None:
        self.later_ms = 0
        self._clock = SystemClock()
        self.fcm = FcmNotifications(asyncio.get_running_loop(), self, google.settings(**settings))
        self.answers: list[Refused | None] = []

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.later_ms

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    async def tell(self, *notifications: Notification) -> list[Refused | None]:
        count = len(self.answers) + len(notifications)
        for notification in notifications:
            self.fcm.send(notification, self.answers.append)
        async with asyncio.timeout(20):
            while len(self.answers) < count:
                await asyncio.sleep(0.005)
        return self.answers[count - len(notifications) :]


@pytest.fixture
async def google(tmp_path: Path) -> AsyncIterator[Google]:
    async with google_server(tmp_path) as google:
        yield google


@pytest.fixture
async def stage(google: Google, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr("pixiu.backends.phones.sender.BACKOFF_MS_MIN", 10)
    stage = Stage(google)
    yield stage
    await stage.fcm.close()


async def test_a_message_has_what_google_asks_for(google: Google, stage: Stage) -> None:
    assert await stage.tell(HELLO) == [None]
    assert google.paths == ["/token", f"/v1/projects/{PROJECT}/messages:send"]
    (claims,) = google.assertions
    assert claims["scope"] == "https://www.googleapis.com/auth/firebase.messaging"
    assert claims["exp"] - claims["iat"] == 3600
    assert google.messages == [
        {
            "token": "token:1",
            "notification": {"title": "Anna", "body": "hello 貔貅"},
            "data": {"user": "bert", "conversation": "g:7", "message_id": str(2**61), "sender": "anna"},
            "android": {
                "collapse_key": "g:7",
                "priority": "HIGH",
                "ttl": "86400s",
                "notification": {"tag": "g:7", "notification_count": 3},
            },
        }
    ]


async def test_an_access_token_is_asked_for_once_and_again_when_it_ends(google: Google, stage: Stage) -> None:
    assert await stage.tell(*[HELLO] * 20) == [None] * 20
    assert len(google.issued) == 1
    stage.later_ms = 3_500_000
    assert await stage.tell(HELLO) == [None]
    assert len(google.issued) == 1
    stage.later_ms = 3_541_000
    # Google's clock has not moved: what we sign is of its future, so let it take that.
    google.grants = [(200, {"access_token": "access-0", "expires_in": 3600}, {})]
    assert await stage.tell(HELLO) == [None]
    assert google.paths.count("/token") == 2


async def test_an_access_token_that_is_refused_is_asked_for_anew_once(
    google: Google, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.tell(HELLO)
    google.revoked = {"access-0"}
    assert await stage.tell(HELLO) == [None]
    assert len(google.issued) == 2
    google.answers = [refusal(401, "UNAUTHENTICATED")] * 2
    with caplog.at_level(logging.ERROR):
        (refused,) = await stage.tell(HELLO)
    assert refused == Refused("FCM answered with status 401 UNAUTHENTICATED: check phones.fcm_account_file")
    assert len(google.issued) == 3
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "answer",
    [
        refusal(404, "NOT_FOUND", "UNREGISTERED"),
        refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ("message.token",)),
        refusal(400, "INVALID_ARGUMENT", "", ("message.token",)),
    ],
)
async def test_a_phone_that_is_gone_is_to_be_retired(google: Google, stage: Stage, answer: Reply) -> None:
    google.answers = [answer]
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert refused.is_token_dead


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ("message.android.ttl",)), "INVALID_ARGUMENT"),
        (refusal(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), "an app of another project"),
        (refusal(403, "PERMISSION_DENIED"), "the account may not send"),
        (refusal(404, "NOT_FOUND"), "there is no such project"),
        (refusal(401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"), "the APNs key in the Firebase project"),
        ((404, {"error": "not an object"}, {}), "status 404"),
        ((403, {}, {}), "status 403"),
    ],
)
async def test_a_mistake_in_the_settings_is_told_and_no_phone_is_blamed(
    google: Google, stage: Stage, caplog: pytest.LogCaptureFixture, answer: Reply, advice: str
) -> None:
    google.answers = [answer]
    with caplog.at_level(logging.ERROR):
        (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert advice in refused.reason
    assert not refused.is_token_dead
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("answer", "waits"),
    [
        (refusal(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", Retry_After="1"), [1000]),
        (refusal(503, "UNAVAILABLE", "UNAVAILABLE", Retry_After="1"), [1000]),
        (refusal(503, "UNAVAILABLE", "UNAVAILABLE", Retry_After="soon"), [10]),
        (refusal(500, "INTERNAL", "INTERNAL"), [10]),
    ],
)
async def test_a_provider_that_asks_for_a_rest_gets_it(
    google: Google, stage: Stage, caplog: pytest.LogCaptureFixture, answer: Reply, waits: list[int]
) -> None:
    google.answers = [answer]
    with caplog.at_level(logging.WARNING):
        (refused,) = await stage.tell(HELLO)
        assert refused is not None
        assert not refused.is_token_dead
        assert await stage.tell(HELLO) == [None]
    assert [vars(record)["wait_ms"] for record in caplog.records] == waits


@pytest.mark.parametrize(
    ("grant", "words", "is_mistake"),
    [
        ((400, {"error": "invalid_grant"}, {}), "status 400: check phones.fcm_account_file", True),
        ((200, {"token": "?"}, {}), "status 200: check phones.fcm_account_file", True),
        ((200, {"access_token": "a\nb", "expires_in": 1}, {}), "status 200", True),
        ((503, {}, {}), "status 503", False),
    ],
)
async def test_no_access_token_is_a_failure(
    google: Google, stage: Stage, caplog: pytest.LogCaptureFixture, grant: Reply, words: str, is_mistake: bool
) -> None:
    google.grants = [grant]
    with caplog.at_level(logging.ERROR):
        (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert refused.reason.startswith("no access token for FCM")
    assert words in refused.reason
    assert bool(caplog.records) == is_mistake
    assert await stage.tell(HELLO) == [None]


async def test_a_provider_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    async with google_server(tmp_path) as gone:
        pass
    stage = Stage(gone)
    (refused,) = await stage.tell(HELLO)
    assert refused is not None
    assert refused.reason.startswith("FCM: ConnectError")
    await stage.fcm.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ("[]", "has no project_id"),
        (json.dumps({"project_id": "p"}), "has no client_email"),
        (json.dumps(dict.fromkeys(NAMES, "x")), "holds no private key"),
    ],
)
async def test_an_account_that_cannot_work_is_refused_at_the_start(
    google: Google, tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=words):
        FcmNotifications(
            asyncio.get_running_loop(), SystemClock(), replace(google.settings(), fcm_account_file=str(path))
        )
