"""From a message to a phone, on a whole node: one notification for each phone that is away, and tokens that go."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import pixiu
from pixiu.config import CarrierSettings, HornSettings, Settings
from pixiu.im.draft import Actor
from pixiu.model.errors import ConfigError
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stopped import stopped_snapshot
from pixiu.node.stores import open_stores, rebuild_stores
from pixiu.runtime.backup import backup_stopped, restore
from pixiu.runtime.datadir import DataDirectory
from tests.backends.phones.apple import Apple, apple_server
from tests.backends.phones.google import Google, google_server, refusal

pytestmark = pytest.mark.feature("T2")


@pytest.fixture
async def apple(tmp_path: Path) -> AsyncIterator[Apple]:
    async with apple_server(tmp_path) as apple:
        yield apple


@pytest.fixture
async def google(tmp_path: Path) -> AsyncIterator[Google]:
    async with google_server(tmp_path) as google:
        yield google


def settings_for(apple: Apple, google: Google) -> Settings:
    phones = replace(apple.settings(), fcm_account_file=str(google.account_file), fcm_url=google.url)
    horn = HornSettings(provider="phones", collapse_ms=10)
    return Settings(horn=horn, phones=phones, carrier=CarrierSettings(task_retry_ms=20))


async def register(node: EmbeddedNode, user: str, platform: str, device: str, provider: str, token: str) -> None:
    number = node.messaging.proxy.context.directory.user(user)
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    params: dict[str, object] = {"provider": provider, "token": token}
    node.messaging.act(Actor(number, platform, device), "register_push", params, done.set_result)
    answer = await done
    assert isinstance(answer, dict), answer


async def until(is_there: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_there():
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # and no more than that


def told(apple: Apple, count: int) -> bool:
    return len(apple.payloads) == count


def held(node: EmbeddedNode, user: str) -> list[str]:
    number = node.messaging.proxy.context.directory.user(user)
    return [each.token for each in node.messaging.stores.push_tokens.of(number)]


async def two_users(node: EmbeddedNode) -> None:
    await node.create_user("anna", "Anna")
    await node.create_user("bert", "Bert")


async def test_a_message_to_one_who_is_away_rings_each_phone_once(tmp_path: Path, apple: Apple, google: Google) -> None:
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings_for(apple, google)) as node:
        await two_users(node)
        await register(node, "bert", "ios", "phone", "apns", "00aa")
        await register(node, "bert", "android", "tablet", "fcm", "t:1")
        tablet = await node.connect("bert", platform="android", device="tablet")
        await node.send("anna", to="bert", text="are you there?")
        await until(lambda: apple.payloads)
        assert [payload["aps"]["alert"] for payload in apple.payloads] == [{"title": "Anna", "body": "are you there?"}]
        assert google.messages == [], "that one has it already"
        await tablet.receive(timeout_seconds=5)
        tablet.ack()
        await tablet.leave()
        await node.act("anna", "send", to="bert", text="a secret", enc="aes", send_id="2")
        await until(lambda: len(apple.payloads) == 2 and google.messages)
        assert (len(apple.payloads), len(google.messages)) == (2, 1)
        assert apple.payloads[1]["aps"]["badge"] == 2
        assert "a secret" not in str(apple.payloads) + str(google.messages)
        assert node.messaging.horn.counters.sent == 3


async def test_a_phone_that_failed_is_told_again_and_the_other_is_not(
    tmp_path: Path, apple: Apple, google: Google
) -> None:
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings_for(apple, google)) as node:
        await two_users(node)
        await register(node, "bert", "ios", "phone", "apns", "00aa")
        await register(node, "bert", "ios", "old phone", "fcm", "t:1")
        google.answers = [refusal(403, "PERMISSION_DENIED")] * 2
        await node.send("anna", to="bert", text="hi")
        await until(lambda: len(google.messages) == 3)
        assert (len(apple.payloads), len(google.messages)) == (1, 3)
        assert node.messaging.carrier.counters.task_retries == 2


async def test_a_phone_that_is_gone_is_forgotten_also_after_a_restart_and_a_rebuild(
    tmp_path: Path, apple: Apple, google: Google
) -> None:
    root, settings = tmp_path / "data", settings_for(apple, google)
    async with pixiu.Node.embedded(root, settings=settings) as node:
        await two_users(node)
        for token in ("00aa", "00bb"):
            await register(node, "bert", "ios", token, "apns", token)
        for token in ("t:1", "t:2"):
            await register(node, "bert", "android", token, "fcm", token)
        apple.gone, google.gone = {"00aa": 2**53}, {"t:1"}
        await node.send("anna", to="bert", text="one")
        await until(lambda: len(apple.payloads) == len(google.messages) == 2)
        await until(lambda: len(held(node, "bert")) == 2)
        assert held(node, "bert") == ["00bb", "t:2"]
        assert node.messaging.horn.counters.retired == 2
        number = node.messaging.proxy.context.directory.user("bert")
    async with pixiu.Node.embedded(root, settings=settings) as node:
        assert held(node, "bert") == ["00bb", "t:2"]
        await node.send("anna", to="bert", text="two")
        await until(lambda: len(apple.payloads) == len(google.messages) == 3)
    rebuild_stores(root)
    _, stores = open_stores(root)
    assert [each.token for each in stores.push_tokens.of(number)] == ["00bb", "t:2"]
    stores.close()
    assert (len(apple.payloads), len(google.messages)) == (3, 3)


@pytest.mark.parametrize("rebuilds", [False, True])
async def test_a_restored_backup_notifies_nobody_again(
    tmp_path: Path, apple: Apple, google: Google, rebuilds: bool
) -> None:
    root, settings = tmp_path / "data", settings_for(apple, google)
    async with pixiu.Node.embedded(root, settings=settings) as node:
        await two_users(node)
        await register(node, "bert", "ios", "phone", "apns", "00aa")
        for number in range(3):
            await node.send("anna", to="bert", text=f"{number}")
            await until(partial(told, apple, number + 1))
    backup_stopped(stopped_snapshot(root), tmp_path / "backup", lambda _: None)
    restored = tmp_path / "restored"
    with DataDirectory.open(restored):
        restore(tmp_path / "backup", restored, lambda _: None)
    if rebuilds:
        rebuild_stores(restored)
    async with pixiu.Node.embedded(restored, settings=settings) as node:
        assert (await node.audit())["balanced"]
        await asyncio.sleep(0.1)
        assert (node.messaging.carrier.counters.tasks, len(apple.payloads)) == (0, 3)
        await node.send("anna", to="bert", text="what is new is told")
        await until(lambda: len(apple.payloads) == 4)
        assert apple.payloads[3]["aps"]["badge"] == 4
        assert (await node.audit())["balanced"]


async def test_an_erased_user_has_no_phone(tmp_path: Path, apple: Apple, google: Google) -> None:
    async with pixiu.Node.embedded(tmp_path / "data", settings=settings_for(apple, google)) as node:
        await two_users(node)
        await register(node, "bert", "ios", "phone", "apns", "00aa")
        number = node.messaging.proxy.context.directory.user("bert")
        erased = await node.act(None, "erase_user", user="bert")
        assert (erased["found"]["push_tokens"], erased["remains"]["push_tokens"]) == (1, 0)
        assert node.messaging.stores.push_tokens.of(number) == []
        assert node.messaging.stores.push_tokens.holder("apns", "00aa") is None


async def test_phones_without_a_provider_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs phones\.apns_key_file, phones\.fcm_account_file or"):
        await EmbeddedNode(tmp_path, settings=Settings(horn=HornSettings(provider="phones"))).__aenter__()
