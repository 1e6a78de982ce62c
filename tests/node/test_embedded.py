"""The whole of Pixiu in a program: what users do, on real files."""

import asyncio
from pathlib import Path

import pytest

import pixiu
from pixiu.config import InboxSettings, Settings
from pixiu.model.errors import Conflict, NotAllowed, NotFound, PixiuError, RequestError, TooLarge, Unavailable
from pixiu.node import audit_stopped, rebuild_stores
from pixiu.node.embedded import EmbeddedNode


async def two_users(node: EmbeddedNode) -> None:
    await node.create_user("alice")
    await node.create_user("bob")


@pytest.mark.feature("P04", "P25", "R15")
async def test_what_was_said_to_an_absent_user_comes_once_also_after_a_restart(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        for number in range(5):
            await node.send("alice", to="bob", text=str(number))
    async with pixiu.Node.embedded(tmp_path) as node:
        phone = await node.connect("bob", platform="ios")
        assert [(await phone.receive(timeout_seconds=5))["text"] for _ in range(5)] == list("01234")
        await phone.leave()
        report = await node.audit()
        assert (report["balanced"], report["acked"]) == (True, 5)
    async with pixiu.Node.embedded(tmp_path) as node:
        phone = await node.connect("bob", platform="ios")
        with pytest.raises(TimeoutError):
            await phone.receive(timeout_seconds=0.2)


@pytest.mark.feature("P05")
async def test_the_table_of_sessions_knows_a_login_at_once_and_forgets_it_at_once(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        relay = node.messaging.relay
        bob = node.messaging.proxy.context.directory.user("bob")
        phone = await node.connect("bob", platform="ios", device="1")
        web = await node.connect("bob", platform="web", device="2")
        assert {session.platform for session in relay.sessions_of(bob)} == {"ios", "web"}
        await phone.leave()
        assert [session.platform for session in relay.sessions_of(bob)] == ["web"]
        second = await node.connect("bob", platform="web", device="2")
        assert (web.closed, second.closed) == ("new_session", None)
        assert len(relay.sessions_of(bob)) == 1


@pytest.mark.feature("B13")
async def test_the_last_acked_cursor_never_goes_back(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        for number in range(3):
            await node.send("alice", to="bob", text=str(number))
        phone = await node.connect("bob", platform="ios")
        for _ in range(3):
            await phone.receive(timeout_seconds=5)
        phone.ack()
        await node.audit()
        bob = node.messaging.proxy.context.directory.user("bob")
        assert phone.session is not None
        for cursor in (1, 0, -5, 2):
            node.messaging.ack(phone.session.session_id, cursor)
        await node.audit()
        state = node.messaging.stores.inboxes.state(bob, "ios")
        assert state is not None and (state.floor, state.waiting) == (3, 0)


async def test_a_device_comes_back_with_its_cursor(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        for number in range(4):
            await node.send("alice", to="bob", text=str(number))
        phone = await node.connect("bob", platform="ios")
        await phone.receive(timeout_seconds=5)
        await phone.receive(timeout_seconds=5)
        await phone.leave()
        again = await node.connect("bob", platform="ios", cursor=phone.cursor)
        assert [(await again.receive(timeout_seconds=5))["text"] for _ in range(2)] == ["2", "3"]


@pytest.mark.parametrize(
    ("action", "params", "error"),
    [
        ("send", {"to": "nobody", "text": "x"}, NotFound),
        ("send", {"to": "bob", "text": "x" * 70_000}, TooLarge),
        ("send", {"to": "bob", "txt": "x"}, RequestError),
        ("send", {"to": 7.5, "text": "x"}, RequestError),
        ("gsend", {"group": "none", "text": "x"}, NotFound),
        ("join", {"group": "closed"}, NotFound),
        ("recall", {"message_id": "12"}, NotFound),
        ("receive", {"start": "nonsense"}, RequestError),
        ("push", {"uids": ["bob"]}, NotAllowed),
        ("fly", {}, RequestError),
    ],
)
async def test_bad_input_is_a_typed_error_and_leaves_nothing_behind(
    tmp_path: Path, action: str, params: dict[str, object], error: type[PixiuError]
) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        before = node.messaging.log.committed
        with pytest.raises(error):
            await node.act("alice", action, **params)
        assert node.messaging.log.committed == before


async def test_a_second_node_on_the_same_data_is_refused(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path):
        with pytest.raises(Unavailable, match="in use"):
            async with pixiu.Node.embedded(tmp_path):
                pass


async def test_a_node_that_is_closed_says_so(tmp_path: Path) -> None:
    node = pixiu.Node.embedded(tmp_path)
    with pytest.raises(NotAllowed, match="async with"):
        await node.create_user("alice")
    async with node:
        await node.create_user("alice")
        with pytest.raises(Conflict):
            await node.act("alice", "create_group", group="g", name="g", members=["alice"])
            await node.act("alice", "create_group", group="g", name="g", members=["alice"])
    with pytest.raises(NotAllowed):
        await node.create_user("bob")


async def test_a_program_that_takes_its_time_is_never_pushed_ahead_of_and_loses_nothing(tmp_path: Path) -> None:
    settings = Settings(inbox=InboxSettings(window=4, read_limit=4, ack_timeout_ms=250, tries_max=1))
    async with pixiu.Node.embedded(tmp_path, settings=settings) as node:
        await two_users(node)
        phone = await node.connect("bob", platform="ios")
        for number in range(20):
            await node.send("alice", to="bob", text=str(number))
        first = await phone.receive(timeout_seconds=5)
        before = phone.session
        await asyncio.sleep(1.5)  # longer than the relay waits
        assert len(phone._messages) < 4
        assert (phone.closed, phone.session == before) == (None, False)
        report = await node.audit()
        assert report["balanced"] and report["acked"] == 0
        rest = [(await phone.receive(timeout_seconds=5))["text"] for _ in range(19)]
        assert [first["text"], *rest] == [str(number) for number in range(20)]
        await phone.leave()
        assert (await node.audit())["acked"] == 20


@pytest.mark.feature("P20")
async def test_a_limit_that_changes_is_in_the_log_so_that_the_books_still_balance(tmp_path: Path) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await two_users(node)
        for number in range(30):
            await node.send("alice", to="bob", text=str(number))
    small = Settings(inbox=InboxSettings(offline_max=5))
    async with pixiu.Node.embedded(tmp_path, settings=small) as node:
        report = await node.audit()
        assert report["balanced"] and report["waiting"] == 60
        await node.send("alice", to="bob", text="30")
        report = await node.audit()
        assert report["balanced"] and (report["waiting"], report["expired"]) == (10, 52)
        phone = await node.connect("bob", platform="ios")
        assert [(await phone.receive(timeout_seconds=5))["text"] for _ in range(5)] == ["26", "27", "28", "29", "30"]
    async with pixiu.Node.embedded(tmp_path) as node:
        assert (await node.audit())["balanced"]
    rebuild_stores(tmp_path)
    report = audit_stopped(tmp_path).as_json()
    assert report["balanced"] and report["expired"] == 52
