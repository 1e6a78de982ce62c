"""Seed 000's promises about sessions and offline messages, looked at with Redis's own commands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pixiu
from pixiu.config import CarrierSettings, EngineSettings, InboxSettings, MessagingSettings, Settings
from pixiu.model.session import Session
from pixiu.node.device import Device
from pixiu.node.embedded import EmbeddedNode
from tests.engines import ValkeyProcess

if TYPE_CHECKING:
    from pixiu.model.errors import PixiuError


@asynccontextmanager
async def opened(root: Path, server: ValkeyProcess, **inbox: Any) -> AsyncIterator[EmbeddedNode]:
    settings = Settings(
        engines=EngineSettings(store=server.url),
        messaging=MessagingSettings(sends_per_second=0),
        carrier=CarrierSettings(commit_ms=20),
        inbox=InboxSettings(**inbox),
    )
    async with pixiu.Node.embedded(root, settings=settings, creates_users=True) as node:
        yield node


async def until(is_so: Any, what: str) -> None:
    for _ in range(500):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


async def through_gateway(node: EmbeddedNode, user: str, gateway: str) -> Session:
    """A session at a gateway in another process."""
    done: asyncio.Future[Session | PixiuError] = asyncio.get_running_loop().create_future()
    device = Device(node.messaging, user, "ios", "phone", cursor=0)
    node.messaging.connect(user, "ios", "phone", device, done.set_result, gateway=gateway)
    session = await done
    assert isinstance(session, Session)
    return session


@pytest.mark.feature("P05", "P15", "P16", "P17")
async def test_a_dead_gateways_fields_go_and_what_is_pushed_then_waits(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server) as node:
        node.messaging.gateway_came("g1")
        sessions = [await through_gateway(node, user, "g1") for user in ("1", "2")]
        for user, session in zip("12", sessions, strict=True):
            expected = {str(session.session_id): "ios-g1"}
            await until(lambda u=user, e=expected: redis.hgetall(f"msg/u:{u}/ss") == e, "the field is there")
        assert node.messaging.gateway_gone("g1") == 2
        redis.hset("msg/u:2/ss", "999", "ios-forged")
        sent = await node.send("1", to="2", text="to nobody")
        await node.host.settled()
        assert redis.zrange("msg/u:2/p:ios/oms", 0, -1) == [sent["message_id"]], "whatever the hash says"
        # A task for a session that has vanished ends, and leaves no field.
        assert not node.messaging.relay.kick(sessions[0].user, sessions[0].session_id, "late")
        node.messaging.relay.flush(sessions[0].user, "ios")
        await until(lambda: redis.hgetall("msg/u:1/ss") == {}, "the field is gone")
        await (await node.connect("2", platform="web")).leave()
        await until(lambda: redis.hgetall("msg/u:2/ss") == {}, "a forged field goes, too")


@pytest.mark.feature("P18", "P21")
async def test_a_backlog_leaves_page_by_page_as_it_is_acked(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server, window=80, read_limit=80) as node:
        await (await node.connect("2", platform="ios")).leave()
        sends = await asyncio.gather(*(node.send("1", to="2", text=str(number)) for number in range(205)))
        ids = sorted((sent["message_id"] for sent in sends), key=int)
        await node.host.settled()
        assert redis.zcard("msg/u:2/p:ios/oms") == 205
        assert redis.get(f"msg/om:{ids[0]}/n") == "4", "two inboxes, two rows of timelines"
        phone = await node.connect("2", platform="ios")
        for _ in range(80):
            await phone.receive(timeout_seconds=5)
        await phone.leave()
        await node.host.applied()
        await node.host.settled()
        assert redis.zrange("msg/u:2/p:ios/oms", 0, -1) == ids[80:], "exactly 125 remain"
        assert redis.get(f"msg/om:{ids[0]}/n") == "3"


@pytest.mark.feature("P19")
async def test_what_has_waited_too_long_is_gone_from_every_key(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server, expire_ms=600, sweep_interval_ms=100) as node:
        await (await node.connect("2", platform="ios")).leave()
        pushed = await node.act(None, "push", uids=["2"], msg_bodies=[{"text": "old"}], msg_options=3)
        (message_id,) = pushed["message_ids"]
        await node.host.settled()
        assert redis.zcard("msg/u:2/p:ios/oms") == 1
        assert redis.get(f"msg/om:{message_id}/n") == "1"
        await until(lambda: not redis.exists("msg/u:2/p:ios/oms"), "the list is gone")
        await until(lambda: not redis.exists(f"msg/om:{message_id}/m", f"msg/om:{message_id}/n"), "the body is gone")
        phone = await node.connect("2", platform="ios")
        with pytest.raises(TimeoutError):
            await phone.receive(timeout_seconds=0.2)
        assert (await node.audit())["expired"] == 1
