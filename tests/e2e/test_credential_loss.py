"""An open connection ends with its credential: key retired, token revoked or expired at auth_url, user erased."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
import websockets

from tests.e2e.credentials import Transports, auth_server, connected, retire

FAST = ("security.auth_recheck_ms=200", "security.auth_cache_ms=0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transports]:
    started = Transports(tmp_path_factory.mktemp("node") / "data")
    started.start()
    yield started
    started.stop()


async def ends(clients: list[object]) -> list[str]:
    return await asyncio.gather(*(client.ended() for client in clients))  # type: ignore[attr-defined]


@pytest.mark.feature("P24")
async def test_retired_signing_key_closes_open_sessions_on_every_transport(server: Transports) -> None:
    async with connected(server, server.token, "alice") as clients:
        await asyncio.to_thread(retire, server.data)
        assert await ends(clients) == ["unauthenticated"] * 3
    async with connected(server, server.token, "alice") as clients:  # tokens of the new key
        for client in clients:
            await client.ask()


async def test_erased_user_loses_open_sessions_and_access_on_every_transport(server: Transports) -> None:
    admin = server.token("ops", "--admin")
    async with connected(server, server.token, "erin") as clients:
        for client in clients:
            server.act(admin, "erase_user", user=f"erin-{type(client).__name__}")
        assert await ends(clients) == ["unauthenticated"] * 3
        for client in clients:
            headers = {"Authorization": f"Bearer {client.token}"}
            for answer in (
                httpx.post(f"{server.url}/v1/actions/user", json={}, headers=headers),
                httpx.get(f"{server.url}/v1/contacts", headers=headers),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated"), answer.text


def test_the_token_of_an_erased_user_gets_401_over_http(server: Transports) -> None:
    token = server.token("gone")
    headers = {"Authorization": f"Bearer {token}"}
    server.act(token, "contact", user="stays")
    server.act(server.token("ops", "--admin"), "erase_user", user="gone")
    for method, path, body in (
        ("POST", "/v1/actions/user", {}),
        ("POST", "/v1/actions/send", {"to": "stays", "text": "hi"}),
        ("POST", "/v1/actions/contacts", {}),
        ("GET", "/v1/contacts", None),
    ):
        answer = httpx.request(method, f"{server.url}{path}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated"), answer.text
    for user in ("gone", "stays"):
        status = httpx.post(
            f"{server.url}/v1/actions/user",
            json={"user": user},
            headers={"Authorization": f"Bearer {server.token('stays')}"},
        ).status_code
        assert status == (404 if user == "gone" else 200), "others do not find the user, and are served"


async def test_banned_user_loses_open_sessions_and_access_until_the_ban_is_lifted(server: Transports) -> None:
    admin = server.token("ops", "--admin")
    async with connected(server, server.token, "mallory") as clients:
        for client in clients:
            answer = server.act(admin, "ban_user", user=f"mallory-{type(client).__name__}")
            assert answer["is_banned"] is True
        assert await ends(clients) == ["unauthenticated"] * 3
        for client in clients:
            headers = {"Authorization": f"Bearer {client.token}"}
            refused = httpx.post(f"{server.url}/v1/actions/user", json={}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated"), refused.text
            again = type(client)(server, client.token)
            with pytest.raises((AssertionError, websockets.ConnectionClosed, KeyError, grpc.aio.AioRpcError)):
                await again.open()
            await again.close()
            server.act(admin, "unban_user", user=f"mallory-{type(client).__name__}")
            await again.open()
            await again.ask()
            await again.close()


async def test_sessions_end_when_auth_url_revokes_expires_or_stops_confirming(tmp_path: Path) -> None:
    with auth_server() as auth:
        lifetime = "security.auth_identity_ms=1500"
        server = Transports(tmp_path / "data", *FAST, f"security.auth_url={auth.url}", lifetime)
        server.start()
        try:
            async with connected(server, lambda user: user, "alice bob carol") as clients:
                opened = time.monotonic()
                alice, bob, carol = clients[:3], clients[3:6], clients[6:]
                auth.revoked |= {client.token for client in alice}
                assert await ends(alice) == ["unauthenticated"] * 3
                for client in carol:
                    auth.expires_at[client.token] = int(time.time() * 1000) + 500
                assert await ends(carol) == ["unauthenticated"] * 3
                while time.monotonic() < opened + 2:  # longer than an identity lasts without confirmation
                    await asyncio.sleep(0.1)
                for client in bob:
                    await client.ask()
                auth.stop()
                for client in bob:  # a server that cannot be reached decides nothing
                    await client.ask()
                assert await ends(bob) == ["unauthenticated"] * 3
        finally:
            server.stop()


@pytest.mark.feature("P24")
async def test_retired_key_closes_sessions_of_gateway_processes(tmp_path: Path) -> None:
    server = Transports(tmp_path / "data", gateways=2)
    server.start()
    try:
        async with connected(server, server.token, "alice bob") as clients:
            await asyncio.to_thread(retire, server.data)
            assert await ends(clients) == ["unauthenticated"] * len(clients)
    finally:
        server.stop()
