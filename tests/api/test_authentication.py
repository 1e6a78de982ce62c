"""Pluggable authentication (P24): a real server is asked, and what it says counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pixiu.config.security import SecuritySettings
from pixiu.model.errors import ConfigError, Overloaded, PixiuError, Unavailable
from pixiu.ports.authentication import Identity
from pixiu.ports.clock import Clock
from pixiu.runtime import authentication
from pixiu.runtime.authentication import AskedAuthentication, make_authentication
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import TokenRefused, Tokens
from tests.api.world import open_world
from tests.runtime.test_tokens import ManualClock

pytestmark = pytest.mark.feature("P24")


class AuthServer:
    """Knows some tokens; counts who asks."""

    def __init__(self) -> None:
        self.url = ""
        self.known: dict[str, object] = {"t-alice": {"user": "alice", "platform": "ios", "device": "d", "admin": False}}
        self.asked: list[str] = []
        self.status = 0
        self.delay_seconds = 0.0
        self.tasks: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            await self.answer(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        token = json.loads(await reader.readexactly(size))["token"]
        self.asked.append(token)
        await asyncio.sleep(self.delay_seconds)
        status = self.status or (200 if token in self.known else 401)
        body = json.dumps(self.known.get(token)).encode()
        lines = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()


@asynccontextmanager
async def auth_server() -> AsyncIterator[AuthServer]:
    server = AuthServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/auth"
    try:
        yield server
    finally:
        listener.close()
        for task in server.tasks:
            assert task is not None
            task.cancel()
        await asyncio.sleep(0.01)
        await listener.wait_closed()


def asking(server: AuthServer, clock: Clock | None = None, **changed: Any) -> AskedAuthentication:
    settings = SecuritySettings(auth_url=server.url, **changed)
    return AskedAuthentication(asyncio.get_running_loop(), clock or ManualClock(), settings)


async def ask(asked: AskedAuthentication, token: str) -> Identity | PixiuError:
    answer: asyncio.Future[Identity | PixiuError] = asyncio.get_running_loop().create_future()
    asked.authenticate(token, answer.set_result)
    return await answer


async def rechecked(asked: AskedAuthentication, token: str) -> Identity | PixiuError:
    answer: asyncio.Future[Identity | PixiuError] = asyncio.get_running_loop().create_future()
    asked.recheck(Identity("a", token=token), answer.set_result)
    return await answer


async def test_the_token_reaches_the_server_and_its_answer_counts(tmp_path: Path) -> None:
    async with (
        auth_server() as server,
        open_world(tmp_path, authentication=asking(server), creates_users=True) as world,
    ):
        headers = {"Authorization": "Bearer t-alice"}
        answer = await world.client.post("/v1/actions/user", json={}, headers=headers)
        assert (answer.status_code, answer.json()["user"]) == (200, "alice")
        assert server.asked == ["t-alice"]
        bad = {"Authorization": "Bearer t-mallory"}
        answer = await world.client.post("/v1/actions/contacts", json={}, headers=bad)
        assert (answer.status_code, answer.json()["error"]["message"]) == (401, "the token is not valid")
        # Nothing is left of who was refused, though users are created on first use here.
        assert world.node.messaging.proxy.context.directory.find_user("mallory") is None


async def test_an_answer_is_good_for_a_while_and_no_longer() -> None:
    clock = ManualClock()
    async with auth_server() as server:
        asked = asking(server, clock, auth_cache_ms=30_000)
        for _ in range(3):
            assert (await ask(asked, "t-alice"))[:4] == ("alice", "ios", "d", False)  # type: ignore[index]
            assert isinstance(await ask(asked, "t-nobody"), TokenRefused)
        assert sorted(server.asked) == ["t-alice", "t-nobody"]
        clock.ms += 5_000  # a refusal is forgotten sooner
        await ask(asked, "t-alice")
        await ask(asked, "t-nobody")
        assert sorted(server.asked) == ["t-alice", "t-nobody", "t-nobody"]
        server.known.clear()
        clock.ms += 24_999
        assert isinstance(await ask(asked, "t-alice"), Identity)
        clock.ms += 1
        assert isinstance(await ask(asked, "t-alice"), TokenRefused)


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "REMEMBERED_MAX", 5)
    async with auth_server() as server:
        asked = asking(server)
        for number in range(20):
            await ask(asked, f"t-{number}")
        assert len(asked._known) == 5
        assert asked._waiting == {}


async def test_many_who_ask_about_one_token_are_one_question() -> None:
    async with auth_server() as server:
        server.delay_seconds = 0.05
        asked = asking(server)
        answers = await asyncio.gather(*(ask(asked, "t-alice") for _ in range(50)))
        assert len(server.asked) == 1
        assert set(map(type, answers)) == {Identity}


async def test_too_many_questions_at_once_are_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "ASKED_MAX", 2)
    async with auth_server() as server:
        server.delay_seconds = 0.1
        asked = asking(server)
        answers = await asyncio.gather(*(ask(asked, f"t-{number}") for number in range(5)))
        assert sum(isinstance(each, Overloaded) for each in answers) == 3


@pytest.mark.parametrize("status", [500, 302, 204, 404])
async def test_a_server_that_fails_refuses_nobody_for_good(status: int) -> None:
    async with auth_server() as server:
        server.status = status
        asked = asking(server)
        answer = await ask(asked, "t-alice")
        assert type(answer) is Unavailable and answer.retry_after_ms
        server.status = 0
        assert isinstance(await ask(asked, "t-alice"), Identity)


@pytest.mark.parametrize(
    "said",
    [None, [], "alice", {}, {"user": 7}, {"user": ""}, {"user": "a", "admin": 1},
     {"user": "a", "device": None}, {"user": "x" * 70}],
    ids=str,
)  # fmt: skip
async def test_an_answer_that_makes_no_sense_lets_nobody_in(said: object) -> None:
    async with auth_server() as server:
        server.known["t-odd"] = said
        assert type(await ask(asking(server), "t-odd")) is Unavailable


async def test_a_server_that_is_slow_or_gone_is_unavailable(tmp_path: Path) -> None:
    async with auth_server() as server:
        server.delay_seconds = 5
        asked = asking(server, auth_timeout_ms=50)
        assert type(await ask(asked, "t-alice")) is Unavailable
        async with open_world(tmp_path, authentication=asked) as world:
            answer = await world.client.get("/v1/contacts", headers={"Authorization": "Bearer t-alice"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert type(await ask(asked, "t-bob")) is Unavailable
    await asked.close()


async def test_a_token_of_our_own_keys_is_decided_here(tmp_path: Path) -> None:
    """Operators come in while the other server is down; and it cannot revive what we have let expire."""
    clock = ManualClock()
    keys = Keyring(tmp_path, clock)
    keys.create("EdDSA")
    async with auth_server() as server:
        settings = SecuritySettings(auth_url=server.url)
        tokens = Tokens(keys, clock, settings)
        asked = make_authentication(tokens, clock, settings)
        assert isinstance(asked, AskedAuthentication)
        own = tokens.issue(Identity("ops", is_admin=True), lifetime_ms=60_000)
        assert isinstance(await ask(asked, own), Identity)
        clock.ms += 3_600_000
        answer = await ask(asked, own)
        assert isinstance(answer, TokenRefused) and answer.reason == "expired"
        assert server.asked == []
        assert make_authentication(tokens, SystemClock(), SecuritySettings()) is tokens


async def test_identity_expires_when_the_answer_says_and_at_the_latest_by_the_setting() -> None:
    clock = ManualClock()
    async with auth_server() as server:
        asked = asking(server, clock, auth_identity_ms=60_000)
        for named, expected in ((None, 60_000), (10_000, 10_000), (90_000, 60_000)):
            server.known["t"] = {"user": "a"} | ({} if named is None else {"expires_at": clock.ms + named})
            identity = await rechecked(asked, "t")
            assert isinstance(identity, Identity) and identity.expires_at == clock.ms + expected
        server.known["t"] = {"user": "a", "expires_at": clock.ms}
        assert isinstance(await rechecked(asked, "t"), TokenRefused)
        for nonsense in ("-1", '"soon"', "1.5", "true", "null", "[]"):
            server.known["t"] = {"user": "a", "expires_at": json.loads(nonsense)}
            assert type(await rechecked(asked, "t")) is Unavailable


async def test_recheck_asks_the_server_even_if_logins_use_the_cached_answer() -> None:
    async with auth_server() as server:
        asked = asking(server)
        assert isinstance(await ask(asked, "t-alice"), Identity)
        server.known.clear()
        assert isinstance(await ask(asked, "t-alice"), Identity), "from the cache"
        assert isinstance(await rechecked(asked, "t-alice"), TokenRefused)
        assert isinstance(await ask(asked, "t-alice"), TokenRefused), "a recheck corrects the cache"


async def test_cached_answer_is_not_used_after_its_identity_expired() -> None:
    clock = ManualClock()
    async with auth_server() as server:
        server.known["t"] = {"user": "a", "expires_at": clock.ms + 1_000}
        asked = asking(server, clock, auth_cache_ms=30_000)
        assert isinstance(await ask(asked, "t"), Identity)
        clock.ms += 1_000
        assert isinstance(await ask(asked, "t"), TokenRefused)


async def test_token_is_not_shown_by_the_text_of_an_identity() -> None:
    async with auth_server() as server:
        assert "t-alice" not in repr(await ask(asking(server), "t-alice"))


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "x", "http://a:b@c/", "http://a b/", "http://[::1"])
async def test_a_wrong_url_refuses_to_start(url: str) -> None:
    with pytest.raises(ConfigError, match=r"security\.auth_url"):
        AskedAuthentication(asyncio.get_running_loop(), ManualClock(), SecuritySettings(auth_url=url))


async def test_nonsense_is_not_even_asked_about() -> None:
    async with auth_server() as server:
        asked = asking(server)
        for token in ("", "x" * 5000, "é"):
            assert isinstance(await ask(asked, token), TokenRefused)
        assert server.asked == []
