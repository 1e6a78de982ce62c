"""Administration over HTTP, and gRPC, at a gateway of a cluster."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import httpx
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import StringValue

from pixiu.model.gomsg.msg_pb2 import ClientPayload, MessageOption, Ping, ServerPayload
from pixiu.model.gomsg.push_pb2 import PushRequest
from pixiu.model.gomsg.session_pb2 import KickRequest, KickResponse, ListRequest, ListResponse
from pixiu.queue.client import Client
from tests.cluster.processes import Cluster
from tests.cluster.scenario import Doors
from tests.servers import free_port, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.serial

TEXT = """
name = "admin"
zookeeper = {{ nodes = 1 }}

[roles.shard]

[roles.gateway]
settings = {{ "gateway.grpc_port" = {grpc_port} }}
"""
ANN, BEN = "1000", "1001"


class Admin:
    """An admin's requests at a gateway."""

    def __init__(self, doors: Doors) -> None:
        headers = {"Authorization": f"Bearer {doors.token('root', is_admin=True)}"}
        self.http = httpx.AsyncClient(base_url=doors.urls[0], headers=headers, timeout=30)

    async def get(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = await self.http.get(f"/v1/admin/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = await self.http.post(f"/v1/admin/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.feature("P11")
async def test_gateway_answers_admins_as_a_node_does_and_serves_grpc(tmp_path: Path) -> None:
    port = free_port()
    with Cluster(tmp_path, TEXT.format(grpc_port=port)) as cluster:
        address = next(row["address"] for row in cluster.nodes().values() if row["role"] == "gateway")
        doors = Doors([f"http://{address}"], cluster.folder / "nodes" / "gateway")
        ready = f"http://{address}/readyz"
        wait_for(lambda: httpx.get(ready).json().get("notes", {}).get("shards") is None, timeout_s=40, what="the shard")
        admin = Admin(doors)
        async with admin.http:
            await sessions_and_kicks(doors, admin, port)
            await dead_letters(cluster, admin)
            await the_log(doors, admin)
            await numbers_and_explanations(doors, admin)
            await what_is_not_available(admin)
            assert (
                await admin.http.get("/v1/admin/sessions", headers={"Authorization": "Bearer x"})
            ).status_code == 401


async def sessions_and_kicks(doors: Doors, admin: Admin, port: int) -> None:
    async with doors.connect(ANN) as ann, doors.connect(BEN) as ben:
        await ann.send(BEN, "hello")
        found = await admin.get("sessions")
        assert {row["user"] for row in found["sessions"]} == {ANN, BEN} and not found["has_more"]
        ids = [int(row["session_id"]) for row in found["sessions"]]
        assert ids == sorted(ids, reverse=True)
        first = await admin.get("sessions", limit=1)
        rest = await admin.get("sessions", limit=1, after=first["sessions"][0]["session_id"])
        assert [first["has_more"], rest["has_more"]] == [True, False]
        assert [row["user"] for row in (await admin.get("sessions", user=BEN))["sessions"]] == [BEN]
        await grpc_door(doors, port)
        assert await admin.post("kick", user=ANN, reason="enough") == {"kicked": 1}
        wait = await admin.get("sessions", user=ANN)
        assert wait["sessions"] == [] or wait["sessions"][0]["session_id"] not in map(str, ids)
        await admin.post("kick", status=404, user="nobody-at-all")
        del ben


async def grpc_door(doors: Doors, port: int) -> None:
    """Gomsg's channel, and its sessions for admins."""
    bearer = [("authorization", f"Bearer {doors.token('2000', platform='ios')}")]
    root = [("authorization", f"Bearer {doors.token('root', is_admin=True)}")]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        loop = channel.stream_stream(
            "/msgpb.Msg/LoopV1", request_serializer=ClientPayload.SerializeToString,
            response_deserializer=ServerPayload.FromString,
        )(metadata=bearer)  # fmt: skip
        await loop.write(ClientPayload(seq="1", ping=Ping()))
        async with asyncio.timeout(15):
            assert await loop.read() is not grpc.aio.EOF
        push = channel.unary_unary(
            "/pushpb.Push/Push", request_serializer=PushRequest.SerializeToString,
            response_deserializer=Empty.FromString,
        )  # fmt: skip
        body = AnyMessage()
        body.Pack(StringValue(value="from gomsg"))
        await push(PushRequest(uids=["2000"], msg_bodies=[body], msg_options=MessageOption.NEED_ACK), metadata=root)
        async with asyncio.timeout(15):
            (message,) = (await loop.read()).msgs_wrapper.msgs
        assert (message.body, message.options) == (body, MessageOption.NEED_ACK)
        listing = channel.unary_unary(
            "/sessionpb.Session/List", request_serializer=ListRequest.SerializeToString,
            response_deserializer=ListResponse.FromString,
        )  # fmt: skip
        found = await listing(ListRequest(), metadata=root)
        assert len(found.sessions) == 3
        kick = channel.unary_unary(
            "/sessionpb.Session/Kick", request_serializer=KickRequest.SerializeToString,
            response_deserializer=KickResponse.FromString,
        )  # fmt: skip
        assert (await kick(KickRequest(uid="2000"), metadata=root)).kicked == 1


async def dead_letters(cluster: Cluster, admin: Admin) -> None:
    secret = (cluster.folder / "secret").read_text(encoding="utf-8").strip()
    async with Client(cluster.registry, key=secret) as client:
        await client.append("pixiu.tasks", b"\xff\xff no task")
    async with asyncio.timeout(30):
        while not (found := (await admin.get("dead-letters"))["dead_letters"]):
            await asyncio.sleep(0.1)
    letter = found[0]["id"]
    assert found[0]["what"] == "undecodable"
    assert await admin.post(f"dead-letters/{letter}/replay") == {"id": letter}
    await admin.post(f"dead-letters/{letter}/replay", status=409)
    await admin.post("dead-letters/999999999/replay", status=404)
    async with asyncio.timeout(30):
        while not [row for row in (await admin.get("dead-letters"))["dead_letters"] if row["id"] != letter]:
            await asyncio.sleep(0.1)  # it was tried again, and failed again


async def the_log(doors: Doors, admin: Admin) -> None:
    names = [row["name"] for row in (await admin.get("topics"))["topics"]]
    assert {"pixiu.main", "pixiu.dlq"} <= set(names) and names == sorted(names)
    scheduled = await doors.act(ANN, "schedule", to=BEN, text="later", at=int(time.time() + 3600) * 1000)
    async with asyncio.timeout(20):
        while not (found := (await admin.get("scheduled"))["scheduled"]):
            await asyncio.sleep(0.1)
    assert found[0]["schedule_id"] == scheduled["schedule_id"] and "text" not in found[0]
    report = await admin.get("audit")
    assert report["balanced"] and [row["shard"] for row in report["shards"]] == [0]
    tail = await admin.get("topics/pixiu.main/tail", limit=2)
    assert len(tail["messages"]) == 2 and tail["topic"]["bytes"] > 0
    await admin.get("topics/nothing/tail", status=404)


async def numbers_and_explanations(doors: Doors, admin: Admin) -> None:
    sent = await doors.act(ANN, "send", to=BEN, text="explain me")
    found = await admin.get("explain", message_id=sent["message_id"])
    assert (found["from"], found["to"]) == (ANN, BEN) and found["hops"]
    await admin.get("explain", status=404, message_id=1)
    stats = await admin.get("stats")
    assert stats["queue"]["is_leader"] and stats["counters"]["accepted"] > 0
    async with asyncio.timeout(20):
        while not (history := await admin.get("stats/history"))["samples"]["at"]:
            await asyncio.sleep(0.1)
    assert history["every_ms"] == 2_000


async def what_is_not_available(admin: Admin) -> None:
    for path in ("cut", "pipeline", "pipeline/report"):
        error = (await admin.get(path, status=404))["error"]
        assert "not available in a cluster; instead: " in error["message"], path
        assert ("pixiu pipeline r" in error["message"]) == path.startswith("pipeline"), error
        assert "--server" not in error["message"], error
    facts = (await admin.http.get("/console.json")).json()
    assert facts["cluster"] is True
