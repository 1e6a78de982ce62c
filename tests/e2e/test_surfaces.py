"""What ``pixiu serve`` offers on its port, with clients that know nothing of us."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets

from pixiu.config import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.servers import free_port, wait_for


class Served:
    """``pixiu serve --dev`` on a directory."""

    def __init__(self, data: Path, *settings: str, more: Sequence[str] = ()) -> None:
        self.data = data
        self.more = more
        self.settings = ["messaging.group_inbox_limit=2", *settings]
        self.log = data.with_suffix(".log")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.launch()
        wait_for(self.is_ready, what="the server to be ready", timeout_s=60)

    def launch(self) -> None:
        """Start it without waiting."""
        options = ["--port", str(self.port), "--queue-port", "0"]
        for setting in self.settings:
            options += ["--set", setting]
        command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(self.data)]
        command += [*options, *self.more]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self, *, kill: bool = False) -> int:
        """Returns the exit code."""
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        return self._process.wait(20)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def token(self, user: str, *options: str, platform: str = "web") -> str:
        """What ``pixiu token USER`` prints, without a process for each."""
        clock = SystemClock()
        tokens = Tokens(Keyring(self.data, clock), clock, SecuritySettings())
        return tokens.issue(Identity(user, platform, "", is_admin="--admin" in options))

    def act(self, token: str, action: str, **params: object) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{self.url}/v1/actions/{action}", json=params, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def socket(self, token: str, cursor: str = "") -> Any:
        resume = f"&cursor={cursor}" if cursor else ""
        return websockets.connect(f"ws://127.0.0.1:{self.port}/ws?token={token}{resume}")


@pytest.fixture
def served(tmp_path: Path) -> Any:
    server = Served(tmp_path / "data")
    server.start()
    yield server
    server.stop()


async def read(socket: Any, kind: str) -> dict[str, Any]:
    """The next push of a kind, or the answer with an id."""
    async with asyncio.timeout(10):
        while True:
            frame: dict[str, Any] = json.loads(await socket.recv())
            if frame.get("push", "answer") == kind:
                return frame


async def read_until(socket: Any, is_wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The next frame that is wanted; what comes before it is dropped."""
    async with asyncio.timeout(10):
        while True:
            frame: dict[str, Any] = json.loads(await socket.recv())
            if is_wanted(frame):
                return frame


@pytest.mark.feature("R16", "R17", "R18", "R22", "P23", "P29")
async def test_one_command_and_two_people_talk(served: Served) -> None:
    alice, bob = served.token("alice"), served.token("bob")
    assert "message_id" in served.act(alice, "send", to="bob", text="over HTTP")
    async with served.socket(alice) as a, served.socket(bob) as b:
        assert json.loads(await b.recv())["push"] == "contacts"
        assert (await read(b, "message"))["message"]["text"] == "over HTTP"
        await a.send(json.dumps({"id": 1, "action": "send", "params": {"to": "bob", "text": "hi", "send_id": "1"}}))
        answer = await read(a, "answer")
        pushed = await read(b, "message")
        assert pushed["message"]["message_id"] == answer["result"]["message_id"]
        await b.send(json.dumps({"id": 2, "action": "ack", "params": {"cursor": pushed["cursor"]}}))
        await b.send(json.dumps({"id": 3, "action": "nonsense", "params": {}}))
        assert (await read(b, "answer"))["error"]["code"] == "bad_request"
        for socket in (a, b):
            await socket.send(json.dumps({"id": 4, "action": "enter", "params": {"room": "lobby"}}))
            assert (await read(socket, "answer"))["result"]["room"] == "lobby"
        await a.send(json.dumps({"id": 5, "action": "say", "params": {"room": "lobby", "text": "all"}}))
        assert (await read(b, "message"))["message"]["text"] == "all"
    served.stop()
    # What is said in a live room is not kept; that it was said, and how often, is traced.
    log = b"".join(path.read_bytes() for path in (served.data / "queue" / "journal").glob("*.log"))
    assert (b"lobby" in log, b"all" in log) == (True, False)


@pytest.mark.feature("R16")
async def test_a_bad_token_closes_with_4401(served: Served) -> None:
    for token in ("", "nonsense", served.token("alice")[:-3] + "abc"):
        with pytest.raises(websockets.ConnectionClosed) as closed:
            async with served.socket(token) as socket:
                await socket.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


