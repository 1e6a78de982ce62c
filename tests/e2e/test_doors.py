"""One port, several doors: the same answers at each, and what a stranger may not do at any. With curl as the client."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.e2e.test_surfaces import Served, read
from tests.roles.gateway.raw import handshake
from tests.roles.gateway.world import get

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("doors") / "data", "log.level=debug")
    server.start()
    yield server
    server.stop()


def curl(served: Served, path: str, *options: str) -> tuple[int, str]:
    """The status and the body of what curl gets."""
    command = ["curl", "-sS", "--max-time", "10", "--path-as-is", "-w", "\n%{http_code}", *options, served.url + path]
    body, _, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return int(status), body


def as_user(token: str) -> tuple[str, str]:
    return "-H", f"Authorization: Bearer {token}"


def posting(params: Mapping[str, object]) -> tuple[str, ...]:
    return "-H", "Content-Type: application/json", "-d", json.dumps(params)


@pytest.mark.feature("P23", "R18")
async def test_a_send_id_is_one_message_whichever_door_it_comes_through(served: Served) -> None:
    alice, bob = served.token("alice"), served.token("bob")
    send: dict[str, object] = {"to": "bob", "text": "once", "send_id": "door-1"}
    status, body = curl(served, "/v1/actions/send", *as_user(alice), *posting(send))
    first = json.loads(body)
    assert status == 200
    async with served.socket(alice) as a, served.socket(bob) as b:
        await a.send(json.dumps({"id": 1, "action": "send", "params": send}))
        assert (await read(a, "answer"))["result"]["message_id"] == first["message_id"]
        await a.send(json.dumps({"id": 2, "action": "send", "params": {**send, "send_id": "door-2"}}))
        second = (await read(a, "answer"))["result"]["message_id"]
        keyed = {"to": "bob", "text": "once"}
        status, body = curl(
            served, "/v1/actions/send", *as_user(alice), "-H", "Idempotency-Key: door-2", *posting(keyed)
        )
        assert json.loads(body)["message_id"] == second != first["message_id"]
        assert [(await read(b, "message"))["message"]["message_id"] for _ in range(2)] == [first["message_id"], second]
    status, body = curl(served, "/v1/history?with=bob", *as_user(alice))
    assert [message["message_id"] for message in json.loads(body)["messages"]] == [second, first["message_id"]]


@pytest.mark.feature("P23")
async def test_a_push_over_http_reaches_a_websocket_with_the_ids_of_its_answer(served: Served) -> None:
    admin, carol = served.token("root", "--admin"), served.token("carol")
    served.act(carol, "create_user", user="carol", name="carol")
    push = {"uids": ["carol"], "msg_bodies": ["one", "two"], "msg_options": 7, "send_id": "push-1"}
    async with served.socket(carol) as socket:
        await read(socket, "contacts")
        answers = [json.loads(curl(served, "/v1/push", *as_user(admin), *posting(push))[1]) for _ in range(2)]
        assert answers[0]["message_ids"] == answers[1]["message_ids"] and answers[0]["at"] == answers[1]["at"]
        pushed = [await read(socket, "message") for _ in range(2)]
    assert [each["message"]["message_id"] for each in pushed] == answers[0]["message_ids"]
    assert [each["message"]["text"] for each in pushed] == ["one", "two"]


def test_what_a_user_may_not_do_and_what_is_not_there(served: Served) -> None:
    user = as_user(served.token("mallory"))
    push = {"uids": ["alice"], "msg_bodies": ["I am the system"]}
    for method, path, params in (
        ("GET", "/v1/admin/sessions", {}),
        ("GET", "/v1/admin/audit", {}),
        ("GET", "/v1/admin/dead-letters", {}),
        ("GET", "/v1/admin/topics", {}),
        ("GET", "/v1/admin/scheduled", {}),
        ("POST", "/v1/push", push),
        ("POST", "/v1/actions/push", push),
        ("POST", "/v1/actions/system", {"to": "alice", "text": "I am the system"}),
        ("POST", "/v1/actions/broadcast", {"group": "team", "text": "I am the system"}),
    ):
        body = posting(params) if method == "POST" else ()
        status, answer = curl(served, path, "-X", method, *user, *body)
        assert status == 403, (path, answer)
        assert curl(served, path, "-X", method, *body)[0] == 401
    for path in (
        "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/keys/", "/v1/../keys",
        "//etc/passwd",
        "/v1/actions/..%2fadmin%2fsessions", "/v1/actions/send%00", "/.git/config", "/v1/admin/../../healthz/..%5c",
    ):  # fmt: skip
        status, answer = curl(served, path, *user)
        assert status in (400, 404, 405), (path, status)
        assert "root:" not in answer and "PRIVATE" not in answer


async def test_requests_that_two_servers_would_read_differently_are_refused(served: Served) -> None:
    token = served.token("alice").encode()
    chunked = b"0\r\n\r\nGET /v1/contacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    start = b"POST /v1/actions/contacts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\n"
    hostile = {
        "two lengths": start + b"Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}" + b"x" * 28,
        "length and chunks": start + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked,
        "an odd encoding": start + b"Transfer-Encoding: xchunked\r\n\r\n" + chunked,
        "a folded header": start + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        "a bare line feed": start.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\n{}",
        "a space before the colon": start + b"Content-Length : 2\r\n\r\n{}",
        "a negative length": start + b"Content-Length: -1\r\n\r\n{}",
        "a null": start + b"X: \x00\r\nContent-Length: 2\r\n\r\n{}",
        "no host": start.replace(b"Host: x\r\n", b"") + b"Content-Length: 2\r\n\r\n{}",
    }
    for name, request in hostile.items():
        answer = await get(served.port, request + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        heads = answer.count(b"HTTP/1.1 ")
        if name in ("a folded header", "a bare line feed"):  # old forms that are no danger here: read in one way
            assert heads in (1, 2)
        else:
            assert heads == 1 and answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), (name, answer[:200])


async def test_a_head_without_end_is_not_taken(served: Served) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    many = b"".join(b"X-%d: y\r\n" % number for number in range(100_000))
    for head in (start + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n", start + many + b"\r\n"):
        try:
            answer = await get(served.port, head)
        except ConnectionResetError:  # hung up in the middle of it
            answer = b""
        assert not answer or answer.startswith(b"HTTP/1.1 4")


async def test_a_websocket_behind_a_plain_request_is_not_one(served: Served) -> None:
    token = served.token("alice")
    answer = await get(
        served.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + handshake(token, headers="Connection: close\r\n")
    )
    assert answer.startswith(b"HTTP/1.1 200") and b"101 Switching" not in answer


async def test_no_token_and_no_text_is_in_the_log(served: Served) -> None:
    secret = served.token("spy")
    async with served.socket(secret) as socket:
        await socket.send(json.dumps({"id": 1, "action": "send", "params": {"to": "bob", "text": "between us"}}))
        await read(socket, "answer")
    with pytest.raises(websockets.ConnectionClosed):
        async with served.socket(secret[:-4] + "AAAA") as socket:
            await socket.recv()
    curl(served, f"/v1/history?with=bob&token={secret}", *as_user(secret))
    curl(served, "/v1/history?with=bob", *as_user(secret[:-4] + "BBBB"))
    await asyncio.sleep(0.2)
    log = served.log.read_text()
    assert "recovered" in log
    assert secret not in log and secret.split(".")[2][:40] not in log
    assert "between us" not in log and "Traceback" not in log


@pytest.mark.feature("P26", "P28")
async def test_a_signal_sends_everyone_away_and_leaves_no_session(tmp_path: Path) -> None:
    served = Served(tmp_path / "data", "gateway.drain_spread_ms=2000")
    served.start()
    tokens = [served.token(f"u{number}") for number in range(3)]
    sockets = [await served.socket(token) for token in tokens]
    for socket in sockets:
        await read(socket, "contacts")
    stopping = asyncio.create_task(asyncio.to_thread(served.stop))
    for socket in sockets:
        frame = await read(socket, "reconnect")
        assert 0 <= frame["after_ms"] < 2_000
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1001
    assert await stopping == 0
    assert not served.is_ready(), "nobody is there any more"
    served.start()
    admin: dict[str, Any] = json.loads(
        curl(served, "/v1/admin/sessions?user=u0", *as_user(served.token("root", "--admin")))[1]
    )
    assert admin.get("sessions") == []
    assert "Traceback" not in served.log.read_text()
    served.stop()
