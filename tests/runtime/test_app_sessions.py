"""Sessions and messages over real sockets, with a WebSocket client that somebody else has written."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from pixiu.config import InboxSettings
from pixiu.model.frames_pb2 import ClientFrame, ServerFrame
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.runtime.clock import SystemClock
from tests.api.test_authentication import asking, auth_server
from tests.roles.gateway.world import eventually, on_the_loop_that_serves, say, waiting, world_at

if TYPE_CHECKING:
    from pathlib import Path

JSON, PROTO = Subprotocol("pixiu.json.v1"), Subprotocol("pixiu.proto.v1")


@on_the_loop_that_serves
class TestTokens:
    @pytest.mark.feature("R16")
    async def test_a_bad_or_missing_token_closes_with_4401(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            for url in (world.url("bad"), world.url(""), f"ws://127.0.0.1:{world.port}/ws"):
                async with connect(url) as socket:
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()
                    assert socket.close_code == 4401
            tcp = await world.tcp()
            tcp.send({"token": "bad", "codec": "json"})
            assert (await tcp.frame())["error"]["code"] == "unauthenticated"
            assert await tcp.rest() == b""
            await tcp.leave()
            assert world.node.messaging.relay.counters.logins == 0

    @pytest.mark.feature("R16")
    async def test_the_acting_user_comes_from_the_token(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            mallory, bob = await world.connect("mallory"), await world.connect("bob")
            for params in ({"from": "alice"}, {"user": "alice"}, {"actor": "alice"}):
                answer = await mallory.ask("send", to="bob", text="I am alice", **params)
                assert answer["error"]["code"] == "bad_request"
            await mallory.ask("send", to="bob", text="I am mallory")
            await bob.until(lambda: bob.texts)
            assert [frame["message"]["from"] for frame in bob.pushed("message")] == ["mallory"]

    async def test_a_token_in_a_header_and_one_that_ends(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            url = f"ws://127.0.0.1:{world.port}/ws"
            token = f"alice...{int(time.time() * 1000) + 700}"
            async with connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as client:
                assert json.loads(await client.recv())["push"] == "contacts"
                with pytest.raises(ConnectionClosed):
                    await asyncio.wait_for(client.recv(), 3)
                assert client.close_code == 4401
            await asyncio.sleep(0)
            assert not world.sessions("alice")


@on_the_loop_that_serves
class TestYourAuthentication:
    @pytest.mark.feature("P24", "R16")
    async def test_a_token_goes_to_your_server_and_its_answer_counts(self, tmp_path: Path) -> None:
        async with auth_server() as server:
            asked = asking(server, SystemClock(), auth_cache_ms=0)
            async with world_at(tmp_path, authenticate=asked.authenticate) as world:
                alice = await world.connect("t-alice")
                assert (await alice.ask("ping"))["at"]
                (session,) = world.sessions("alice")
                assert (session.platform, session.device) == ("ios", "d")
                refused = await world.connect("t-unknown")
                assert await refused.closed() == 4401
                tcp = await world.tcp()
                tcp.send({"token": "t-unknown"})
                assert (await tcp.frame())["error"]["code"] == "unauthenticated"
                await tcp.leave()
                assert server.asked[:2] == ["t-alice", "t-unknown"]
                server.status = 500
                later = await world.connect("t-alice")
                assert await later.closed() == 1013, "its failure is no refusal, and no way in"
                assert world.node.messaging.relay.counters.logins == 1, "who is refused leaves no session"
                assert (await alice.ask("ping"))["at"]
            await asked.close()

    @pytest.mark.feature("P24")
    async def test_what_comes_before_your_answer_waits_for_it(self, tmp_path: Path) -> None:
        async with auth_server() as server:
            server.delay_seconds = 0.3
            asked = asking(server, SystemClock())
            async with world_at(tmp_path, authenticate=asked.authenticate) as world:
                clients = [await world.connect("t-alice") for _ in range(3)]
                assert not world.sessions("alice")
                answers = await asyncio.gather(*(client.ask("ping") for client in clients[2:]))
                assert all(answer["at"] for answer in answers) and server.asked == ["t-alice"], "one question"
            await asked.close()


@on_the_loop_that_serves
class TestConversation:
    @pytest.mark.feature("R17", "R02")
    async def test_contacts_then_what_waited_then_what_is_said(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            await world.node.create_user("alice")
            await world.node.create_user("bob")
            await world.node.act("bob", "contact", user="alice")
            waited = await say(world, 150)
            talking = asyncio.create_task(say(world, 150, first=150))
            bob = await world.connect("bob")
            said = await talking
            await bob.until(lambda: len(bob.texts) >= 301)
            assert bob.frames[0]["push"] == "contacts" and bob.frames[0]["contacts"][0]["user"] == "alice"
            assert [text for text in bob.texts if text] == waited + said, "all of it, in order, once"
            await asyncio.sleep(0.1)
            assert (await world.node.audit())["balanced"]

    @pytest.mark.feature("R18")
    async def test_private_and_group_messages_and_errors_with_their_ids(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            alice, bob = await world.connect("alice"), await world.connect("bob", subprotocols=[JSON])
            assert bob.socket.subprotocol == JSON
            sent = await alice.ask("send", to="bob", text="你好 👋", send_id="s1")
            again = await alice.ask("send", to="bob", text="你好 👋", send_id="s1")
            assert sent["message_id"] == again["message_id"] and isinstance(sent["at"], int)
            await alice.ask("create_group", group="team", name="Team", members=["bob"])
            grouped = await alice.ask("gsend", group="team", text="all")
            await bob.until(lambda: "all" in bob.texts)
            messages = [frame["message"] for frame in bob.pushed("message")]
            assert messages[0]["message_id"] == sent["message_id"] and messages[0]["text"] == "你好 👋"
            assert messages[-1]["group"] == "team" and messages[-1]["message_id"] == grouped["message_id"]
            for action, params, code in (
                ("gsend", {"group": "nowhere", "text": "x"}, "not_found"),
                ("send", {"to": "bob"}, "bad_request"),
                ("dance", {}, "bad_request"),
                ("system", {"to": "bob", "text": "x"}, "forbidden"),
            ):
                assert (await alice.ask(action, **params))["error"]["code"] == code
            assert [text for text in alice.texts if text] == [], "what a session sent does not come back to it"

    async def test_protobuf_carries_the_stored_bytes(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world, connect(world.url("bob"), subprotocols=[PROTO, JSON]) as bob:
            assert bob.subprotocol == PROTO
            contacts = ServerFrame.FromString(await bob.recv(decode=False))
            assert contacts.event.push == "contacts"
            sent = await world.node.send("alice", to="bob", text="bytes")
            pushed = ServerFrame.FromString(await bob.recv(decode=False)).message
            chat = MsgChat.FromString(pushed.chat)
            assert (str(chat.msgId), chat.data, getattr(pushed, "from"), pushed.to) == (
                sent["message_id"], b"bytes", "alice", "bob"
            )  # fmt: skip
            stored = world.node.messaging.stores.bodies.get([chat.msgId])[chat.msgId]
            assert pushed.chat == stored
            ack, ask = ClientFrame(), ClientFrame()
            ack.ack.cursor = pushed.cursor
            ask.request.id, ask.request.action = 7, "history"
            ask.request.params["with"].text = "alice"
            await bob.send(ack.SerializeToString())
            await bob.send(ask.SerializeToString())
            answer = ServerFrame.FromString(await bob.recv(decode=False)).answer
            assert answer.id == 7 and answer.result["messages"].list.values[0].map.values["text"].text == "bytes"

    @pytest.mark.parametrize("codec", ["json", "proto"])
    async def test_tcp_says_the_same(self, tmp_path: Path, codec: str) -> None:
        async with world_at(tmp_path) as world:
            tcp = await world.tcp()
            if codec == "json":
                tcp.send({"token": "bob", "codec": "json"})
                assert (await tcp.frame())["push"] == "contacts"
                await world.node.send("alice", to="bob", text="hi")
                message = await tcp.frame()
                assert message["message"]["text"] == "hi"
                tcp.send({"action": "ack", "params": {"cursor": message["cursor"]}})
                tcp.send({"id": 1, "action": "send", "params": {"to": "alice", "text": "yes"}})
                assert (await tcp.frame())["result"]["message_id"]
            else:
                hello = ClientFrame()
                hello.hello.token = "bob"
                tcp.send(hello.SerializeToString())
                assert ServerFrame.FromString(await tcp.payload()).event.push == "contacts"
                await world.node.send("alice", to="bob", text="hi")
                pushed = ServerFrame.FromString(await tcp.payload()).message
                assert MsgChat.FromString(pushed.chat).data == b"hi"
            await tcp.leave()
            await eventually(lambda: not world.sessions("bob"))

    async def test_typing_and_presence_are_for_contacts(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, presence_delay_ms=20, typing_interval_ms=0) as world:
            alice, bob = await world.connect("alice"), await world.connect("bob")
            await bob.until(lambda: bob.frames)  # until then nobody knows bob
            assert (await alice.ask("typing", **{"with": "bob"}))["error"]["code"] == "forbidden"
            assert await alice.ask("presence", users=["bob", "nobody"]) == {"states": {}}
            await alice.ask("contact", user="bob")
            assert await alice.ask("presence", users=["bob"]) == {"states": {}}, "bob has not added alice"
            await bob.ask("contact", user="alice")
            assert await bob.ask("presence") == {"states": {"alice": "online"}}
            await alice.until(lambda: alice.pushed("presence"))
            assert alice.pushed("presence") == [{"push": "presence", "user": "bob", "state": "online"}]
            assert await alice.ask("presence", users=["bob"]) == {"states": {"bob": "online"}}
            alice.frames.clear()
            assert await alice.ask("typing", **{"with": "bob"}) == {}
            await bob.until(lambda: bob.pushed("typing"))
            assert bob.pushed("typing") == [{"push": "typing", "with": "alice"}]
            await bob.leave()
            await alice.until(lambda: alice.pushed("presence"))
            assert alice.pushed("presence") == [{"push": "presence", "user": "bob", "state": "offline"}]
            assert await alice.ask("presence") == {"states": {"bob": "offline"}}
            bob = await world.connect("bob")
            await alice.until(lambda: len(alice.pushed("presence")) == 2)
            await bob.ask("block", user="alice")
            assert (await alice.ask("typing", **{"with": "bob"}))["error"]["code"] == "forbidden"
            assert await alice.ask("presence", users=["bob"]) == {"states": {}}
            await bob.ask("unblock", user="alice")
            await alice.ask("create_group", group="team", name="Team", members=["bob"])
            assert await alice.ask("typing", group="team") == {}
            await bob.until(lambda: bob.pushed("typing"))
            assert bob.pushed("typing") == [{"push": "typing", "group": "team", "from": "alice"}]
            for params in ({}, {"with": "bob", "group": "team"}, {"who": "bob"}):
                assert (await alice.ask("typing", **params))["error"]["code"] == "bad_request"

    @pytest.mark.feature("P27")
    async def test_rooms_are_heard_by_those_who_entered(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, with_rooms=True) as world:
            clients = [await world.connect(user) for user in ("alice", "bob", "carol")]
            alice, bob, carol = clients
            assert (await alice.ask("enter", room="lobby"))["members"] == 1
            assert (await bob.ask("enter", room="lobby"))["members"] == 2
            for number in range(20):
                await alice.ask("say", room="lobby", text=f"t{number}")
            await bob.until(lambda: len(bob.texts) == 20)
            assert bob.texts == [f"t{number}" for number in range(20)] and not carol.texts
            await bob.ask("leave", room="lobby")
            await alice.ask("say", room="lobby", text="alone")
            await alice.until(lambda: "alone" in alice.texts or alice.pushed("presence"))
            assert "alone" not in bob.texts
            await alice.leave()
            await eventually(lambda: world.gateway.counters.connections == 2)

    @pytest.mark.feature("P27")
    async def test_talk_leaves_no_trace(self, tmp_path: Path) -> None:
        """Never stored, never acked: neither history nor an inbox nor the log has it; who comes later hears nothing."""
        async with world_at(tmp_path, with_rooms=True) as world:
            alice, bob = await world.connect("alice"), await world.connect("bob")
            for client in (alice, bob):
                await client.ask("enter", room="lobby")
            committed = world.node.messaging.log.committed
            for talk_class in ("live", "reliable"):
                await alice.ask("say", **{"room": "lobby", "text": talk_class, "class": talk_class})
            await bob.until(lambda: len(bob.texts) == 2)
            assert all("cursor" not in frame for frame in bob.pushed("message"))
            assert bob.texts == ["live", "reliable"]
            assert world.node.messaging.log.committed == committed
            assert (await bob.ask("history"))["messages"] == []
            await bob.leave()
            late = await world.connect("bob")
            await late.ask("enter", room="lobby")
            assert late.texts == []


@on_the_loop_that_serves
class TestResuming:
    async def test_a_reconnect_with_a_cursor_loses_and_repeats_nothing(self, tmp_path: Path) -> None:
        """Cut off again and again, at any moment, while others talk."""
        rng = random.Random(7)
        shown: list[str] = []
        async with world_at(tmp_path) as world:
            await world.node.create_user("bob")
            talking = asyncio.create_task(say(world, 600))
            cursor = ""
            while len(shown) < 600:
                client = await world.connect("bob.web.d1", cursor=cursor, acks=rng.random() < 0.7)
                goal = rng.randint(1, 80)
                try:
                    await client.until(lambda client=client, goal=goal: len(client.texts) >= goal, seconds=0.3)  # type: ignore[misc]
                except TimeoutError:
                    pass
                client.socket.transport.abort()  # no goodbye
                await client.closed()
                shown += client.texts
                cursor = client.cursor if client.texts else cursor
            assert shown == await talking
            await eventually(lambda: not world.sessions("bob"))

    @pytest.mark.feature("P21")
    async def test_a_client_that_dies_keeps_what_it_did_not_ack(self, tmp_path: Path) -> None:
        """205 wait; the client takes them in portions, dies after 80 acks, and then gets exactly the other 125."""
        inbox = InboxSettings(window=80, read_limit=80)
        async with world_at(tmp_path, inbox=inbox) as world:
            await world.node.create_user("bob")
            said = await say(world, 205)
            first = await world.connect("bob", acks=False)
            await first.until(lambda: len(first.texts) == 80)
            await asyncio.sleep(0.05)
            assert len(first.texts) == 80, "a window, then it waits for the ack"
            await first.ack(first.cursor)
            await first.until(lambda: len(first.texts) > 80)
            first.socket.transport.abort()
            await eventually(lambda: not world.sessions("bob"))
            number = world.node.messaging.proxy.context.directory.find_user("bob")
            assert number is not None
            await eventually(lambda: waiting(world, number) == 125)
            second = await world.connect("bob")
            await second.until(lambda: len(second.texts) == 125)
            assert second.texts == said[80:]

    async def test_a_device_that_was_away_too_long_is_told_of_its_gap(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            one = await world.connect("bob.web.one")
            await say(world, 3)
            await one.until(lambda: len(one.texts) == 3)
            await one.leave()
            two = await world.connect("bob.web.two")
            await say(world, 3, first=3)
            await two.until(lambda: len(two.texts) == 3)
            await asyncio.sleep(0.1)
            await two.leave()
            back = await world.connect("bob.web.one", cursor="3")
            await say(world, 1, first=6)
            await back.until(lambda: back.texts)
            assert back.pushed("gap") == [{"push": "gap", "inbox": "web", "after": "3", "before": "7", "trimmed": True}]
            assert back.texts == ["m6"]
            history = await back.ask("history", **{"with": "alice"})
            assert len(history["messages"]) == 7, "the timeline has it all"
            wrong = await world.connect("bob.web.one", cursor="999")
            await wrong.until(lambda: wrong.pushed("resync"))


@on_the_loop_that_serves
class TestSessions:
    @pytest.mark.feature("P05")
    async def test_the_table_of_sessions_follows_the_connections(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            client = await world.connect("bob.ios.d1")
            began = time.monotonic()
            await client.until(lambda: client.frames)
            (session,) = world.sessions("bob")
            assert (session.platform, session.device, session.gateway) == ("ios", "d1", "local")
            await client.leave()
            await eventually(lambda: not world.sessions("bob"), 1)
            rude = await world.connect("bob.ios.d1")
            await rude.until(lambda: rude.frames)
            rude.socket.transport.abort()
            await eventually(lambda: not world.sessions("bob"), 1)
            tcp = await world.tcp()
            tcp.send({"token": "bob.ios.d1"})
            await tcp.frame()
            assert len(world.sessions("bob")) == 1
            await tcp.leave()
            await eventually(lambda: not world.sessions("bob"), 1)
            assert time.monotonic() - began < 4

    @pytest.mark.feature("P12")
    async def test_the_newest_session_of_a_platform_completes_delivery(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250)
        async with world_at(tmp_path, inbox=inbox) as world:
            old = await world.connect("bob.web.one")
            await old.until(lambda: old.frames)
            new = await world.connect("bob.web.two", acks=False)
            await new.until(lambda: new.frames)
            await world.node.send("alice", to="bob", text="hi")
            await asyncio.gather(old.until(lambda: old.texts), new.until(lambda: new.texts))
            number = world.node.messaging.proxy.context.directory.find_user("bob")
            assert number is not None
            await eventually(lambda: world.node.messaging.relay.counters.resends)
            assert waiting(world, number) == 1, "the older one's ack counts for nothing"
            await new.ack(new.cursor)
            await eventually(lambda: waiting(world, number) == 0)
            assert old.texts == ["hi"], "the session that acked is not sent it again"
            assert set(new.texts) == {"hi"}

    @pytest.mark.feature("P12")
    async def test_the_next_newest_takes_over_with_what_it_acked_before(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)
        async with world_at(tmp_path, inbox=inbox) as world:
            old = await world.connect("bob.web.one")
            await old.until(lambda: old.frames)
            new = await world.connect("bob.web.two", acks=False)
            await new.until(lambda: new.frames)
            await say(world, 3)
            await asyncio.gather(old.until(lambda: len(old.texts) == 3), new.until(lambda: len(new.texts) == 3))
            await new.leave()
            number = world.node.messaging.proxy.context.directory.find_user("bob")
            assert number is not None
            await eventually(lambda: waiting(world, number) == 0)
            await say(world, 1, first=3)
            await old.until(lambda: len(old.texts) == 4)
            assert old.texts == ["m0", "m1", "m2", "m3"] and old.socket.close_code is None

    @pytest.mark.feature("P13")
    async def test_a_second_login_on_a_single_platform_kicks_the_first(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            phone, web = await world.connect("bob.ios.one"), await world.connect("bob.web.w")
            await asyncio.gather(phone.until(lambda: phone.frames), web.until(lambda: web.frames))
            other = await world.connect("bob.ios.two")
            assert await phone.closed(2) == 4403
            assert phone.frames[-1] == {"push": "kick", "reason": "new_session"}
            await other.until(lambda: other.frames)
            assert {session.device for session in world.sessions("bob")} == {"two", "w"}
            assert web.socket.close_code is None

    @pytest.mark.feature("P14")
    async def test_a_client_that_never_acks_is_kicked_and_its_messages_wait(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)
        async with world_at(tmp_path, inbox=inbox) as world:
            deaf = await world.connect("bob", acks=False)
            await deaf.until(lambda: deaf.frames)
            said = await say(world, 3)
            assert await deaf.closed(5) == 4403
            assert deaf.frames[-1] == {"push": "kick", "reason": "no_ack"}
            assert deaf.texts[:3] == said and set(deaf.texts) == set(said), "repeats are the same messages"
            back = await world.connect("bob")
            await back.until(lambda: len(back.texts) == 3)
            assert back.texts == said

    @pytest.mark.feature("P26")
    async def test_a_stop_sends_everyone_away_and_leaves_no_session(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, drain_batch=5) as world:
            clients = [await world.connect(f"u{number}") for number in range(1, 13)]
            tcp = await world.tcp()
            tcp.send({"token": "bob"})
            await tcp.frame()
            await asyncio.gather(*(client.until(lambda client=client: client.frames) for client in clients))  # type: ignore[misc]
            assert world.node.messaging.relay.counters.sessions == 13
            await world.server.stop()
            assert world.node.messaging.relay.counters.sessions == 0
            assert [await client.closed() for client in clients] == [1001] * 12
            assert all(client.frames[-1]["push"] == "reconnect" for client in clients)
            assert (await tcp.frame())["push"] == "reconnect"
            with pytest.raises(OSError):
                await world.connect("late")
            await tcp.leave()
