"""Catching up over real sockets: seed 004's three cases, several terminals, and a log that refuses."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config import JournalSettings, MessagingSettings
from tests.roles.gateway.world import Client, World, eventually, on_the_loop_that_serves, say, waiting, world_at

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 20


def paged(**settings: Any) -> MessagingSettings:
    return MessagingSettings(sends_per_second=0, page_max=PAGE, **settings)


class Local:
    """What a device keeps: messages by id, in any order of arrival, and the gaps that it was told of."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.texts = {message["message_id"]: message["text"] for message in messages}
        self.gaps: list[dict[str, Any]] = []
        self.requests = 0

    def take(self, messages: list[dict[str, Any]]) -> None:
        self.texts |= {message["message_id"]: message.get("text", "") for message in messages}

    @property
    def last(self) -> str:
        return max(self.texts, key=int, default="0")

    def all(self) -> list[str]:
        return [text for _, text in sorted(self.texts.items(), key=lambda item: int(item[0])) if text]

    async def close_gaps(self, client: Client) -> None:
        """Scroll up until nothing is marked as missing: a page that crosses a gap's end closes it."""
        while self.gaps:
            gap = self.gaps.pop()
            where: dict[str, Any] = {key: gap[key] for key in ("with", "group") if key in gap}
            self.requests += 1
            page = await client.ask("history", before=gap["before"], after=gap["after"], limit=PAGE, **where)
            self.take(page["messages"])
            if page["has_more"]:
                self.gaps.append({**where, "after": gap["after"], "before": page["min"]})


async def met(world: World, token: str, count: int, group: str = "") -> Local:
    """A device that was here, has so many messages, and is gone."""
    client = await world.connect(token)
    if group:
        for number in range(count):
            await world.node.act("alice", "gsend", group=group, text=f"g{number}")
    else:
        await say(world, count)
    await client.until(lambda: len([text for text in client.texts if text]) == count)
    await asyncio.sleep(0.05)  # the last ack is on its way
    await client.leave()
    return Local([frame["message"] for frame in client.pushed("message") if frame["message"].get("text")])


async def everything(client: Client, **where: object) -> list[str]:
    """The whole conversation as the server has it, oldest first."""
    found: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while True:
        page = await client.ask("history", limit=PAGE, **where, **before)
        found += page["messages"]
        if not page["has_more"]:
            return [message["text"] for message in reversed(found) if message.get("text")]
        before = {"before": page["min"]}


@on_the_loop_that_serves
class TestResuming:
    @pytest.mark.feature("B15", "P06")
    @pytest.mark.parametrize("count", [1, 5])
    async def test_what_a_client_sent_itself_is_no_gap_when_it_comes_back(self, tmp_path: Path, count: int) -> None:
        """By cursor alone: its own sends lie behind it, and count as acked."""
        async with world_at(tmp_path) as world:
            client = await world.connect("bob.web.one")
            await say(world, 1)
            await client.until(lambda: client.texts)
            cursor = client.pushed("message")[-1]["cursor"]
            for number in range(count):
                await client.ask("send", to="alice", text=f"own {number}")
            bob = world.sessions("bob")[0]
            await eventually(lambda: waiting(world, bob.user) == 0)
            await client.leave()
            again = await world.connect("bob.web.one", cursor=cursor)
            answer = await again.ask("sync", cursor=cursor)
            assert (answer["gaps"], answer["messages"]) == ([], [])
            assert int(answer["cursor"]) == int(cursor) + count
            said = await say(world, 1, first=1)
            await again.until(lambda: again.texts)
            assert (again.pushed("gap"), again.texts) == ([], said)


