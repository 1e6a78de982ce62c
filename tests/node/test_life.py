"""A node's beginning and end: what fails, is cancelled or is closed in the middle, and what a next start finds."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

import pixiu
from pixiu.backends.embedded.layout import LAYOUT
from pixiu.config import InboxSettings, Settings
from pixiu.model.errors import ConfigError, CorruptData, Gone, NotAllowed, RequestError, Unavailable
from pixiu.model.pixiu_pb2 import Notify, Task
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import open_stores, rebuild_stores
from pixiu.ports.log import NOTIFY
from pixiu.ports.notifications import Notification, Told
from pixiu.ports.stores import Lane
from pixiu.queue.storage.journal import Journal
from pixiu.roles.carrier import cut as cuts


async def two_users(node: EmbeddedNode) -> None:
    await node.create_user("alice")
    await node.create_user("bob")


async def texts(node: EmbeddedNode) -> list[str]:
    return [message["text"] for message in (await node.history("bob", with_="alice"))["messages"]]


async def test_whoever_waits_when_a_node_closes_is_told(tmp_path: Path) -> None:
    node = EmbeddedNode(tmp_path)
    async with node:
        await two_users(node)
        waiting = [
            asyncio.create_task(node.create_user("carol")),
            asyncio.create_task(node.connect("bob", platform="ios")),
            asyncio.create_task(node.audit()),
        ]
        sent = asyncio.create_task(node.send("alice", to="bob", text="hi"))
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert "message_id" in await sent
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    with pytest.raises(NotAllowed):
        await node.send("alice", to="bob", text="too late")
    async with node:
        assert await texts(node) == ["hi"]


async def test_a_connect_that_was_given_up_leaves_no_session_behind(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        bob = node.messaging.proxy.context.directory.user("bob")
        connecting = asyncio.create_task(node.connect("bob", platform="ios"))
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        await asyncio.sleep(0.2)
        assert "ios" in node.messaging.stores.inboxes.platforms(bob)
        assert node.messaging.relay.sessions_of(bob) == []


async def test_a_start_that_failed_holds_nothing(tmp_path: Path) -> None:
    wrong = Settings(inbox=InboxSettings(offline_max_by_platform="nonsense"))
    with pytest.raises(ConfigError) as kept:
        await EmbeddedNode(tmp_path, settings=wrong).__aenter__()
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
    assert kept.value is not None  # an error that is kept keeps its frames, and what they hold


async def test_a_cursor_of_another_inbox_loses_nothing(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        for number in range(3):
            await node.send("alice", to="bob", text=str(number))
        phone = await node.connect("bob", platform="ios", cursor="1000")
        assert [(await phone.receive(timeout_seconds=5))["text"] for _ in range(3)] == list("012")
        await phone.leave()
        assert phone.cursor == "3"


@pytest.mark.parametrize("cursor", ["x", "-1", "", str(2**70)])
async def test_what_is_no_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    async with pixiu.Node.embedded(tmp_path, creates_users=True) as node:
        with pytest.raises(RequestError, match="cursor"):
            await node.connect("bob", cursor=cursor)
        with pytest.raises(RequestError, match="Unicode"):
            await node.send("\ud800", to="bob", text="hi")


async def test_stores_that_are_ahead_of_the_log_are_not_used(tmp_path: Path) -> None:
    """They would take what is accepted next for something that they know."""
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
    shutil.copytree(tmp_path / "queue", tmp_path / "copy")
    async with pixiu.Node.embedded(tmp_path) as node:
        await node.send("alice", to="bob", text="gone")
    shutil.rmtree(tmp_path / "queue")
    (tmp_path / "copy").rename(tmp_path / "queue")
    with pytest.raises(CorruptData, match="pixiu rebuild"):
        await EmbeddedNode(tmp_path).__aenter__()
    rebuild_stores(tmp_path)
    async with pixiu.Node.embedded(tmp_path) as node:
        await node.send("alice", to="bob", text="new")
        assert (await node.audit())["balanced"]
        assert await texts(node) == ["new"]


async def test_a_rebuild_does_no_task_again(tmp_path: Path) -> None:
    """A scheduled send that was refused stays unsaid, and no phone rings for what is long past."""
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        await node.send("alice", to="bob", text="hi")
        await node.act("alice", "schedule", to="bob", text="refused", at=int(time.time() * 1000) + 100)
        await node.act("bob", "block", user="alice")
        async with asyncio.timeout(10):
            while not node.messaging.carrier.counters.dead_letters or node.messaging.carrier.tasks.under_way:  # type: ignore[union-attr]
                await asyncio.sleep(0.05)
        await node.act("bob", "unblock", user="alice")
    rebuild_stores(tmp_path)
    _, stores = open_stores(tmp_path)
    assert stores.applied(Lane.TASKS) > 0
    stores.close()
    async with pixiu.Node.embedded(tmp_path) as node:
        await asyncio.sleep(0.3)
        assert node.messaging.carrier.counters.tasks == 0
        assert await texts(node) == ["hi"]


async def test_the_journal_is_kept_until_the_stores_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        await asyncio.sleep(0.2)
        flushes: list[int] = []
        stores = node.host.stores
        monkeypatch.setattr(stores, "flush", lambda: flushes.append(1))
        engine = node.host.engine
        (hold,) = engine.retention_holds
        assert (hold(), len(flushes)) == (min(map(stores.applied, Lane)) + 1, 1)

        def fail() -> None:
            raise Unavailable("no disk")

        monkeypatch.setattr(stores, "flush", fail)
        assert engine.retained_from() == 0
        monkeypatch.undo()


async def test_a_store_that_was_lost_rings_no_phone_for_what_is_long_past(tmp_path: Path) -> None:
    told: list[int] = []

    class Phones:
        def send(self, notification: Notification, done: Told) -> None:
            told.append(notification.message_id)
            done(None)

    async with pixiu.Node.embedded(tmp_path) as node:
        node.messaging.horn._notifications = Phones()
        task = Task(at=1_000_000, notify=Notify(user=1, platforms=["ios"], message_id=7))
        fresh = Task(at=node.messaging._clock.now_ms(), notify=Notify(user=1, platforms=["ios"], message_id=8))
        await node.create_user("1")
        for each in (task, fresh):
            node.messaging.log.publish(NOTIFY, each.SerializeToString())
        for _ in range(100):
            await asyncio.sleep(0.05)
            if told:
                break
        assert told == [8]


async def test_others_go_on_while_an_audit_sees_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut takes many turns; what is sent meanwhile is delivered, and is not in it."""
    monkeypatch.setattr(cuts, "CUT_TURN", 2)
    async with EmbeddedNode(tmp_path) as node:
        await two_users(node)
        for number in range(20):
            await node.create_user(f"user {number}")
            await node.send("alice", to=f"user {number}", text="hi")
        taking = asyncio.create_task(node.host.cut())
        while not node.messaging.carrier.is_cutting:
            await asyncio.sleep(0)
        sending = [asyncio.create_task(node.send("alice", to="bob", text=f"later {number}")) for number in range(5)]
        turns = 0
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10
        await asyncio.wait(sending)
        cut = await taking
        assert sorted(len(entries) for _, entries, _ in cut.inboxes.values()) == [0, *[1] * 20, 20]
        report = await node.audit()
        assert report["balanced"] and report["waiting"] == 50


