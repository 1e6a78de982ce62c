"""Rooms over real processes and a real ZooKeeper: a proxy, a router, two brokers, two gateways, killed and drained."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pixiu import Publisher
from pixiu.config import LinkSettings, Settings
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.node.processes.cluster_end import read_secrets, secrets_of
from pixiu.runtime.zookeeper import Ensemble
from tests.e2e.cluster import SECRET, Listener, RoleRun, Roles
from tests.engines import require_zookeeper

pytestmark = [pytest.mark.crash]

LINKS = LinkSettings(heartbeat_ms=200, suspect_ms=800, dead_ms=1200, unsafe_fast_poll=True, poll_ms=2000, grace_ms=4000)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    require_zookeeper()
    with Ensemble(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@pytest.fixture
def roles(tmp_path: Path, ensemble: Ensemble) -> Iterator[Roles]:
    started = Roles(tmp_path, f"zk://{ensemble.hosts}/{tmp_path.name}")
    try:
        yield started
    finally:
        started.kill()


async def eventually(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        await asyncio.sleep(0.02)


def usable(run: RoleRun, role: str) -> int:
    return sum(row["role"] == role and row["standing"] == "usable" for row in run.get("/peers").json())


@pytest.mark.feature("X02", "X03", "X10", "X25", "X40", "P27")
async def test_brokers_are_killed_proxies_drain_and_everyone_hears_everyone(roles: Roles) -> None:
    for name in ("router", "broker", "broker", "proxy", "proxy", "gateway", "gateway"):
        roles.start(name)
    _, broker, other, proxy, draining, left, right = roles.runs
    await asyncio.to_thread(roles.wait_ready)
    await eventually(lambda: usable(proxy, "broker") == 2, "the proxy to know both brokers")
    await eventually(lambda: usable(left, "proxy") == 2, "the gateway to know both proxies")
    settings = Settings(links=LINKS)
    async with (
        Listener(roles, left, "ann") as ann,
        Listener(roles, left, "bob") as bob,
        Listener(roles, right, "cat") as cat,
        Publisher(roles.registry, secret=SECRET, settings=settings) as publisher,
    ):
        everyone = (ann, bob, cat)
        for person in everyone:
            assert (await person.ask("enter", room="lobby"))["result"]["room"] == "lobby"
        await _all_hear(publisher, everyone, "are you there?")
        said = [f"text {number}" for number in range(100)]
        for text in said:
            assert "result" in await ann.ask("say", room="lobby", text=text)
        await eventually(lambda: all(person.texts("ann") == said for person in everyone), "everyone to hear all of it")

        # One broker after the other is killed while reliable talk goes on: nothing of it is lost, or shown twice.
        talking = asyncio.create_task(_talk(cat, 40))
        await asyncio.sleep(0.3)
        os.kill(broker.process.pid, signal.SIGKILL)
        again = roles.start("broker")
        texts = await talking
        await eventually(
            lambda: all(person.texts("cat") == texts for person in everyone), "all reliable talk, in order"
        )
        await asyncio.to_thread(roles.wait_ready)
        await eventually(lambda: usable(proxy, "broker") == 2, "the proxy to know the new broker")
        os.kill(other.process.pid, signal.SIGKILL)
        await publisher.publish("lobby", "after both", sender="stage", reliable=True)
        assert all(person.texts("stage") == ["after both"] for person in everyone)
        # A large text is more than a datagram holds.
        large = "x" * 20_000
        await publisher.publish("lobby", large, sender="large", reliable=True)
        assert all(person.texts("large") == [large] for person in everyone)
        refused = await ann.ask("send", to="bob", text="stored?")
        assert refused["error"]["code"] == "unavailable"

        # One proxy leaves in order, and is gone.
        talking = asyncio.create_task(_talk(bob, 20))
        draining.process.terminate()
        texts = await talking
        await eventually(
            lambda: all(person.texts("bob") == texts for person in everyone), "all reliable talk, in order"
        )
        assert await asyncio.to_thread(draining.process.wait, 20) == 0
        await eventually(lambda: usable(left, "proxy") == 1, "one proxy to be left")
        # Another secret: nobody answers.
        with pytest.raises(Unavailable):
            await Publisher(roles.registry, secret="of somebody else", settings=settings, timeout_seconds=2).open()
        assert 'pixiu_links_refused_total{reason="unauthentic"}' in proxy.get("/metrics").text
    metrics = again.get("/metrics").text
    assert "pixiu_links_messages_total" in metrics and "pixiu_broker_messages_total" in metrics
    os.kill(right.process.pid, signal.SIGKILL)
    left.process.terminate()
    assert await asyncio.to_thread(left.process.wait, 20) == 0
    await eventually(lambda: "pixiu_broker_sessions 0.0" in again.get("/metrics").text, "the sessions to be forgotten")
    assert sorted(await asyncio.to_thread(roles.stop)) == [-9, -9, -9, 0, 0, 0, 0, 0]


async def _all_hear(publisher: Publisher, everyone: tuple[Listener, ...], text: str) -> None:
    """Until the brokers know everyone, what is said may pass some."""
    until = time.monotonic() + 20
    while not all(text in person.texts("0") for person in everyone):
        assert time.monotonic() < until, text
        await publisher.publish("lobby", text)
        await asyncio.sleep(0.1)


async def _talk(person: Listener, count: int) -> list[str]:
    texts = [f"reliable {number}" for number in range(count)]
    for text in texts:
        while "error" in await person.ask("say", room="lobby", text=text, **{"class": "reliable"}):
            pytest.fail("reliable talk was refused")
    return texts


def test_addresses_and_secrets_are_checked(tmp_path: Path) -> None:
    assert RegistryAddress.parse("zk://a:1,b:2/x/y") == ("a:1,b:2", "/x/y")
    assert RegistryAddress.parse("zk://a").root == "/pubsub"
    for bad in ("", "a:1", "zk://", "zk://a:x/y", "http://a:1", "zk://a:1,:2/"):
        with pytest.raises(ConfigError):
            RegistryAddress.parse(bad)
    with pytest.raises(ConfigError, match="secret"):
        secrets_of("", "0.0.0.0")
    assert secrets_of("", "127.0.0.1").keys != secrets_of(SECRET, "127.0.0.1").keys
    with pytest.raises(ConfigError):
        read_secrets(tmp_path / "nothing")