@on_the_loop_that_serves
class TestThreeCases:
    @pytest.mark.feature("B15")
    async def test_a_short_private_gap_is_closed_forward_from_the_last_id(self, tmp_path: Path) -> None:
        """By last message id, not by cursor, while the other side goes on talking."""
        async with world_at(tmp_path, messaging_settings=paged()) as world:
            local = await met(world, "bob.web.one", 5)
            missed = await say(world, 73, first=5)
            client = await world.connect("bob.web.one")
            await client.until(lambda: client.frames)
            talking = asyncio.create_task(say(world, 10, first=78))
            has_more = True
            while has_more:
                local.requests += 1
                answer = await client.ask("sync", **{"with": "alice", "last": local.last})
                texts = [message["text"] for message in answer["messages"]]
                assert texts == sorted(texts, key=lambda text: int(text[1:])), "oldest first"
                assert not answer["gaps"]
                local.take(answer["messages"])
                has_more = answer["has_more"]
            said = await talking
            assert local.requests <= math.ceil((73 + 10) / PAGE) + 1
            await client.until(lambda: set(said) <= set(client.texts) | set(local.all()))
            local.take([frame["message"] for frame in client.pushed("message")])
            assert local.all() == [f"m{number}" for number in range(5)] + missed + said
            assert local.all() == await everything(client, **{"with": "alice"})

    @pytest.mark.feature("B16")
    @pytest.mark.parametrize("device", ["away for long", "new"])
    async def test_a_long_private_gap_or_a_new_terminal_begins_with_the_newest(
        self, tmp_path: Path, device: str
    ) -> None:
        async with world_at(tmp_path, messaging_settings=paged(forward_gap_ms=1)) as world:
            local = await met(world, "bob.web.one", 5)
            if device == "new":
                local = Local([])
            await say(world, 70, first=5)
            client = await world.connect("bob.mac.two" if device == "new" else "bob.web.one")
            await client.until(lambda: client.frames)
            answer = await client.ask("sync", **{"with": "alice", "last": local.last})
            first_page = [message["text"] for message in answer["messages"]]
            assert first_page == [f"m{number}" for number in range(74, 74 - PAGE, -1)], "the newest is there at once"
            (gap,) = answer["gaps"]
            assert (gap["with"], gap["after"], gap["before"]) == (
                "alice",
                local.last,
                answer["messages"][-1]["message_id"],
            )
            local.take(answer["messages"])
            local.gaps = answer["gaps"]
            await local.close_gaps(client)
            assert (
                local.all() == [f"m{number}" for number in range(75)] == await everything(client, **{"with": "alice"})
            )
            assert local.requests <= math.ceil(75 / PAGE)

    @pytest.mark.feature("B17")
    @pytest.mark.parametrize("is_large", [False, True])
    async def test_a_group_begins_with_the_newest_and_the_gap_is_closed_by_scrolling(
        self, tmp_path: Path, is_large: bool
    ) -> None:
        limit = 2 if is_large else 500
        async with world_at(tmp_path, messaging_settings=paged(group_inbox_limit=limit)) as world:
            for user in ("bob", "carol"):
                await world.node.create_user(user)
            await world.node.act("alice", "create_group", group="team", name="Team", members=["bob", "carol"])
            if is_large:
                local = Local([])
                for number in range(5):
                    await world.node.act("alice", "gsend", group="team", text=f"g{number}")
                reader = await world.connect("bob.web.one")
                page = await reader.ask("history", group="team")
                local.take([message for message in page["messages"] if message.get("text")])
                await reader.leave()
            else:
                local = await met(world, "bob.web.one", 5, group="team")
            for number in range(5, 66):
                await world.node.act("alice", "gsend", group="team", text=f"g{number}")
            client = await world.connect("bob.web.one")
            await client.until(lambda: client.frames)
            answer = await client.ask("sync", group="team", last=local.last)
            assert [message["text"] for message in answer["messages"]] == [f"g{n}" for n in range(65, 65 - PAGE, -1)]
            (gap,) = answer["gaps"]
            assert (gap["group"], gap["after"], gap["before"]) == (
                "team", local.last, answer["messages"][-1]["message_id"],
            )  # fmt: skip
            local.take(answer["messages"])
            assert "g30" not in local.all(), "what lies between is marked, not there"
            local.gaps = answer["gaps"]
            await local.close_gaps(client)
            assert not local.gaps and local.all() == [f"g{number}" for number in range(66)]
            again = await client.ask("sync", group="team", last=local.last)
            assert again["messages"] == [] and again["gaps"] == [], "there is nothing more"
            whole = await client.ask("sync", group="team", last=answer["messages"][-1]["message_id"])
            assert whole["gaps"] == [], "a page that reaches what the device has leaves no mark"

    @pytest.mark.feature("B15", "B16", "B17")
    async def test_one_sync_for_all_conversations_of_a_device(self, tmp_path: Path) -> None:
        async with world_at(tmp_path, messaging_settings=paged()) as world:
            await world.node.create_user("bob")
            await world.node.act("alice", "create_group", group="team", name="Team", members=["bob"])
            await say(world, 30)
            await say(world, 5, user="carol")
            for number in range(30):
                await world.node.act("alice", "gsend", group="team", text=f"g{number}")
            client = await world.connect("bob.new.device")
            await client.until(lambda: client.frames)
            answer = await client.ask("sync", **{"with": {"alice": "0", "carol": "0"}, "group": {"team": "0"}})
            local = Local([])
            local.take(answer["messages"])
            local.gaps = answer["gaps"]
            await local.close_gaps(client)
            assert len(local.all()) == 65 and {"g0", "g29", "m0", "m29"} <= set(local.all())

    @pytest.mark.feature("B18", "T7", "C9")
    async def test_a_server_that_was_thought_dead_closes_a_share_and_has_the_rest_resync(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            clients = {f"u{number}": await world.connect(f"u{number}.web.d") for number in range(1, 13)}
            await asyncio.gather(*(client.until(lambda client=client: client.frames) for client in clients.values()))  # type: ignore[misc]
            relay = world.node.messaging.relay
            old_epoch = relay.epoch
            assert relay.check_freeze(relay._clock.monotonic_us() // 1000 + 11_000)
            for user in clients:
                await world.node.send("alice", to=user, text="meanwhile")
            await eventually(lambda: sum(client.socket.close_code is not None for client in clients.values()) == 3)
            for user, client in clients.items():
                if client.socket.close_code is not None:
                    assert client.frames[-1] == {"push": "kick", "reason": "resync"}
                    assert client.socket.close_code == 4403
                    clients[user] = client = await world.connect(f"{user}.web.d", cursor=client.cursor)
                else:
                    assert {"push": "resync"} in client.frames
                await client.until(lambda client=client: client.texts)  # type: ignore[misc]
                history = await everything(client, **{"with": "alice"})
                assert client.texts == history == ["meanwhile"]
            assert relay.epoch >= old_epoch and all(len(world.sessions(user)) == 1 for user in clients)


@on_the_loop_that_serves
class TestTerminals:
    @pytest.mark.feature("B14")
    async def test_all_terminals_end_with_one_history(self, tmp_path: Path) -> None:
        """Two online, each sending; a third was here once, and comes back; a fourth is new."""
        async with world_at(tmp_path, messaging_settings=paged()) as world:
            idle = await world.connect("bob.mac.idle")
            await idle.until(lambda: idle.frames)
            await idle.leave()
            phone, web = await world.connect("bob.ios.p"), await world.connect("bob.web.w")
            await asyncio.gather(phone.until(lambda: phone.frames), web.until(lambda: web.frames))
            await world.node.create_user("alice")
            said = []
            for number in range(15):
                await world.node.send("alice", to="bob", text=f"a{number}")
                await phone.ask("send", to="alice", text=f"p{number}")
                await web.ask("send", to="alice", text=f"w{number}")
                said += [f"a{number}", f"p{number}", f"w{number}"]
            others_of_phone = [text for text in said if text[0] != "p"]
            await phone.until(lambda: len(phone.texts) == 30)
            await web.until(lambda: len(web.texts) == 30)
            assert phone.texts == others_of_phone, "also what the other terminal sent, in order"
            assert web.texts == [text for text in said if text[0] != "w"]
            back = await world.connect("bob.mac.idle")
            await back.until(lambda: len(back.texts) == 45)
            assert back.texts == said
            new = await world.connect("bob.tv.new")
            await new.until(lambda: new.frames)
            histories = [await everything(client, **{"with": "alice"}) for client in (phone, web, back, new)]
            assert histories == [said] * 4
            await asyncio.sleep(0.1)
            assert (await world.node.audit())["balanced"]


@on_the_loop_that_serves
class TestAccepted:
    @pytest.mark.feature("P06", "P28")
    async def test_a_log_that_refuses_is_an_error_and_a_repeat_is_one_message(self, tmp_path: Path) -> None:
        async with world_at(tmp_path) as world:
            for token in ("alice.web.d", "bob.web.d"):
                client = await world.connect(token)
                await client.until(lambda client=client: client.frames)  # type: ignore[misc]
                await client.leave()
            await say(world, 1)
        full = JournalSettings(free_bytes_min=2**62)
        async with world_at(tmp_path, journal=full) as world:
            alice, bob = await world.connect("alice.web.d"), await world.connect("bob.web.d", acks=False)
            refused = await alice.ask("send", to="bob", text="m1", send_id="one")
            assert refused["error"]["code"] == "unavailable"
            await bob.until(lambda: bob.texts)
            assert bob.texts == ["m0"], "what was accepted before is delivered all the same"
            stranger = await world.connect("nobody.web.d")
            assert await stranger.closed() == 1013, "nor can anybody be made a user"
        async with world_at(tmp_path) as world:
            alice, bob = await world.connect("alice.web.d"), await world.connect("bob.web.d")
            answers = [await alice.ask("send", to="bob", text="m1", send_id="one") for _ in range(2)]
            assert answers[0]["message_id"] == answers[1]["message_id"]
            await bob.until(lambda: len(bob.texts) == 2)
            assert bob.texts == ["m0", "m1"] == await everything(bob, **{"with": "alice"})
