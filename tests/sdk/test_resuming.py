"""The SDK when things break: connections, servers, tokens, slow programs. Nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config import InboxSettings
from pixiu.machines.client_session import ClientRules
from pixiu.model.errors import Unauthenticated, Unavailable
from pixiu.sdk import Closed, FateUnknown, Kicked, KickEvent, Missed, Online
from pixiu.sdk.shelves import TALK_MAX
from tests.sdk.world import cut, eventually, take, told, world_at

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.sdk import Client


async def say(client: Client, texts: list[str], to: str = "bob") -> None:
    for text in texts:
        await client.send(to, text)


@pytest.mark.feature("P06", "B20")
async def test_cut_again_and_again_while_others_talk(tmp_path: Path) -> None:
    """Both sides lose their connections all the time: every send arrives once, in order."""
    texts = [str(number) for number in range(120)]
    rng = random.Random(11)
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:

        async def network() -> None:
            for _ in range(25):
                await asyncio.sleep(rng.random() * 0.03)
                for client in (alice, bob):
                    if client._socket is not None and rng.random() < 0.5:
                        cut(client)

        weather = asyncio.create_task(network())
        talking = asyncio.create_task(say(alice, texts))
        got = [message.text for message in await take(bob, len(texts), 60)]
        await talking
        weather.cancel()
        assert got == texts
        stored: list[str] = []
        before = None
        while True:
            page = await bob.history("alice", before=before)
            stored += [message.text for message in page.messages]
            if not page.has_more:
                break
            before = page.min
        assert stored[::-1] == texts, "a send that was repeated is stored once"
        with pytest.raises(TimeoutError):
            await bob.next_message(0.1)


@pytest.mark.feature("P26", "P06")
async def test_a_server_that_restarts_finds_its_clients_again(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        await say(alice, ["a", "b", "c"])
        first = await take(bob, 2)
        await world.stop()
        closed = await told(bob, Closed)
        assert closed.reason == "shutdown" and closed.retry_ms is not None and closed.retry_ms <= 50
        sending = asyncio.create_task(alice.send("bob", "while it was away"))
        await asyncio.sleep(0.1)
        assert not sending.done()
        await world.start()
        await sending
        await alice.send("bob", "after")
        rest = await take(bob, 3)
        assert [message.text for message in first + rest] == ["a", "b", "c", "while it was away", "after"]


async def test_what_cannot_be_repeated_is_not(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        await alice.enter("lobby")
        asking = asyncio.create_task(alice.say("lobby", "once"))
        await asyncio.sleep(0)
        cut(alice)
        with pytest.raises(FateUnknown, match="may be done"):
            await asking
        await told(alice, Online)
        await world.stop()
        with pytest.raises(Unavailable, match="it was not sent"):
            await alice.send("bob", "in vain", timeout_seconds=0.2)


@pytest.mark.feature("P05")
async def test_leaving_ends_the_session_and_acks_what_was_taken(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        async with world.connect("bob") as bob:
            await say(alice, ["one", "two"])
            await take(bob, 1)
            assert len(world.sessions("bob")) == 1
        await eventually(lambda: not world.sessions("bob"), 1)
        await eventually(lambda: world.waiting("bob") == 1)
        with pytest.raises(ZeroDivisionError):
            async with world.connect("bob") as bob:
                assert [message.text for message in await take(bob, 1)] == ["two"]
                raise ZeroDivisionError
        async with world.connect("bob", cursor=bob.cursor) as bob:
            assert [message.text for message in await take(bob, 1)] == ["two"], "it was not done with it"
            await bob.close()
            with pytest.raises(Unavailable):
                await bob.next_message()
            assert [message async for message in bob.messages()] == []


async def test_tokens_that_run_out(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        given: list[str] = []

        async def fresh() -> str:
            given.append(world.token("bob", lifetime_ms=1_500 if not given else 60_000))
            return given[-1]

        async with world.connect("bob", token=fresh) as bob:
            await alice.send("bob", "before")
            assert (await told(bob, Closed)).reason == "expired"
            await told(bob, Online)
            await alice.send("bob", "after")
            assert [message.text for message in await take(bob, 2)] == ["before", "after"]
            assert len(given) == 2
        short = world.token("carl", lifetime_ms=1_100)
        async with world.connect("carl", token=short) as carl:
            with pytest.raises(Unauthenticated):
                await carl.next_message(5)
            with pytest.raises(Unavailable):
                await carl.send("bob", "too late")


@pytest.mark.feature("P13")
async def test_a_second_login_ends_the_first_for_good(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("bob", platform="ios", device="old") as old,
        world.connect("bob", platform="web") as web,
        world.connect("bob", platform="ios", device="new") as new,
    ):
        with pytest.raises(Kicked) as kicked:
            await old.next_message(2)
        assert kicked.value.reason == "new_session"
        assert (await told(old, KickEvent)).reason == "new_session"
        await asyncio.sleep(0.1)
        assert {session.device for session in world.sessions("bob")} == {"d1", "new"}
        assert web.is_online and new.is_online


@pytest.mark.feature("P12")
async def test_the_newest_session_of_a_platform_completes_delivery(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path, inbox=InboxSettings(ack_timeout_ms=250)) as world,
        world.connect("alice") as alice,
        world.connect("bob", device="old") as old,
        world.connect("bob", device="new", auto_ack=False) as new,
    ):
        await alice.send("bob", "hi")
        (first,) = await take(old, 1)
        first.ack()
        (second,) = await take(new, 1)
        await eventually(lambda: world.host.messaging.relay.counters.resends)
        assert world.waiting("bob") == 1, "the older one's ack counts for nothing"
        second.ack()
        await eventually(lambda: not world.waiting("bob"))


@pytest.mark.feature("P14", "C27")
async def test_a_program_that_takes_nothing_loses_its_session_and_no_message(tmp_path: Path) -> None:
    texts = [str(number) for number in range(100)]
    inbox = InboxSettings(ack_timeout_ms=250, tries_max=1, window=8)
    async with (
        world_at(tmp_path, inbox=inbox) as world,
        world.connect("alice") as alice,
        world.connect("bob") as bob,
    ):
        await say(alice, texts)
        assert (await told(bob, KickEvent)).reason == "no_ack"
        await told(bob, Online)
        assert [message.text for message in await take(bob, len(texts))] == texts


@pytest.mark.feature("P21")
async def test_a_backlog_comes_in_portions_and_what_was_not_acked_stays(tmp_path: Path) -> None:
    inbox = InboxSettings(window=80, read_limit=80)
    texts = [str(number) for number in range(205)]
    async with world_at(tmp_path, inbox=inbox) as world, world.connect("alice") as alice:
        await say(alice, texts)
        async with world.connect("bob", auto_ack=False) as bob:
            first = await take(bob, 80)
            with pytest.raises(TimeoutError):
                await bob.next_message(0.1)
            first[-1].ack()
            await take(bob, 1)
            cut(bob)
        await eventually(lambda: world.waiting("bob") == 125)
        async with world.connect("bob") as bob:
            assert [message.text for message in await take(bob, 125)] == texts[80:]


async def test_a_full_buffer_stops_the_socket_but_never_an_answer(tmp_path: Path) -> None:
    texts = [str(number) for number in range(60)]
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("bob", buffer=10) as bob,
    ):
        await say(alice, texts)
        await eventually(lambda: bob._is_hushed)
        for text in texts:
            assert (await bob.next_message(5)).text == text
            await bob.user()
        assert not bob._is_hushed


async def test_talk_that_nobody_takes_gives_way_to_newer_talk(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        await alice.enter("lobby")
        await bob.enter("lobby")
        payload = b'{"push":"message","message":{"message_id":"%d","from":"x","room":"lobby","at":1,"text":"%d"}}'
        for number in range(1, TALK_MAX + 51):
            bob._received(payload % (number, number))
        assert (await told(bob, Missed)) == Missed(50, "lobby")
        assert [message.text for message in await take(bob, 2)] == ["51", "52"]


@pytest.mark.feature("B18", "P26")
async def test_a_node_that_was_taken_for_dead_tells_its_clients_and_they_catch_up(tmp_path: Path) -> None:
    """Sync case 3: some are closed, the others are told to resync; all have everything."""
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        texts = [str(number) for number in range(20)]
        clients = [world.connect(f"u{number}") for number in range(8)]
        for client in clients:
            await client.__aenter__()
        try:
            await asyncio.gather(*(say(alice, texts[:10], to=client.name) for client in clients))
            world.host.messaging.relay.resync()
            await asyncio.gather(*(say(alice, texts[10:], to=client.name) for client in clients))
            for client in clients:
                assert [message.text for message in await take(client, 20)] == texts
        finally:
            for client in clients:
                await client.close()


async def test_a_cursor_of_another_inbox_is_not_the_end(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        await say(alice, ["a", "b"])
        async with world.connect("bob", cursor="999") as bob:
            assert [message.text for message in await take(bob, 2)] == ["a", "b"]
            await alice.send("bob", "c")
            assert [message.text for message in await take(bob, 1)] == ["c"]
        assert bob.cursor == "3"
        await eventually(lambda: not world.waiting("bob"))


async def test_a_silent_server_is_asked_for_a_sign_of_life(tmp_path: Path) -> None:
    rules = ClientRules(retry_ms=20, retry_ms_max=100, ping_ms=50)
    async with world_at(tmp_path) as world, world.connect("bob", rules=rules) as bob:
        before = world.gateway.counters.requests
        await eventually(lambda: world.gateway.counters.requests >= before + 3)
        assert bob.is_online, "it answers, so it lives"


@pytest.mark.parametrize("patience", [5.0, None])
async def test_a_server_that_cannot_say_yet_whose_token_it_is_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float | None
) -> None:
    """As while a user's carrier changes: the connection stands, and nothing would be shown over it."""
    monkeypatch.setattr("pixiu.sdk.client.NAME_SECONDS", 0.01)
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        bob = world.connect("bob", patience_seconds=patience)
        real = bob.act
        refusals: list[str] = []

        async def act(action: str, **params: Any) -> dict[str, Any]:
            if action == "user" and len(refusals) < 2:
                refusals.append(action)
                raise Unavailable("no carrier serves this user")
            return await real(action, **params)

        monkeypatch.setattr(bob, "act", act)
        async with bob:
            await alice.send("bob", "hello")
            assert [message.text for message in await take(bob, 1)] == ["hello"] and bob.name == "bob"
        assert len(refusals) == 2