@pytest.mark.crash
@pytest.mark.feature("P06", "B20")
async def test_what_was_accepted_is_there_after_a_kill_and_comes_once(served: Served) -> None:
    alice, bob = served.token("alice"), served.token("bob")
    sent = [served.act(alice, "send", to="bob", text=str(n), send_id=str(n))["message_id"] for n in range(20)]
    async with served.socket(bob) as socket:
        first = [await read(socket, "message") for _ in range(5)]
        await socket.send(json.dumps({"id": 1, "action": "ack", "params": {"cursor": first[-1]["cursor"]}}))
        await asyncio.sleep(0.3)
    served.stop(kill=True)
    served.start()
    assert served.act(alice, "send", to="bob", text="19", send_id="19")["message_id"] == sent[19]
    async with served.socket(bob, cursor=first[-1]["cursor"]) as socket:
        rest = [await read(socket, "message") for _ in range(15)]
    assert [frame["message"]["message_id"] for frame in [*first, *rest]] == sent
    admin = {"Authorization": f"Bearer {served.token('root', '--admin')}"}
    report = httpx.get(f"{served.url}/v1/admin/audit", headers=admin).json()
    assert report["balanced"] is True


async def test_a_large_group_is_heard_in_its_room_and_names_the_message_before(served: Served) -> None:
    alice, bob = served.token("alice"), served.token("bob")
    for user in ("bob", "carl"):
        served.act(served.token(user), "create_user", user=user, name=user)
    served.act(alice, "create_group", group="crowd", name="crowd", members=["bob", "carl"])
    first = served.act(alice, "gsend", group="crowd", text="before")["message_id"]
    async with served.socket(bob) as socket:
        await socket.send(json.dumps({"id": 1, "action": "enter", "params": {"room": "g:crowd"}}))
        assert (await read(socket, "answer"))["result"]["members"] == 1
        said = served.act(alice, "gsend", group="crowd", text="all of you")["message_id"]
        message = (await read(socket, "message"))["message"]
        assert (message["message_id"], message["prev"], message["text"]) == (said, first, "all of you")


async def test_whoever_is_removed_from_a_group_hears_no_more_of_its_room(served: Served) -> None:
    alice, bob, carl = served.token("alice"), served.token("bob"), served.token("carl")
    for user, token in (("bob", bob), ("carl", carl)):
        served.act(token, "create_user", user=user, name=user)
    served.act(alice, "create_group", group="crowd", name="crowd", members=["bob", "carl"])
    async with served.socket(bob) as b, served.socket(carl) as c:
        for socket in (b, c):
            await socket.send(json.dumps({"id": 1, "action": "enter", "params": {"room": "g:crowd"}}))
            assert "members" in (await read(socket, "answer"))["result"]
        served.act(alice, "manage", group="crowd", user="bob", op="remove")
        async with asyncio.timeout(10):
            while (await read(b, "presence")).get("is_in") is not False:
                pass
        served.act(alice, "gsend", group="crowd", text="without bob")
        async with asyncio.timeout(10):
            while (await read(c, "message"))["message"].get("text") != "without bob":
                pass
        await b.send(json.dumps({"id": 2, "action": "say", "params": {"room": "g:crowd", "text": "still here?"}}))
        async with asyncio.timeout(10):
            while "id" not in (frame := json.loads(await b.recv())):
                assert frame.get("message", {}).get("text") != "without bob"
        assert frame["error"]["code"] == "forbidden"
        served.act(carl, "quit", group="crowd")
        async with asyncio.timeout(10):
            while (await read(c, "presence")).get("is_in") is not False:
                pass


@pytest.mark.long
@pytest.mark.feature("B18", "T7")
async def test_a_node_that_was_frozen_and_goes_on_has_everyone_complete(served: Served) -> None:
    """Longer than others would wait: a share of the clients is closed, the others are told to resync."""
    users = [f"u{number}" for number in range(8)]
    tokens = {user: served.token(user) for user in users}
    sockets = {user: await served.socket(token) for user, token in tokens.items()}
    cursors: dict[str, str] = {}
    for user, socket in sockets.items():
        await read(socket, "contacts")
        served.act(tokens["u0"], "send", to=user, text="before")
        if user != "u0":
            cursors[user] = (await read(socket, "message"))["cursor"]
            await socket.send(json.dumps({"id": 1, "action": "ack", "params": {"cursor": cursors[user]}}))
    served.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(11)
    finally:
        served.signal(signal.SIGCONT)
    closed: set[str] = set()
    for user, socket in sockets.items():
        try:
            await read(socket, "resync")
        except websockets.ConnectionClosed:
            closed.add(user)
            assert socket.close_code == 4403
            sockets[user] = await served.socket(tokens[user], cursors.get(user, ""))
    assert len(closed) == 2, "a quarter"
    for user in users[1:]:
        served.act(tokens["u0"], "send", to=user, text="after")
        assert (await read(sockets[user], "message"))["message"]["text"] == "after"
        page = served.act(tokens[user], "history", **{"with": "u0"})
        assert [message["text"] for message in page["messages"]] == ["after", "before"]
    for socket in sockets.values():
        await socket.close()