async def test_stores_of_another_layout_are_made_again_from_the_log(tmp_path: Path) -> None:
    async with EmbeddedNode(tmp_path) as node:
        await two_users(node)
        await node.send("alice", to="bob", text="hi", send_id="1")
        first_life = node.messaging.relay.epoch
    store, stores = open_stores(tmp_path)
    finished = stores.applied(Lane.TASKS)
    store.write([(b"\x11rows", b"of another layout")], [b"\x01layout"])
    stores.close()
    async with EmbeddedNode(tmp_path) as node:
        assert await texts(node) == ["hi"]
        assert (await node.audit())["balanced"]
        assert node.messaging.relay.epoch > first_life
        assert node.host.stores.applied(Lane.TASKS) >= finished
    store, stores = open_stores(tmp_path)
    assert store.get(b"\x11rows") is None
    assert int.from_bytes(store.get(b"\x01layout") or b"", "big") == LAYOUT
    stores.close()


async def test_stores_of_another_layout_are_kept_when_the_log_has_lost_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedNode(tmp_path) as node:
        await two_users(node)
    store, stores = open_stores(tmp_path)
    store.write([], [b"\x01layout"])
    stores.close()
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "first_event_id", property(lambda journal: 7))
        with pytest.raises(Gone, match="layout 1"):
            await EmbeddedNode(tmp_path).__aenter__()
    _, stores = open_stores(tmp_path)
    assert stores.users.number_of("alice") is not None
    stores.close()
