"""Every loss of a credential at the two gateways of a cluster, and at the two processes of ``--gateways 2``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.cluster.processes import Cluster
from tests.cluster.scenario import Doors
from tests.e2e.credentials import Transports, WebSocketClient, auth_server, connected, retire
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.serial, pytest.mark.timeout(300)]

TEXT = """
name = "credentials"
zookeeper = {{ nodes = 1 }}

[roles.shard]

[roles.gateway]
replicas = 2
settings = {{ "security.auth_url" = "{url}", "security.auth_recheck_ms" = 500, "security.auth_cache_ms" = 0 }}
"""


class Gateway:
    """One gateway of a cluster, as a ``WebSocketClient`` needs it."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])


def has_shard(url: str) -> bool:
    return httpx.get(f"{url}/readyz").json().get("notes", {}).get("shards") is None


async def opened(gateways: list[Any], tokens: list[str]) -> list[WebSocketClient]:
    clients = [WebSocketClient(gateway, token) for gateway, token in zip(gateways, tokens, strict=True)]
    for client in clients:
        await client.open()
    return clients


async def ends(clients: list[Any]) -> set[str]:
    return set(await asyncio.gather(*(client.ended() for client in clients)))


async def test_every_loss_of_a_credential_closes_sessions_at_both_gateways_of_a_cluster(tmp_path: Path) -> None:
    with auth_server() as auth, Cluster(tmp_path, TEXT.format(url=auth.url)) as cluster:
        addresses = [row["address"] for row in cluster.nodes().values() if row["role"] == "gateway"]
        assert len(addresses) == 2
        keys = cluster.folder / "nodes" / "gateway"
        doors = Doors([f"http://{address}" for address in addresses], keys)
        for url in doors.urls:
            wait_for(lambda url=url: has_shard(url), timeout_s=60, what="the shard")  # type: ignore[misc]
        gateways = [Gateway(address) for address in addresses]
        for user in ("alice", "bob", "carol", "dave", "erin", "frank"):
            await doors.act("root", "create_user", is_admin=True, user=user)
        revoked = await opened(gateways, ["alice", "bob"])  # tokens of the authentication server
        auth.revoked |= {"alice", "bob"}
        assert await ends(revoked) == {"unauthenticated"}
        banned = await opened(gateways, [doors.token("carol"), doors.token("dave")])
        for user in ("carol", "dave"):
            await doors.act("root", "ban_user", is_admin=True, user=user)
        assert await ends(banned) == {"unauthenticated"}
        erased = await opened(gateways, [doors.token("erin"), doors.token("frank")])
        for user in ("erin", "frank"):
            await doors.act("root", "erase_user", is_admin=True, user=user)
        assert await ends(erased) == {"unauthenticated"}
        for user in ("carol", "dave"):
            await doors.act("root", "unban_user", is_admin=True, user=user)
        stolen = await opened(gateways, [doors.token("carol"), doors.token("dave")])
        await asyncio.to_thread(retire, keys)
        assert await ends(stolen) == {"unauthenticated"}


async def test_every_loss_of_a_credential_closes_sessions_of_gateway_processes(tmp_path: Path) -> None:
    with auth_server() as auth:
        fast = ("security.auth_recheck_ms=500", "security.auth_cache_ms=0", f"security.auth_url={auth.url}")
        server = Transports(tmp_path / "data", *fast, gateways=2)
        server.start()
        try:
            async with connected(server, lambda user: user, "a b") as clients:
                auth.revoked |= {client.token for client in clients}
                assert await ends(clients) == {"unauthenticated"}
            for action in ("ban_user", "erase_user"):
                async with connected(server, server.token, f"{action}-c {action}-d") as clients:
                    admin = server.token("ops", "--admin")
                    for user in (f"{action}-c", f"{action}-d"):
                        for kind in server.clients():
                            server.act(admin, action, user=f"{user}-{kind.__name__}")
                    assert await ends(clients) == {"unauthenticated"}
            async with connected(server, server.token, "e f") as clients:
                await asyncio.to_thread(retire, server.data)
                assert await ends(clients) == {"unauthenticated"}
            wait_for(server.is_ready, what="the server to be ready")
        finally:
            server.stop()
