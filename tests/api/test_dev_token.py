"""Tokens for the asking: with ``--dev`` only, at a loopback address only, and for no page of another origin."""

from pathlib import Path

import pytest

from pixiu.config.security import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.tokens import checked_identity
from tests.api.world import open_world

PATH = "/v1/dev/token"


def issue(identity: Identity) -> str:
    checked_identity(identity)
    return f"{identity.user}/{identity.platform}/{identity.device}/{identity.is_admin}"


async def test_without_dev_there_is_no_such_path(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        answer = await world.client.post(PATH, json={"user": "alice"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert PATH not in (await world.client.get("/openapi.json")).json()["paths"]


@pytest.mark.parametrize("host", ["127.0.0.1:8400", "localhost", "[::1]:8400", "127.8.0.1"])
async def test_a_name_is_enough_on_this_machine(tmp_path: Path, host: str) -> None:
    async with open_world(tmp_path, issue_token=issue) as world:
        answer = await world.client.post(PATH, json={"user": "alice"}, headers={"Host": host})
        assert answer.json() == {"user": "alice", "token": "alice/web//False"}
        asked = {"user": "bob", "platform": "ios", "device": "d", "admin": True}
        same = {"Host": host, "Origin": f"http://{host}"}
        assert (await world.client.post(PATH, json=asked, headers=same)).json()["token"] == "bob/ios/d/True"
        assert PATH in (await world.client.get("/openapi.json")).json()["paths"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "pixiu.evil.example"},  # a name of theirs that leads here
        {"Host": "10.0.0.7:8400"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "127.0.0.1:8400", "Origin": "https://evil.example"},
        {"Host": "127.0.0.1:8400", "Origin": "http://127.0.0.1:9999"},
        {"Host": "127.0.0.1:8400", "Origin": "null"},
    ],
)
async def test_others_get_none(tmp_path: Path, headers: dict[str, str]) -> None:
    async with open_world(tmp_path, issue_token=issue) as world:
        answer = await world.client.post(PATH, json={"user": "alice"}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


OWN = "http://localhost:5173"


async def test_page_of_a_configured_origin_gets_a_token(tmp_path: Path) -> None:
    security = SecuritySettings(cors_origins=f"https://chat.example, {OWN}")
    async with open_world(tmp_path, issue_token=issue, security=security) as world:
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        page = {"Host": "127.0.0.1:8400", "Origin": OWN}
        allowed = await world.client.options(PATH, headers=page | asks)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, OWN)
        answer = await world.client.post(PATH, json={"user": "alice"}, headers=page)
        assert answer.json() == {"user": "alice", "token": "alice/web//False"}
        assert answer.headers["access-control-allow-origin"] == OWN
        for other in ("http://localhost:5174", "http://localhost", f"{OWN}.evil.example", "null", "http://[::1"):
            answer = await world.client.post(PATH, json={"user": "alice"}, headers=page | {"Origin": other})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
            assert "security.cors_origins" in answer.json()["error"]["message"]
        elsewhere = {"Host": "pixiu.evil.example", "Origin": OWN}
        assert (await world.client.post(PATH, json={"user": "alice"}, headers=elsewhere)).status_code == 403


async def test_any_origin_in_the_settings_does_not_give_tokens_to_every_page(tmp_path: Path) -> None:
    async with open_world(tmp_path, issue_token=issue, security=SecuritySettings(cors_origins="*")) as world:
        page = {"Host": "127.0.0.1:8400", "Origin": "https://evil.example"}
        assert (await world.client.post(PATH, json={"user": "alice"}, headers=page)).status_code == 403


@pytest.mark.parametrize(
    "asked",
    [{}, {"user": ""}, {"user": 7.5}, {"user": "a\n"}, {"user": "a", "admin": 1}, {"user": "a", "name": "b"}, []],
)
async def test_nonsense_is_told(tmp_path: Path, asked: object) -> None:
    async with open_world(tmp_path, issue_token=issue) as world:
        answer = await world.client.post(PATH, json=asked, headers={"Host": "localhost"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), answer.text
