"""A gateway process that starts while the registry cannot be reached uses the leaders that it has on disk."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.config import SecuritySettings
from pixiu.config.registry import RegistryAddress
from pixiu.links.leaders import KnownLeaders, Leader
from pixiu.machines.links.sealing import Secrets
from pixiu.model.errors import Unavailable
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.gateways.listener import HubListener
from pixiu.node.processes.gateway.known_leaders import LeaderFile
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.tokens import Tokens
from tests.servers import free_port

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "sixteen bytes or more"
BOOT = 77


def token(data: Path, user: str) -> str:
    clock = SystemClock()
    keys = Keyring(data, clock)
    if not keys.keys:
        keys.create("EdDSA")
    return Tokens(keys, clock, SecuritySettings()).issue(Identity(user, "web", "d"))


async def test_requests_of_a_session_without_a_server_wait_and_fail_at_its_end() -> None:
    loop = asyncio.get_running_loop()
    registry = ZooKeeperRegistry(f"127.0.0.1:{free_port()}", loop)
    assert not await loop.run_in_executor(None, registry.connect_later, 0.1)
    found: asyncio.Future[object] = loop.create_future()
    registry.read("/pubsub", found.set_result)
    await asyncio.sleep(0.2)
    assert not found.done()
    await loop.run_in_executor(None, registry.close)
    async with asyncio.timeout(5):
        assert isinstance(await found, Unavailable)


@pytest.mark.timeout(60)
async def test_gateway_serves_from_the_leaders_on_disk(tmp_path: Path) -> None:
    loop, data, port = asyncio.get_running_loop(), tmp_path / "gateway", free_port()
    data.mkdir()
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    secret.chmod(0o600)
    registry = RegistryAddress(f"127.0.0.1:{free_port()}", "/pubsub")
    scheduler = LoopScheduler(loop)
    async with EmbeddedNode(tmp_path / "node", creates_users=True) as node:
        names, settings = node.messaging.proxy.context.directory, node._settings.gateway
        hub = GatewayHub(node.messaging, names, SystemClock(), scheduler, settings)
        hub.start()
        listener = HubListener(Secrets.from_text(SECRET), BOOT, lambda: hub)
        address = await listener.start("127.0.0.1", 0)
        memory = LeaderFile(data, port, registry)
        memory.keep(KnownLeaders(1, {0: Leader(3, "shard-0-0", address, BOOT)}))
        await memory.close()
        headers = {"Authorization": f"Bearer {token(data, 'alice')}"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pixiu", "role", "gateway", "--registry", str(registry), "--data", str(data),
            "--port", str(port), "--secret-file", str(secret), "--json",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert json.loads(await asyncio.wait_for(process.stdout.readline(), 30))["role"] == "gateway"
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
                async with asyncio.timeout(20):
                    while (ready := await client.get("/readyz")).status_code != 200:
                        await asyncio.sleep(0.1)
                assert ready.json()["notes"]["registry"] == "not registered"
                sent = await client.post("/v1/actions/send", json={"to": "bob", "text": "hi", "send_id": "1"})
                assert sent.status_code == 200, sent.text
            assert len(hub.links) == 1
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 20) == 0
        await listener.close()
        hub.stop()
    scheduler.close()
    assert memory.recall() == KnownLeaders(1, {0: Leader(3, "shard-0-0", address, BOOT)})
