"""``signal``: a live message to one user, delivered to the sessions that are connected and never stored."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pixiu.machines.session import LENGTH_PREFIXED, LengthPrefixed
from pixiu.sdk import Client, SignalEvent
from tests.e2e.test_surfaces import Served, read, read_until
from tests.servers import free_port


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "two gateways"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    server = Served(
        tmp_path_factory.mktemp("signal") / "data", f"gateway.tcp_port={port}", f"gateway.processes={request.param}",
        "messaging.sends_per_second=20", "messaging.send_burst=20",
    )  # fmt: skip
    server.tcp_port = port  # type: ignore[attr-defined]
    server.start()
    yield server
    server.stop()


async def ask(socket: Any, action: str, **params: object) -> dict[str, Any]:
    await socket.send(json.dumps({"id": 1, "action": action, "params": params}))
    return await read(socket, "answer")


async def befriend(served: Served, *names: str) -> None:
    """Each of two users adds the other as a contact."""
    for user, peer in (names, names[::-1]):
        await asyncio.to_thread(served.act, served.token(peer), "user")
        await asyncio.to_thread(served.act, served.token(user), "contact", user=peer)


@asynccontextmanager
async def tcp(served: Served, token: str) -> Any:
    """A native app: frames behind their length. Yields a function that reads the next push of a kind."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.tcp_port)  # type: ignore[attr-defined]
    frames, split = list[bytes](), LengthPrefixed(2**20)
    writer.write(LENGTH_PREFIXED.wrap(json.dumps({"token": token, "codec": "json"}).encode()))

    async def next_push(kind: str) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while True:
                while frames:
                    frame = json.loads(frames.pop(0))
                    if frame.get("push") == kind:
                        return dict(frame)
                frames.extend(split.feed(await reader.read(65536)))

    try:
        await next_push("contacts")
        yield next_push
    finally:
        writer.close()


@pytest.mark.feature("X70", "E47")
async def test_a_signal_reaches_every_session_of_the_user_and_says_how_many(served: Served) -> None:
    ann = served.token("ann")
    await befriend(served, "ann", "ben")
    async with (
        served.socket(ann) as sender,
        served.socket(served.token("ben")) as web,
        tcp(served, served.token("ben", platform="ios")) as ios,
    ):
        await read(web, "contacts")
        answer = await ask(sender, "signal", to="ben", text="ringing", fields={"call": "7"})
        assert answer["result"]["delivered"] == 2
        for push in (await read(web, "signal"), await ios("signal")):
            message = push["message"]
            assert (message["from"], message["to"], message["text"]) == ("ann", "ben", "ringing")
            assert message["fields"] == {"call": "7"} and message["at"] == answer["result"]["at"]
            assert "cursor" not in push and "message_id" not in message
        over_http = await asyncio.to_thread(served.act, ann, "signal", to="ben", body="AAE=", kind="key")
        assert over_http["delivered"] == 2
        assert (await read(web, "signal"))["message"]["body"] == "AAE="


async def test_a_signal_to_an_absent_user_is_dropped_and_never_stored(served: Served) -> None:
    cat = served.token("cat")
    await befriend(served, "cat", "dan")
    assert (await asyncio.to_thread(served.act, cat, "signal", to="dan", text="gone"))["delivered"] == 0
    await asyncio.to_thread(served.act, cat, "send", to="dan", text="stays")
    async with served.socket(served.token("dan")) as socket:
        await read_until(socket, lambda frame: frame.get("message", {}).get("text") == "stays")
        history = await ask(socket, "history", **{"with": "cat"})
        texts = [each["text"] for each in history["result"]["messages"] if each["kind"] == "text"]
        assert texts == ["stays"]
    log = b"".join(path.read_bytes() for path in (served.data / "queue" / "journal").glob("*.log"))
    assert b"stays" in log and b"gone" not in log


async def test_a_blocked_user_cannot_signal_and_signals_count_as_sends_in_the_rate(served: Served) -> None:
    eve, fay = served.token("eve"), served.token("fay")
    await asyncio.to_thread(served.act, fay, "block", user="eve")
    headers = {"Authorization": f"Bearer {eve}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers) as client:
        refused = await client.post("/v1/actions/signal", json={"to": "fay", "text": "hello"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert (await client.post("/v1/actions/signal", json={"to": "eve"})).json()["error"]["code"] == "bad_request"
        large = {"to": "eve", "text": "x" * 70_000}
        assert (await client.post("/v1/actions/signal", json=large)).json()["error"]["code"] == "too_large"
        codes = [
            (await client.post("/v1/actions/signal", json={"to": "eve", "text": "x"})).status_code for _ in range(60)
        ]
    assert 429 in codes


async def test_a_stranger_cannot_signal_and_learns_nothing_about_presence(served: Served) -> None:
    await asyncio.to_thread(served.act, served.token("victim"), "user")
    headers = {"Authorization": f"Bearer {served.token('stranger')}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers) as client:
        absent = await client.post("/v1/actions/signal", json={"to": "victim", "text": "there?"})
        async with served.socket(served.token("victim")) as socket:
            await read(socket, "contacts")
            present = await client.post("/v1/actions/signal", json={"to": "victim", "text": "there?"})
            assert (present.status_code, present.json()) == (absent.status_code, absent.json())
            assert (present.status_code, present.json()["error"]["code"]) == (403, "forbidden")


async def test_signal_gives_a_count_only_to_those_who_see_the_presence(served: Served) -> None:
    watcher, target = served.token("watcher"), served.token("target")
    await asyncio.to_thread(served.act, target, "user")
    await asyncio.to_thread(served.act, watcher, "contact", user="target")

    async def count() -> object:
        return (await asyncio.to_thread(served.act, watcher, "signal", to="target", text="there?"))["delivered"]

    assert await count() is None
    async with served.socket(target) as socket:
        await read(socket, "contacts")
        assert await count() is None, "the same answer whether the user is connected or not"
        assert (await read(socket, "signal"))["message"]["text"] == "there?", "the message itself arrives"
        await asyncio.to_thread(served.act, target, "contact", user="watcher")
        assert await count() == 1
        await asyncio.to_thread(served.act, watcher, "block", user="target")
        assert await count() is None, "a block hides both from each other"


async def test_members_of_a_common_group_may_signal_without_a_count(served: Served) -> None:
    ida = served.token("ida")
    await asyncio.to_thread(served.act, served.token("jon"), "user")
    await asyncio.to_thread(served.act, ida, "create_group", group="calls", members=["jon"])
    async with served.socket(served.token("jon")) as socket:
        await read(socket, "contacts")
        assert (await asyncio.to_thread(served.act, ida, "signal", to="jon", text="ring"))["delivered"] is None
        assert (await read(socket, "signal"))["message"]["text"] == "ring"


async def test_the_python_client_sends_and_receives_signals(served: Served) -> None:
    url = f"ws://127.0.0.1:{served.port}/ws"
    await befriend(served, "gil", "hal")
    async with Client(url, served.token("gil")) as gil, Client(url, served.token("hal")) as hal:
        async with asyncio.timeout(10):
            while not await gil.signal("hal", "ping", fields={"n": "1"}):
                await asyncio.sleep(0.05)
            async for event in hal.events():
                if isinstance(event, SignalEvent):
                    got = event.message
                    break
        assert (got.sender, got.text, got.fields) == ("gil", "ping", {"n": "1"})


def test_signal_is_in_the_openapi_document(served: Served, tmp_path: Path) -> None:
    document = httpx.get(f"{served.url}/openapi.json").json()
    assert "/v1/actions/signal" in document["paths"]
