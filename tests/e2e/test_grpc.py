"""gomsg's doors over gRPC, with a client generated from its own files at the moment."""

import asyncio
import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import httpx
import pytest
import websockets
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pixiu.config import SecuritySettings
from pixiu.model.gomsg.error_pb2 import Code, Detail, Status
from pixiu.model.gomsg.msg_pb2 import Ack, ClientPayload, MessageOption, Ping, ServerPayload, SubRoomRequest
from pixiu.model.gomsg.push_pb2 import PlatformConfig, PushRequest
from pixiu.model.gomsg.session_pb2 import KickRequest, ListRequest
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.e2e.test_surfaces import Served
from tests.engines import ValkeyProcess
from tests.servers import free_port

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """What a user of gomsg's files has: generated stubs. The messages are those that are here already."""
    folder = tmp_path_factory.mktemp("generated")
    names = ("msg", "push", "session")
    files = [f"pixiu/model/gomsg/{name}.proto" for name in names]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'src'}", f"--grpc_python_out={folder}", *files]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder / "pixiu" / "model" / "gomsg"))
    try:
        yield SimpleNamespace(**{name: importlib.import_module(f"{name}_pb2_grpc") for name in names})
    finally:
        sys.path.pop(0)


class GrpcServed(Served):
    """A node with the gRPC door."""

    def __init__(self, data: Path, *settings: str) -> None:
        self.grpc_port = free_port()
        super().__init__(data, f"gateway.grpc_port={self.grpc_port}", *settings)

    def bearer(self, user: str, platform: str = "ios", *, is_admin: bool = False) -> list[tuple[str, str]]:
        clock = SystemClock()
        tokens = Tokens(Keyring(self.data, clock), clock, SecuritySettings())
        return [("authorization", f"Bearer {tokens.issue(Identity(user, platform, '', is_admin=is_admin))}")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServed]:
    server = GrpcServed(tmp_path_factory.mktemp("node") / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def channel(served: GrpcServed) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as opened:
        yield opened


class Client:
    """One LoopV1, from the client's side."""

    def __init__(self, stub: Any, metadata: list[tuple[str, str]]) -> None:
        self.call = stub.LoopV1(metadata=metadata)

    async def say(self, seq: str = "", **body: Any) -> None:
        await self.call.write(ClientPayload(seq=seq, **body))

    async def hear(self) -> ServerPayload:
        async with asyncio.timeout(10):
            payload = await self.call.read()
        assert isinstance(payload, ServerPayload), "the stream has ended"
        return payload

    async def ends(self) -> grpc.StatusCode:
        """What it ends with; what was said before is passed over."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with asyncio.timeout(10):
                while await self.call.read() is not grpc.aio.EOF:
                    pass
        code: grpc.StatusCode = await self.call.code()
        return code

    async def opened(self) -> None:
        """Whoever gets a pong has a session."""
        await self.say("open", ping=Ping())
        assert (await self.hear()).HasField("pong")


def packed(text: str) -> AnyMessage:
    body = AnyMessage()
    body.Pack(StringValue(value=text))
    return body


def text_of(payload: ServerPayload) -> str:
    value = StringValue()
    (message,) = payload.msgs_wrapper.msgs
    assert message.body.Unpack(value)
    return value.value


async def sessions_of(stubs: Any, channel: Any, served: GrpcServed, user: str) -> list[Any]:
    admin = served.bearer("ops", is_admin=True)
    found = await stubs.session.SessionStub(channel).List(ListRequest(uid=user), metadata=admin)
    return list(found.sessions)


@pytest.mark.feature("P01")
async def test_a_ping_gets_a_pong_and_a_half_close_ends_the_session_with_ok(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    client = Client(stubs.msg.MsgStub(channel), served.bearer("ann"))
    await client.say("7", ping=Ping())
    answer = await client.hear()
    assert (answer.seq, answer.pong.code, answer.need_ack) == ("7", Code.NONE, False)
    assert [each.platform for each in await sessions_of(stubs, channel, served, "ann")] == ["ios"]
    await client.call.done_writing()
    assert await client.call.code() == grpc.StatusCode.OK
    async with asyncio.timeout(10):
        while await sessions_of(stubs, channel, served, "ann"):
            await asyncio.sleep(0.02)


@pytest.mark.feature("P01", "P23")
async def test_a_push_over_grpc_reaches_the_client_until_it_is_acked_and_not_after(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    admin = served.bearer("ops", is_admin=True)
    push = stubs.push.PushStub(channel).Push
    await Client(stubs.msg.MsgStub(channel), served.bearer("bea")).opened()  # so that she exists
    request = PushRequest(
        uids=["bea"], msg_bodies=[packed("one"), packed("two")],
        msg_options=cast("MessageOption", MessageOption.NEED_ACK | MessageOption.NEED_OFFLINE),
        platform_config=PlatformConfig(platforms=["ios"]),
    )  # fmt: skip
    await push(request, metadata=admin)
    client = Client(stubs.msg.MsgStub(channel), served.bearer("bea"))
    first, second = await client.hear(), await client.hear()
    assert [text_of(first), text_of(second)] == ["one", "two"]
    assert first.need_ack and first.msgs_wrapper.msgs[0].seq.isdigit()
    await client.say(ack=Ack(seq=first.seq))
    await client.say("1", ping=Ping())
    assert (await client.hear()).HasField("pong")
    client.call.cancel()
    again = Client(stubs.msg.MsgStub(channel), served.bearer("bea"))
    assert text_of(await again.hear()) == "two", "what was not acked comes again, what was acked does not"
    await again.say(ack=Ack(seq="not a cursor"))  # ignored, as there
    await again.opened()
    again.call.cancel()


@pytest.mark.engines
@pytest.mark.feature("P01", "P05", "P23", "P26")
async def test_with_stores_in_redis_the_session_and_what_is_pushed_are_there(stubs: Any, tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path / "valkey") as redis:
        node = GrpcServed(tmp_path / "data", f"store={redis.url}")
        node.start()

        async def until(is_so: Callable[[], object]) -> None:
            async with asyncio.timeout(10):
                while not is_so():
                    await asyncio.sleep(0.02)

        def fields() -> list[bytes]:
            return list(redis.told("HGETALL", "msg/u:7/ss"))[1::2]

        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
                client = Client(stubs.msg.MsgStub(channel), node.bearer("7"))
                await client.opened()
                await until(lambda: [field.partition(b"-")[0] for field in fields()] == [b"ios"])
                await client.call.done_writing()
                assert await client.call.code() == grpc.StatusCode.OK
                await until(lambda: not redis.told("EXISTS", "msg/u:7/ss"))
                request = PushRequest(
                    uids=["7"], msg_bodies=[packed("one")],
                    msg_options=cast("MessageOption", MessageOption.NEED_ACK | MessageOption.NEED_OFFLINE),
                )  # fmt: skip
                await stubs.push.PushStub(channel).Push(request, metadata=node.bearer("8", is_admin=True))
                await until(lambda: redis.told("ZCARD", "msg/u:7/p:ios/oms") == 1)
                again = Client(stubs.msg.MsgStub(channel), node.bearer("7"))
                pushed = await again.hear()
                assert text_of(pushed) == "one"
                await again.say(ack=Ack(seq=pushed.seq))
                await until(lambda: not redis.told("EXISTS", "msg/u:7/p:ios/oms"))
                await until(lambda: len(fields()) == 1)
        finally:
            assert node.stop() == 0
        assert not redis.told("EXISTS", "msg/u:7/ss"), "and with the node's end all sessions are gone"


async def test_a_chat_message_comes_packed_as_it_is_stored_and_a_room_as_messages_without_ack(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    client = Client(stubs.msg.MsgStub(channel), served.bearer("cam"))
    await client.opened()
    sender = served.token("dot")
    served.act(sender, "send", to="cam", text="hello, cam")
    payload = await client.hear()
    chat = MsgChat()
    assert payload.msgs_wrapper.msgs[0].body.Unpack(chat)
    assert chat.data == b"hello, cam" and str(chat.msgId) == payload.msgs_wrapper.msgs[0].seq
    await client.say("9", sub=SubRoomRequest(room="lobby"))
    answer = await client.hear()
    assert (answer.sub_resp.seq, answer.sub_resp.code) == ("9", Code.NONE)
    async with served.socket(sender) as socket:
        await socket.send('{"id": 1, "action": "enter", "params": {"room": "lobby"}}')
        await socket.send('{"id": 2, "action": "say", "params": {"room": "lobby", "text": "to all"}}')
        heard = await client.hear()
    assert heard.HasField("msgs_wrapper") and not heard.need_ack
    assert b"to all" in heard.SerializeToString()
    await client.say("10", sub=SubRoomRequest(room=""))
    assert (await client.hear()).sub_resp.code == Code.UNKNOWN
    client.call.cancel()


@pytest.mark.feature("P04")
async def test_a_newer_session_of_the_platform_ends_the_older_with_gomsgs_code(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    older = Client(stubs.msg.MsgStub(channel), served.bearer("eve"))
    await older.opened()
    newer = Client(stubs.msg.MsgStub(channel), served.bearer("eve"))
    await newer.opened()
    assert await older.ends() == grpc.StatusCode.INTERNAL
    trailers = dict(await older.call.trailing_metadata())
    detail = Detail()
    assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(detail)
    assert detail.code == Code.NEW_SESSION_ON_SAME_PLATFORM
    admin = served.bearer("ops", is_admin=True)
    kicked = await stubs.session.SessionStub(channel).Kick(KickRequest(uid="eve", reason="out"), metadata=admin)
    assert kicked.kicked == 1
    assert await newer.ends() == grpc.StatusCode.INTERNAL
    assert await newer.call.details() == "out"


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ([], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer nonsense")], grpc.StatusCode.UNAUTHENTICATED),
        ([("authorization", "Bearer x"), ("pixiu-cursor", "minus one")], grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_stranger_gets_a_status_and_nothing_else(
    stubs: Any, channel: Any, metadata: Any, status: grpc.StatusCode
) -> None:
    client = Client(stubs.msg.MsgStub(channel), metadata)
    assert await client.ends() == status


async def test_what_is_wrong_with_a_call_is_said_with_grpcs_own_codes(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    push, sessions = stubs.push.PushStub(channel).Push, stubs.session.SessionStub(channel)
    admin = served.bearer("ops", is_admin=True)
    cases: list[tuple[Any, Any, Any, grpc.StatusCode]] = [
        (push, PushRequest(uids=["x"]), served.bearer("fay"), grpc.StatusCode.PERMISSION_DENIED),
        (push, PushRequest(uids=["x"]), None, grpc.StatusCode.UNAUTHENTICATED),
        (push, PushRequest(uids=[""], msg_bodies=[packed("x")]), admin, grpc.StatusCode.INVALID_ARGUMENT),
        (sessions.List, ListRequest(limit=5000), admin, grpc.StatusCode.INVALID_ARGUMENT),
        (sessions.Kick, KickRequest(uid="nobody at all"), admin, grpc.StatusCode.NOT_FOUND),
    ]
    for call, request, metadata, status in cases:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(request, metadata=metadata)
        assert raised.value.code() == status, raised.value.details()
        assert raised.value.details()
    client = Client(stubs.msg.MsgStub(channel), served.bearer("gus"))
    await client.opened()
    await client.say("no body")
    assert await client.ends() == grpc.StatusCode.INVALID_ARGUMENT


async def test_the_health_service_says_that_it_serves(channel: Any) -> None:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="msgpb.Msg"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_with_gateways_of_their_own_grpc_is_refused_in_one_line(tmp_path: Path) -> None:
    options = ["--port", "0", "--queue-port", "0", "--grpc", "0", "--gateways", "2"]
    command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--data", str(tmp_path / "data"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "gateway.processes = 0" in done.stderr and "Traceback" not in done.stderr


GOMSG_EXAMPLE: dict[str, Any] = {
    "uids": ["molon"],
    "platform_config": {"platforms": ["desktop", "mobile"], "without_platforms": []},
    "exclusive_platform_config": {"uid1": {"platforms": [], "without_platforms": ["desktop"]}},
    "msg_bodies": [
        {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "offline"},
        {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "test2"},
    ],
    "msg_options": 7,
    "exclusive_msg_options": {"uid2": 4},
    "reserve": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "reserve content"},
}
"""The request of gomsg's script/dev/curl_msg.sh."""


def post_push(served: GrpcServed, request: dict[str, Any]) -> httpx.Response:
    admin = {"Authorization": f"Bearer {served.token('ops', '--admin')}"}
    return httpx.post(f"{served.url}/v1/push", json=request, headers=admin)


@pytest.mark.feature("P03", "P22", "P23")
async def test_gomsgs_example_request_delivers_strings_with_options_on_both_platforms(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    answer = post_push(served, GOMSG_EXAMPLE)
    assert answer.status_code == 200, answer.text
    for platform in ("desktop", "mobile"):
        client = Client(stubs.msg.MsgStub(channel), served.bearer("molon", platform))
        received = [await client.hear(), await client.hear()]
        assert [text_of(payload) for payload in received] == ["offline", "test2"]
        assert [payload.msgs_wrapper.msgs[0].options for payload in received] == [7, 7]
        client.call.cancel()


@pytest.mark.feature("P22")
async def test_message_options_and_need_ack_arrive_as_the_publisher_set_them(
    stubs: Any, channel: Any, served: GrpcServed
) -> None:
    client = Client(stubs.msg.MsgStub(channel), served.bearer("opt"))
    await client.opened()
    push = stubs.push.PushStub(channel).Push
    admin = served.bearer("ops", is_admin=True)
    for options in range(8):
        body = packed(str(options))
        request = PushRequest(uids=["opt"], msg_bodies=[body], msg_options=cast("MessageOption", options))
        await push(request, metadata=admin)
        payload = await client.hear()
        (message,) = payload.msgs_wrapper.msgs
        assert (text_of(payload), message.options) == (str(options), options)
        assert payload.need_ack is bool(options & MessageOption.NEED_ACK)
        if payload.need_ack:
            await client.say(ack=Ack(seq=payload.seq))
    client.call.cancel()
    await push(
        PushRequest(
            uids=["opt"], msg_bodies=[packed("later")], msg_options=MessageOption.NEED_OFFLINE,
            exclusive_msg_options={"opt": cast("MessageOption", 6), "someone else": MessageOption.NEED_ACK},
        ),
        metadata=admin,
    )  # fmt: skip
    again = Client(stubs.msg.MsgStub(channel), served.bearer("opt"))
    stored = await again.hear()
    assert (text_of(stored), stored.msgs_wrapper.msgs[0].options) == ("later", 6)
    assert stored.need_ack, "a stored message needs an ack to leave the inbox, whatever its options"
    again.call.cancel()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"@type": "type.googleapis.com/google.protobuf.Int64Value", "value": "-7"}, Int64Value(value=-7)),
        ({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": [1, None]}}, None),
    ],
)
async def test_wellknown_types_in_a_json_push_arrive_as_the_packed_message(
    stubs: Any, channel: Any, served: GrpcServed, body: dict[str, Any], value: Any
) -> None:
    if value is None:
        value = Struct()
        value.update({"a": [1, None]})
    client = Client(stubs.msg.MsgStub(channel), served.bearer("wkt"))
    await client.opened()
    answer = post_push(served, {"uids": ["wkt"], "msg_bodies": [body], "msg_options": 1})
    assert answer.status_code == 200, answer.text
    payload = await client.hear()
    found = type(value)()
    assert payload.msgs_wrapper.msgs[0].body.Unpack(found)
    assert found == value
    await client.say(ack=Ack(seq=payload.seq))
    client.call.cancel()


