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
from pixiu.node.cluster_end import read_secrets, secrets_of
from pixiu.runtime.zookeeper import Ensemble, what_zookeeper_needs
from tests.e2e.cluster import SECRET, Listener, RoleRun, Roles

pytestmark = [pytest.mark.crash]

LINKS = LinkSettings(heartbeat_ms=200, suspect_ms=800, dead_ms=1200, unsafe_fast_poll=True, poll_ms=2000, grace_ms=4000)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    missing = what_zookeeper_needs()
    if missing:
        pytest.skip(f"ZooKeeper: {missing}")
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


@pytest.mark.feature("X02", "X10", "X25", "P27")
async def test_everyone_hears_everyone_and_a_killed_broker_is_survived(roles: Roles) -> None:
    for name in ("router", "broker", "broker", "proxy", "gateway", "gateway"):
        roles.start(name)
    _, broker, other, proxy, left, right = roles.runs
    await asyncio.to_thread(roles.wait_ready)
    await eventually(lambda: usable(proxy, "broker") == 2, "the proxy to know both brokers")
    async with (
        Listener(roles, left, "ann") as ann,
        Listener(roles, left, "bob") as bob,
        Listener(roles, right, "cat") as cat,
        Publisher(roles.registry, secret=SECRET, settings=Settings(links=LINKS)) as publisher,
    ):
        everyone = (ann, bob, cat)
        for person in everyone:
            assert (await person.ask("enter", room="lobby"))["result"]["room"] == "lobby"

        async def hear_all(text: str) -> None:
            """Until the brokers know everyone, what is said may pass some."""
            until = time.monotonic() + 20
            while not all(text in person.texts("0") for person in everyone):
                assert time.monotonic() < until, text
                await publisher.publish("lobby", text)
                await asyncio.sleep(0.1)

        await hear_all("are you there?")
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
    metrics = again.get("/metrics").text
    assert "pixiu_links_messages_total" in metrics and "pixiu_broker_messages_total" in metrics
    codes = roles.stop()
    assert sorted(codes) == [-9, -9, 0, 0, 0, 0, 0]


async def _talk(person: Listener, count: int) -> list[str]:
    texts = [f"reliable {number}" for number in range(count)]
    for text in texts:
        while "error" in await person.ask("say", room="lobby", text=text, **{"class": "reliable"}):
            pytest.fail("reliable talk was refused")
    return texts


@pytest.mark.feature("X03", "X40")
async def test_who_drains_leaves_nothing_behind_and_strangers_are_not_heard(roles: Roles) -> None:
    for name in ("router", "broker", "proxy", "proxy", "gateway"):
        roles.start(name)
    _, broker, proxy, other, gateway = roles.runs
    await asyncio.to_thread(roles.wait_ready)
    await eventually(lambda: usable(gateway, "proxy") == 2, "the gateway to know both proxies")
    async with Listener(roles, gateway, "ann") as ann:
        await ann.ask("enter", room="lobby")
        proxy.process.terminate()
        for number in range(30):
            answer = await ann.ask("say", room="lobby", text=f"text {number}", **{"class": "reliable"})
            assert "result" in answer, answer
        assert proxy.process.wait(20) == 0
        names = [row["name"] for row in gateway.get("/peers").json() if row["role"] == "proxy"]
        await eventually(lambda: usable(gateway, "proxy") == 1, f"one proxy to be left of {names}")
        assert ann.texts("ann") == [f"text {number}" for number in range(30)]
        with pytest.raises(Unavailable):  # another secret: no proxy answers
            async with asyncio.timeout(20):
                await Publisher(
                    roles.registry,
                    secret="a secret of somebody else",
                    settings=Settings(links=LINKS),
                    timeout_seconds=2,
                ).open()
        refused = other.get("/metrics").text
        assert 'pixiu_links_refused_total{reason="unauthentic"}' in refused
    gateway.process.terminate()
    assert gateway.process.wait(20) == 0

    def rooms() -> bool:
        return "pixiu_broker_sessions 0.0" in broker.get("/metrics").text

    await eventually(rooms, "the broker to forget the gateway's sessions")


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
