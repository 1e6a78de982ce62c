"""What a user learns about users and groups that have nothing to do with them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_surfaces import Served, read_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    started = Served(tmp_path_factory.mktemp("node") / "data", "gateway.presence_delay_ms=0")
    started.start()
    yield started
    started.stop()


async def ask(socket: Any, action: str, **params: object) -> dict[str, Any]:
    await socket.send(json.dumps({"id": action, "action": action, "params": params}))
    return await read_until(socket, lambda frame: frame.get("id") == action)


async def test_presence_is_shown_only_to_mutual_contacts_who_do_not_block_each_other(server: Served) -> None:
    victim, stalker = server.token("victim"), server.token("stalker")
    server.act(victim, "user")
    server.act(stalker, "contact", user="victim")
    async with server.socket(stalker) as watching, server.socket(victim) as watched:
        nothing: dict[str, Any] = {"states": {}}
        assert (await ask(watching, "presence", users=["victim"]))["result"] == nothing
        assert (await ask(watching, "presence"))["result"] == nothing
        assert (await ask(watched, "presence", users=["stalker"]))["result"] == nothing
        server.act(victim, "contact", user="stalker")
        assert (await ask(watched, "presence"))["result"] == {"states": {"stalker": "online"}}
        shown = await read_until(watching, lambda frame: frame.get("push") == "presence")
        assert (shown["user"], shown["state"]) == ("victim", "online"), "shown as soon as both have added each other"
        assert (await ask(watching, "presence", users=["victim"]))["result"] == {"states": {"victim": "online"}}
        assert (await ask(watched, "presence"))["result"] == {"states": {"stalker": "online"}}
        server.act(stalker, "block", user="victim")
        assert (await ask(watching, "presence"))["result"] == nothing, "a block hides both from each other"
        assert (await ask(watched, "presence"))["result"] == nothing
        server.act(stalker, "unblock", user="victim")
        assert (await ask(watching, "presence"))["result"] == {"states": {"victim": "online"}}
        friend = server.token("friend")
        server.act(friend, "contact", user="stalker")
        server.act(stalker, "contact", user="friend")
        await ask(watching, "presence")
        server.act(victim, "unlink", user="stalker")
        await watched.close()
        async with server.socket(victim) as again, server.socket(friend):
            assert json.loads(await again.recv())["push"] == "contacts"
            seen = await read_until(watching, lambda frame: frame.get("push") == "presence")
            assert (seen["user"], seen["state"]) == ("friend", "online"), "pushes about the victim have ended"


async def test_stranger_learns_nothing_about_the_room_of_a_group(server: Served) -> None:
    alice, eve = server.token("alice"), server.token("eve")
    server.act(alice, "create_group", group="team", name="team")
    async with server.socket(alice) as member, server.socket(eve) as stranger:
        assert (await ask(member, "enter", room="g:team"))["result"]["members"] == 1
        for action in ("leave", "enter", "say"):
            answer = await ask(stranger, action, room="g:team", **({"text": "hi"} if action == "say" else {}))
            assert answer["error"]["code"] == "forbidden", answer
        assert (await ask(member, "leave", room="g:team"))["result"]["members"] == 0
        assert (await ask(member, "leave", room="g:team"))["result"]["members"] == 0, "again, as a member"