@pytest.mark.parametrize("value", [7, None, {"text": "x"}, "\ud800"])
def test_a_string_value_that_is_no_text_is_refused_with_its_position(served: GrpcServed, value: object) -> None:
    body = {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value}
    request = json.dumps({"uids": ["molon"], "msg_bodies": ["fine", body], "msg_options": 1})
    admin = {"Authorization": f"Bearer {served.token('ops', '--admin')}"}
    answer = httpx.post(f"{served.url}/v1/push", content=request, headers=admin)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "bad_request"
    if value != "\ud800":
        assert "msg_bodies[1]" in answer.json()["error"]["message"]


@pytest.mark.feature("P14", "P25", "E23")
async def test_an_unacked_message_is_sent_again_on_the_live_connection_before_the_kick(
    stubs: Any, tmp_path: Path
) -> None:
    node = GrpcServed(tmp_path / "data", "inbox.ack_timeout_ms=250", "inbox.tries_max=2")
    node.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
            client = Client(stubs.msg.MsgStub(channel), node.bearer("ida"))
            await client.opened()
            async with node.socket(node.token("jon")) as socket:
                assert json.loads(await socket.recv())["push"] == "contacts"
                assert post_push(node, {"uids": ["ida", "jon"], "msg_bodies": ["x"], "msg_options": 3}).is_success
                sent = [await client.hear() for _ in range(3)]
                assert len({payload.seq for payload in sent}) == 1, "one cursor for all attempts"
                assert len({payload.msgs_wrapper.msgs[0].seq for payload in sent}) == 1
                assert await client.ends() == grpc.StatusCode.INTERNAL
                trailers = dict(await client.call.trailing_metadata())
                detail = Detail()
                assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Unpack(detail)
                assert detail.code == Code.NO_ACK
                frames = []
                async with asyncio.timeout(10):
                    with contextlib.suppress(websockets.ConnectionClosed):
                        while True:
                            frames.append(json.loads(await socket.recv()))
            messages = [each for each in frames if each["push"] == "message"]
            assert len(messages) == 3 and all(each == messages[0] for each in messages)
            assert frames[-1] == {"push": "kick", "reason": "no_ack"}
            again = Client(stubs.msg.MsgStub(channel), node.bearer("ida"))
            assert (await again.hear()).msgs_wrapper.msgs[0].seq == sent[0].msgs_wrapper.msgs[0].seq
            again.call.cancel()
    finally:
        node.stop()
