"""An urgent message (``priority`` high) overtakes a backlog. The inbox still comes in order and without holes."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pixiu.model.errors import RequestError
from pixiu.sdk import Client
from tests.e2e.test_surfaces import Served, read

WINDOW = 4
BACKLOG = 30


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "two gateways"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(
        tmp_path_factory.mktemp("urgent") / "data", f"gateway.processes={request.param}",
        f"inbox.window={WINDOW}", f"inbox.read_limit={WINDOW}",
    )  # fmt: skip
    server.start()
    yield server
    server.stop()


def send_backlog(served: Served, sender: str, to: str) -> list[str]:
    return [served.act(sender, "send", to=to, text=f"bulk {n}")["message_id"] for n in range(BACKLOG)]


async def take(socket: Any, cursor: str) -> list[dict[str, Any]]:
    """Ack ``cursor``, then read whatever the server pushes until it waits for the next ack."""
    if cursor:
        await socket.send(json.dumps({"action": "ack", "params": {"cursor": cursor}}))
    taken: list[dict[str, Any]] = []
    while len([each for each in taken if each["push"] == "message"]) < WINDOW:
        async with asyncio.timeout(10):
            frame = json.loads(await socket.recv())
        if frame.get("push") in ("message", "urgent"):
            taken.append(frame)
        if frame.get("push") == "message" and frame["message"].get("text") == "last":
            break
    return taken


async def test_urgent_message_overtakes_a_backlog_and_nothing_is_lost_over_a_reconnect(served: Served) -> None:
    ann, ben = served.token("ann"), served.token("ben")
    served.act(ben, "contacts")
    expected = send_backlog(served, ann, "ben")
    async with served.socket(ben) as socket:
        first = await take(socket, "")
        sent = await asyncio.to_thread(served.act, ann, "send", to="ben", text="fire", priority="high")
        early = await read(socket, "urgent")
        assert early == {"push": "urgent", "message": early["message"]}, "an early copy has no cursor"
        assert (early["message"]["text"], early["message"]["message_id"]) == ("fire", sent["message_id"])
        second = await take(socket, first[-1]["cursor"])
    expected += [
        sent["message_id"],
        (await asyncio.to_thread(served.act, ann, "send", to="ben", text="last"))["message_id"],
    ]
    taken = first + second
    async with served.socket(ben, taken[-1]["cursor"]) as socket:
        cursor = ""
        while taken[-1]["message"].get("text") != "last":
            taken += await take(socket, cursor)
            cursor = taken[-1]["cursor"]
    assert {each["push"] for each in taken} == {"message"}, "one early copy, before the rest of the backlog"
    assert [each["message"]["message_id"] for each in taken] == expected
    cursors = [int(each["cursor"]) for each in taken]
    assert cursors == list(range(cursors[0], cursors[0] + len(expected)))


async def test_sdk_gives_an_urgent_message_first_and_once(served: Served) -> None:
    cat, dan = served.token("cat"), served.token("dan")
    served.act(dan, "contacts")
    await asyncio.to_thread(send_backlog, served, cat, "dan")
    async with Client(served.url, dan) as client:
        texts = [(await client.next_message(10)).text for _ in range(2)]
        await asyncio.to_thread(served.act, cat, "send", to="dan", text="fire", priority="high")
        while "fire" not in texts:
            texts.append((await client.next_message(10)).text)
            await asyncio.sleep(0.02)
        assert len(texts) <= BACKLOG // 2, texts
        await asyncio.to_thread(served.act, cat, "send", to="dan", text="last")
        while texts[-1] != "last":
            texts.append((await client.next_message(10)).text)
    assert [text for text in texts if text != "fire"] == [*(f"bulk {n}" for n in range(BACKLOG)), "last"]
    assert texts.count("fire") == 1


async def test_say_takes_a_priority_and_listeners_see_it(served: Served) -> None:
    async with Client(served.url, served.token("eve")) as eve, served.socket(served.token("fay")) as fay:
        await fay.send(json.dumps({"id": 1, "action": "enter", "params": {"room": "lobby"}}))
        await read(fay, "answer")
        await eve.enter("lobby")
        await eve.say("lobby", "plain")
        await eve.say("lobby", "fire", priority="high")
        said = [(await read(fay, "message"))["message"] for _ in range(2)]
        assert [(each["text"], each.get("priority")) for each in said] == [("plain", None), ("fire", "high")]
        with pytest.raises(RequestError, match="priority"):
            await eve.act("say", room="lobby", text="x", priority="urgent")
