"""Clients that do not read, do not answer, stay too long or ask too often, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from pixiu.config import InboxSettings
from pixiu.config.rooms import RoomSettings
from tests.roles.gateway.raw import PONG, RawWebSocket, frame_of
from tests.roles.gateway.world import TcpClient, World, eventually, on_the_loop_that_serves, say, waiting, world_at

if TYPE_CHECKING:
    from pathlib import Path

LOUD = RoomSettings(says_per_second=0, batch_ms=0)
TALK = "x" * 20_000
"""A hundred of these are more than a socket keeps for one who does not read."""


async def talk(world: World, count: int, talk_class: str) -> list[str]:
    """Say so many things in a room, and see that somebody who reads hears them all."""
    speaker = await world.connect("alice")
    await speaker.ask("enter", room="lobby")
    texts = [f"{number} {TALK}" for number in range(count)]
    for text in texts:
        answer = await speaker.ask("say", **{"room": "lobby", "text": text, "class": talk_class})
        assert "message_id" in answer
    await speaker.until(lambda: len(speaker.texts) == count)
    assert speaker.texts == texts, "whoever reads is not held up"
    return texts


async def silent_listener(world: World) -> RawWebSocket:
    slow = await RawWebSocket.open(world.port, "bob", receive_bytes=8192)
    number = await slow.request("enter", room="lobby")
    await slow.read_until(lambda: any(frame.get("id") == number for frame in slow.frames))
    return slow


@on_the_loop_that_serves
class TestWhoDoesNotRead:
    @pytest.mark.feature("P27")
    async def test_live_talk_to_a_client_that_does_not_read_is_a_gap(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, with_rooms=True, rooms=LOUD) as world:
            slow = await silent_listener(world)
            texts = await talk(world, 100, "live")
            await slow.read_until(lambda: texts[-1] in slow.texts)
            missed = sum(gap["missed"] for gap in slow.pushed("gap") if gap["room"] == "lobby")
            heard = [text for text in texts if text in slow.texts]
            assert missed > 0 and missed + len(slow.texts) == 100, "what is missing is counted"
            assert slow.texts == heard, "in order, once, the latest among them"
            slow.close()

    @pytest.mark.feature("P27")
    async def test_reliable_talk_waits_for_a_client_that_stops_reading(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, with_rooms=True, rooms=LOUD) as world:
            slow = await silent_listener(world)
            texts = await talk(world, 100, "reliable")
            await slow.read_until(lambda: len(slow.texts) == 100)
            assert slow.texts == texts and not slow.pushed("gap")
            slow.close()

    @pytest.mark.feature("P27")
    async def test_who_takes_none_of_it_is_kicked_and_the_others_are_not_held_up(self, tmp_path: Path) -> None:
        bounds: dict[str, Any] = {"output_bytes_max": 256 * 1024, "output_mark_bytes": 16 * 1024}
        async with world_at(tmp_path, with_rooms=True, rooms=LOUD, **bounds) as world:
            slow = await silent_listener(world)
            await talk(world, 100, "reliable")
            await eventually(lambda: world.gateway.counters.closed == {("slow",): 1})
            await eventually(lambda: not world.sessions("bob"))
            await slow.read_to_the_end()
            numbers = [int(text.split()[0]) for text in slow.texts]
            assert numbers == list(range(len(numbers))) and len(numbers) < 100, "no hole before the end"
            assert slow.close_code in (0, 4403)
            slow.close()

    @pytest.mark.feature("C27")
    async def test_an_older_session_that_does_not_ack_is_told_to_resync(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            old = await world.connect("bob.web.old", acks=False)
            await old.until(lambda: old.frames)
            new = await world.connect("bob.web.new")
            await new.until(lambda: new.frames)
            said = await say(world, 200)
            await asyncio.gather(new.until(lambda: new.texts == said), old.until(lambda: old.pushed("resync")))
            assert old.texts == said[: len(old.texts)] and len(old.texts) < 200
            answer = await old.ask(
                "sync", **{"with": "alice", "last": old.pushed("message")[-1]["message"]["message_id"]}
            )
            shown = [*old.texts, *(message["text"] for message in answer["messages"])]
            assert shown == said[: len(shown)] and answer["has_more"] is (len(shown) < 200)


async def with_a_full_page(world: World, **options: Any) -> RawWebSocket:
    """A client that has read nothing yet: its first page of contacts is full, and three messages wait behind that."""
    for number in range(140):
        await world.node.act("alice", "create_group", group=f"g{number}", members=["bob"], avatar="y" * 2_000)
    first = await world.connect("bob")
    await first.until(lambda: len(first.texts) >= 140)  # the notices of the groups
    await eventually(lambda: waiting(world, world.sessions("bob")[0].user) == 0)
    await first.leave()
    await say(world, 3)
    return await RawWebSocket.open(world.port, "bob", receive_bytes=8192, **options)


@on_the_loop_that_serves
class TestSlowReader:
    async def test_slow_client_reads_a_full_first_page_and_is_not_closed_with_no_ack(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)  # after 750 ms a session that acks nothing is closed
        async with world_at(tmp_path, inbox=inbox) as world:
            slow = await with_a_full_page(world)
            began = time.monotonic()
            await slow.read_slowly(lambda: len(slow.texts) >= 3, count=8192, pause=0.06)
            assert time.monotonic() - began > 1.5, "the page takes longer than a session has for an ack"
            assert len(json.dumps(slow.pushed("contacts"))) > 250_000
            assert slow.texts[:3] == ["m0", "m1", "m2"]
            assert world.gateway.counters.closed == {}
            await slow.ack()
            await eventually(lambda: waiting(world, world.sessions("bob")[0].user) == 0)
            slow.close()

    async def test_client_that_has_read_all_and_acks_nothing_is_closed_with_no_ack(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)
        async with world_at(tmp_path, inbox=inbox) as world:
            slow = await with_a_full_page(world)
            await slow.read_slowly(lambda: len(slow.texts) >= 3, count=8192, pause=0.03)
            began = time.monotonic()
            await slow.read_to_the_end()
            assert slow.pushed("kick") == [{"push": "kick", "reason": "no_ack"}]
            assert time.monotonic() - began < 3
            slow.close()

    async def test_client_that_takes_longer_than_slow_timeout_but_makes_progress_is_not_closed(
        self, tmp_path: Path
    ) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)
        async with world_at(tmp_path, inbox=inbox, slow_timeout_ms=500) as world:
            slow = await with_a_full_page(world)
            began = time.monotonic()
            await slow.read_slowly(lambda: len(slow.texts) >= 3, count=8192, pause=0.06)
            assert time.monotonic() - began > 1.5
            assert slow.texts[:3] == ["m0", "m1", "m2"]
            assert world.gateway.counters.closed == {}
            slow.close()

    async def test_client_that_stops_reading_in_the_page_is_closed_as_slow(self, tmp_path: Path) -> None:
        inbox = InboxSettings(ack_timeout_ms=250, tries_max=2)
        async with world_at(tmp_path, inbox=inbox, slow_timeout_ms=800) as world:
            slow = await with_a_full_page(world)
            await eventually(lambda: world.gateway.counters.closed == {("slow",): 1})
            slow.close()


@on_the_loop_that_serves
class TestWhoIsSilent:
    async def test_a_connection_that_is_only_half_there_ends(self, tmp_path: Path) -> None:
        """Its machine is gone without a word: no answer to a ping ever comes."""
        async with world_at(tmp_path, ping_interval_ms=200, idle_timeout_ms=800) as world:
            dead = await RawWebSocket.open(world.port, "dead")
            alive = await RawWebSocket.open(world.port, "alive")
            library = await world.connect("library")
            dumb = await world.tcp()
            dumb.send({"token": "dumb"})
            polite = await world.tcp()
            polite.send({"token": "polite"})

            async def answer(tcp: TcpClient) -> None:
                while True:
                    frame = await tcp.frame()
                    if frame.get("push") == "ping":
                        tcp.send({"push": "pong"})

            answering = asyncio.create_task(answer(polite))
            began = time.monotonic()
            for count in range(1, 8):
                await alive.read_until(lambda count=count: alive.pings >= count)  # type: ignore[misc]
                await alive.send(frame_of(PONG))
            assert time.monotonic() - began > 0.8
            await eventually(lambda: not world.sessions("dead") and not world.sessions("dumb"))
            await dead.read_to_the_end()
            assert dead.close_code == 4408 and dead.pings > 1
            assert all(len(world.sessions(user)) == 1 for user in ("alive", "library", "polite"))
            assert (await library.ask("ping"))["at"]
            answering.cancel()
            for each in (dead, alive):
                each.close()
            for tcp in (dumb, polite):
                await tcp.leave()

    async def test_a_token_that_ends_in_mid_session(self, tmp_path: Path) -> None:
        """What was accepted before stays accepted; with a new token the same device goes on where it was."""
        async with world_at(tmp_path) as world:
            until = int(time.time() * 1000) + 900
            bob, tcp = await world.connect(f"bob.web.d.{until}"), await world.tcp()
            tcp.send({"token": f"carol.web.d.{until}"})
            assert (await tcp.frame())["push"] == "contacts"
            sent = await bob.ask("send", to="alice", text="in time", send_id="1")
            await say(world, 3)
            await bob.until(lambda: len(bob.texts) == 3)
            assert await bob.closed(5) == 4401
            assert (await tcp.frame())["error"]["code"] == "unauthenticated"
            assert await tcp.rest() == b""
            await tcp.leave()
            await eventually(lambda: not world.sessions("bob") and not world.sessions("carol"))
            old = await world.connect(f"bob.web.d.{until}")
            assert await old.closed() == 4401, "nor is it good for another connection"
            await say(world, 2, first=3)
            again = await world.connect(f"bob.web.d.{until + 60_000}", cursor=bob.cursor)
            await again.until(lambda: len(again.texts) == 2)
            assert again.texts == ["m3", "m4"]
            assert (await again.ask("send", to="alice", text="in time", send_id="1"))["message_id"] == sent[
                "message_id"
            ]


@on_the_loop_that_serves
class TestWhoComesTooOften:
    async def test_requests_of_one_user(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, requests_per_user=5, request_burst_per_user=10) as world:
            alice, bob = await world.connect("alice"), await world.connect("bob")
            answers = await asyncio.gather(*(alice.ask("ping") for _ in range(30)))
            refused = [answer["error"] for answer in answers if "error" in answer]
            assert 15 <= len(refused) <= 20 and {error["code"] for error in refused} == {"rate_limited"}
            assert all(error["retry_after_ms"] > 0 for error in refused)
            assert "at" in await bob.ask("ping"), "others are not refused"
            await asyncio.sleep(refused[0]["retry_after_ms"] / 1000 + 0.3)
            assert "at" in await alice.ask("ping"), "nor is she for ever"

    async def test_connects_of_one_user(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, connects_per_user=1, connect_burst_per_user=3) as world:
            clients = [await world.connect(f"alice.web.d{number}") for number in range(5)]
            codes = [await client.closed() for client in clients[3:]]
            assert codes == [4429, 4429] and all(client.socket.close_code is None for client in clients[:3])
            bob = await world.connect("bob")
            assert (await bob.ask("ping"))["at"]

    async def test_connects_and_requests_from_one_address(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pixiu.roles.gateway.gateway.LOOPBACK", ("::1",))
        limits: dict[str, Any] = {"connects_per_address": 1, "connect_burst_per_address": 2, "requests_per_address": 1}
        async with world_at(tmp_path, **limits, request_burst_per_address=4) as world:
            one, two = await world.connect("u1"), await world.connect("u2")
            with pytest.raises(InvalidStatus) as caught:
                await connect(world.url("u3"))
            assert caught.value.response.status_code == 429 and "Retry-After" in caught.value.response.headers
            tcp = await world.tcp()
            assert (await tcp.frame())["error"]["code"] == "rate_limited"
            await tcp.leave()
            answers = [await client.ask("ping") for client in (one, two) for _ in range(4)]
            assert [answer.get("error", {}).get("code", "ok") for answer in answers].count("rate_limited") in (3, 4)
            other = await RawWebSocket.open(world.port, "u4", address="127.0.0.2")
            number = await other.request("ping")
            await other.read_until(lambda: any(frame.get("id") == number for frame in other.frames))
            assert "result" in other.frames[-1], "another address has its own"
            other.close()

    @pytest.mark.feature("P26")
    async def test_those_who_are_sent_away_are_told_to_come_back_spread_out(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, drain_spread_ms=5_000, drain_batch=10) as world:
            clients = [await world.connect(f"u{number}") for number in range(1, 41)]
            await asyncio.gather(*(client.until(lambda client=client: client.frames) for client in clients))  # type: ignore[misc]
            await world.server.stop()
            told = sorted([client.pushed("reconnect")[0]["after_ms"] for client in clients if await client.closed()])
            assert len(told) == 40 and told[0] >= 0 and told[-1] < 5_000
            gaps = [later - earlier for earlier, later in itertools.pairwise(told)]
            assert max(gaps) < 1_000 and len(set(told)) > 35, "over all of the time, not in a bunch"
            assert {json.dumps(client.frames[-1]["push"]) for client in clients} == {'"reconnect"'}
