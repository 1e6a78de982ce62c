"""The hub on TCP: the same messages as on the Unix socket, for whoever knows the cluster's secret."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.links.sealing import Secrets
from pixiu.model.errors import Unavailable
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.gateways.hub import GatewayHub
from pixiu.node.gateways.listener import HubListener
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler
from tests.cluster.hub_client import HubClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET = Secrets([b"sixteen bytes or more"])
BOOT = 77


class Door:
    """A hub of an embedded node, on TCP."""

    def __init__(self, hub: GatewayHub, address: str) -> None:
        self.hub = hub
        self.address = address
        self.is_wanted = True

    async def connect(self, name: str = "g1", secrets: Secrets = SECRET, to: int = BOOT) -> HubClient:
        return await HubClient.connect(name, self.address, secrets, to)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    scheduler = LoopScheduler(asyncio.get_running_loop())
    async with EmbeddedNode(tmp_path, creates_users=True) as node:
        messaging, settings = node.messaging, node._settings.gateway
        hub = GatewayHub(messaging, messaging.proxy.context.directory, SystemClock(), scheduler, settings)
        hub.start()
        listener = HubListener(SECRET, BOOT, lambda: made.hub if made.is_wanted else None)
        made = Door(hub, await listener.start("127.0.0.1", 0))
        yield made
        await listener.close()
        hub.stop()
    scheduler.close()


async def test_a_gateway_on_tcp_logs_users_in_and_carries_their_messages(door: Door) -> None:
    gateway = await door.connect()
    alice, bob = await gateway.log_in("alice"), await gateway.log_in("bob")
    sent = await gateway.act(alice, "send", to="bob", text="x" * 60_000)
    assert await gateway.pushed(bob, 1) == [int(sent["message_id"])]
    assert door.hub.sessions == 2
    gateway.close()
    async with asyncio.timeout(5):
        while door.hub.sessions:
            await asyncio.sleep(0.01)


async def test_whoever_does_not_know_the_secret_is_told_nothing(door: Door) -> None:
    with pytest.raises(Unavailable):
        await door.connect(secrets=Secrets([b"another secret, as long"]))
    with pytest.raises(Unavailable):
        await door.connect(to=BOOT + 1)  # another process than the one that was meant
    assert not door.hub.links


async def test_nobody_is_taken_in_by_one_that_does_not_serve(door: Door) -> None:
    door.is_wanted = False
    with pytest.raises(Unavailable):
        await door.connect()
    door.is_wanted = True
    gateway = await door.connect()
    assert gateway.epoch
    door.hub.stop()
    async with asyncio.timeout(5):
        while not gateway.lost_reason:
            await asyncio.sleep(0.01)
    gateway.close()


async def test_noise_is_cut_off(door: Door) -> None:
    host, _, port = door.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nhost: somewhere.example.org\r\naccept: */*\r\n\r\n")
    async with asyncio.timeout(5):
        while await reader.read(1000):  # its own hello, then the end
            pass
    writer.close()
