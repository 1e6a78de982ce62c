"""The SDK against a real node: everything a person does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import uvloop

import pixiu
from pixiu.model.errors import (
    ConfigError,
    NotAllowed,
    NotFound,
    PixiuError,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from pixiu.sdk import Gap, GapEvent, Online, Place, PresenceEvent, RecallEvent, ReceiptEvent, TypingEvent
from tests.sdk.world import QUICK, cut, eventually, take, told, wanted, world_at
from tests.servers import free_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.feature("R17", "R18")
async def test_two_people_talk(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        assert alice.name == "alice" and alice.is_online
        sent = await alice.send("bob", "你好 👋", fields={"tone": "kind"}, priority="high")
        (message,) = await take(bob, 1)
        assert (message.sender, message.to, message.text) == ("alice", "bob", "你好 👋")
        assert (message.message_id, message.at, message.send_id) == (sent.message_id, sent.at, sent.send_id)
        assert message.fields == {"tone": "kind"} and message.priority == "high"
        answer = await bob.send("alice", body=b"\x00\xff", kind="file", ref=message.message_id)
        (back,) = await take(alice, 1)
        assert (back.kind, back.body, back.ref, back.message_id) == (
            "file",
            b"\x00\xff",
            sent.message_id,
            answer.message_id,
        )
        page = await alice.history("bob")
        assert [each.message_id for each in page.messages] == [answer.message_id, sent.message_id]


def test_on_uvloop_as_on_the_standard_loop(tmp_path: Path) -> None:
    async def talk() -> None:
        async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
            await alice.send("bob", "fast")
            assert [message.text for message in await take(bob, 1)] == ["fast"]
            cut(bob)
            await alice.send("bob", "and back")
            assert [message.text for message in await take(bob, 1)] == ["and back"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


async def test_a_large_group_is_heard_in_its_room(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path, messaging={"group_inbox_limit": 1}) as world,
        world.connect("alice") as alice,
        world.connect("bob") as bob,
    ):
        await alice.create_group("crowd", name="Crowd", members=["bob"])
        assert (await alice.group("crowd")).is_large
        await bob.enter("g:crowd")
        first = await alice.gsend("crowd", "one")
        heard = await wanted(bob, lambda message: message.text == "one")
        assert (heard.group, heard.message_id) == ("crowd", first.message_id)
        await bob.leave("g:crowd")
        missed = await alice.gsend("crowd", "two")
        await bob.enter("g:crowd")
        third = await alice.gsend("crowd", "three")
        assert (await wanted(bob, lambda message: message.text == "three")).previous == missed.message_id
        assert (await told(bob, GapEvent)).gap == Gap(Place("group", "crowd"), first.message_id, third.message_id)
        pages = [page async for page in bob.close_gaps(group="crowd")]
        assert [message.text for page in pages for message in page.messages] == ["two"] and not bob.gaps


@pytest.mark.feature("R18")
async def test_people_groups_and_reading(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("bob") as bob,
        world.connect("carl") as carl,
    ):
        assert (await alice.create_user("alice", name="Alice", fields={"city": "Xi'an"})).name == "Alice"
        assert (await bob.user("alice")).fields == {"city": "Xi'an"}
        assert [each.place for each in (await alice.contact("bob")).contacts] == [Place("with", "bob")]
        await bob.contact("alice")
        group = await alice.create_group("team", name="Team", members=["bob"])
        assert (group.group, group.owner, group.member_count) == ("team", "alice", 2)
        assert {member.user for member in (await bob.group("team")).members} == {"alice", "bob"}
        await carl.join("team")
        sent = await alice.gsend("team", "all of you")
        for each in (bob, carl):
            message = await wanted(each, lambda message: message.group == "team" and message.kind == "text")
            assert message.message_id == sent.message_id and message.place(each.name) == Place("group", "team")
        await alice.manage("team", "carl", "mute")
        with pytest.raises(NotAllowed) as refused:
            await carl.gsend("team", "may I?")
        assert refused.value.code == "forbidden"
        page = await bob.history(group="team")
        assert [each.text for each in page.messages if each.kind == "text"] == ["all of you"]
        unread = {each.place: each.unread for each in (await bob.contacts()).contacts}
        assert unread[Place("group", "team")] == 1
        assert await bob.read(group="team") == 0
        assert (await carl.quit("team")).group == "team"
        await bob.block("carl")
        with pytest.raises(NotAllowed):
            await carl.send("bob", "hello?")
        await bob.unblock("carl")
        await carl.send("bob", "hello!")
        assert (await wanted(bob, lambda message: message.kind == "text")).text == "hello!"
        await bob.unlink("alice")
        assert (await bob.register_push("apns", "00ff", topic="com.example.chat"))["provider"] == "apns"
        assert (await bob.unregister_push())["provider"] is None
        for bad in (alice.send("bob"), alice.act("dance"), alice.history(group="nowhere")):
            with pytest.raises(RequestError):
                await bad


@pytest.mark.feature("R06")
async def test_member_who_changes_a_group_receives_the_notice(tmp_path: Path) -> None:
    """Live on the session that made the change, and again in the timeline; the audit still balances."""
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        async with world.connect("carl"):
            await alice.create_group("team", name="Team", members=["bob"])
            await alice.manage("team", "carl", "invite")
            for op in ("mute", "unmute", "admin"):
                await alice.manage("team", "bob", op)
            await alice.manage("team", "carl", "remove")
            await alice.manage("team", None, "history", history="since_join")
            await alice.manage("team", "bob", "transfer")
            changes = ["invite", "mute", "unmute", "admin", "remove", "history", "transfer"]
            got = [await wanted(alice, lambda message: message.kind == "system") for _ in changes]
            assert [message.fields["action"] for message in got] == changes
            assert {message.sender for message in got} == {"alice"} and {message.group for message in got} == {"team"}
            page = await alice.history(group="team")
            assert [each.message_id for each in got] == [each.message_id for each in reversed(page.messages)][1:]
            await alice.quit("team")
            for each in (alice, bob):
                assert (await wanted(each, lambda message: message.fields.get("action") == "quit")).sender == "alice"
        report = await world.host.audit()
        assert report.balanced and report.intended == report.acked + report.waiting + report.expired + report.dead


@pytest.mark.feature("R18", "B14")
async def test_receipts_recalls_and_several_devices(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice", device="one") as alice,
        world.connect("alice", platform="ios") as phone,
        world.connect("bob") as bob,
    ):
        first, second = await alice.send("bob", "first"), await alice.send("bob", "secret")
        got = await take(bob, 2)
        assert [each.text for each in await take(phone, 2)] == ["first", "secret"], "the sender's other device"
        assert await bob.receipt([each.message_id for each in got], "both") == 2
        assert await bob.receipt([got[0].message_id], "read") == 0, "told already"
        for each in (alice, phone):
            event = await told(each, ReceiptEvent)
            assert event.user == "bob" and set(event.message_ids) == {first.message_id, second.message_id}
        await alice.recall(second.message_id)
        for each in (bob, phone):
            assert (await told(each, RecallEvent)).message_id == second.message_id
        await alice.send("bob", "third")
        assert [each.text for each in await take(bob, 1)] == ["third"], "a recall is an event, not a message"
        shown = {each.message_id: each for each in (await bob.history("alice")).messages}
        assert shown[second.message_id].is_recalled and not shown[second.message_id].text
        mine = {each.message_id: each for each in (await alice.history("bob")).messages}
        assert mine[first.message_id].read_at and mine[first.message_id].delivered_at
        await eventually(lambda: world.waiting("bob") == 1)  # what was taken last is acked with the next


@pytest.mark.feature("R18")
async def test_rooms_typing_and_presence_also_after_a_reconnect(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path, presence_delay_ms=10) as world,
        world.connect("alice") as alice,
        world.connect("bob") as bob,
    ):
        await alice.contact("bob")
        await bob.contact("alice")
        assert await alice.presence() == {"bob": "online"}
        assert await alice.enter("lobby") == 1 and await bob.enter("lobby") == 2
        said = await alice.say("lobby", "anyone?")
        heard = await wanted(bob, lambda message: bool(message.room))
        assert (heard.message_id, heard.room, heard.text) == (said.message_id, "lobby", "anyone?") and said.members == 2
        await bob.typing("alice")
        assert (await told(alice, TypingEvent)).place == Place("with", "bob")
        cut(bob)
        await eventually(lambda: not bob.is_online)
        assert (await told(alice, PresenceEvent)).state == "offline"
        assert (await told(alice, PresenceEvent)).state == "online"
        for number in range(200):  # the room is entered again by itself
            await alice.say("lobby", str(number), reliable=True)
            try:
                again = await bob.next_message(0.05)
            except TimeoutError:
                continue
            break
        assert again.room == "lobby"
        cut(alice)  # and alice watches again
        await told(alice, Online)
        await alice.user()
        cut(bob)
        assert (await told(alice, PresenceEvent)).user == "bob"
        await eventually(lambda: bob.is_online)
        await bob.leave("lobby")
        with pytest.raises(NotAllowed):
            await bob.say("lobby", "still here?")


@pytest.mark.feature("R18")
async def test_scheduled_messages_and_a_search_without_an_index(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        soon = int(time.time() * 1000) + 400
        later = await alice.schedule(soon + 3_600_000, "never", to="bob")
        await alice.schedule(soon, "in time", to="bob")
        waiting = await alice.scheduled()
        assert [each.message.text for each in waiting if each.message] == ["in time", "never"]
        await alice.unschedule(later.schedule_id)
        assert [each.text for each in await take(bob, 1)] == ["in time"]
        assert await alice.scheduled() == ()
        with pytest.raises(NotFound):
            await alice.unschedule(later.schedule_id)
        with pytest.raises(PixiuError):
            await alice.search("time")


async def test_catching_up_by_hand(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        sent = [(await alice.send("bob", str(number))).message_id for number in range(5)]
        async with world.connect("bob", auto_ack=False) as bob:
            waiting = await bob.receive(limit=3)
            assert [each.text for each in waiting.messages] == ["0", "1", "2"] and waiting.has_more
            rest = await bob.sync(cursor=waiting.cursor)
            assert [each.text for each in rest.messages] == ["3", "4"] and not rest.has_more
            found = await bob.sync("alice", last=sent[1])
            assert [each.message_id for each in found.messages] == sent[2:]
            both = await bob.sync({"alice": sent[3]})
            assert [each.message_id for each in both.messages] == sent[4:]
            messages = await take(bob, 5)
            messages[2].ack()
            await eventually(lambda: world.waiting("bob") == 2)
        async with world.connect("bob") as again:
            assert [each.text for each in await take(again, 2)] == ["3", "4"], "what was not acked comes again"


async def test_no_server_and_a_bad_token_say_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no answer from ws://127"):
        async with pixiu.connect(f"ws://127.0.0.1:{free_port()}", "x"):
            pass
    with pytest.raises(ConfigError, match="ws://HOST:PORT"):
        pixiu.connect("127.0.0.1:8400", "x")
    async with world_at(tmp_path) as world:
        with pytest.raises(Unauthenticated):
            async with pixiu.connect(world.url, "nonsense", rules=QUICK):
                pass
        with pytest.raises(RequestError, match="404"):
            async with pixiu.connect(world.url + "/nowhere", world.token("alice")):
                pass


async def test_a_message_of_any_size_that_the_server_takes_and_one_that_it_does_not(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        text = "語" * 20_000
        await alice.send("bob", text)
        assert (await take(bob, 1))[0].text == text
        with pytest.raises(TooLarge):
            await alice.send("bob", "x" * 100_000)
        with pytest.raises(TooLarge):  # more than a frame: the connection is closed, only this send fails
            await alice.send("bob", "x" * 1_000_000)
        await alice.send("bob", "small")
        assert (await take(bob, 1))[0].text == "small"
