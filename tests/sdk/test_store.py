"""The local store: messages, cursor and gaps over restarts of the client, and seed 004's cases of catching up."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.model.errors import ConfigError, Conflict, Unavailable
from pixiu.sdk import Client, Gap, GapEvent, Place, Store, catching_up
from tests.sdk.world import cut, eventually, take, told, wanted, world_at

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.sdk import Message
    from tests.sdk.world import World


async def say(client: Client, first: int, end: int, *, to: str = "bob", group: str = "") -> list[int]:
    sent = []
    for number in range(first, end):
        if group:
            sent.append((await client.gsend(group, f"m{number}")).message_id)
        else:
            sent.append((await client.send(to, f"m{number}")).message_id)
    return sent


def texts(messages: list[Message] | tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages if message.kind == "text"]


async def lose(world: World, alice: Client, path: Path, *, count: int, group: str = "") -> list[int]:
    """Bob's store falls behind his inbox: another installation on the same platform takes and acks what comes."""
    await eventually(lambda: not world.waiting("bob"))
    async with world.connect("bob", device="two") as two:
        taking = asyncio.create_task(take(two, count, 60))
        sent = await say(alice, 100, 100 + count, group=group)
        await taking
    await eventually(lambda: not world.waiting("bob"))
    return sent


@pytest.mark.feature("B20")
async def test_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    store = tmp_path / "bob.db"
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        sent = await say(alice, 0, 6)
        async with world.connect("bob", store=store) as bob:
            assert texts(await take(bob, 2)) == ["m0", "m1"]
            await eventually(lambda: not world.waiting("bob"))  # acked as soon as it is stored
            own = await bob.send("alice", "mine")
            cursor = bob.cursor
        offline = Store(store)
        assert offline.cursor == int(cursor) and offline.user == "bob"
        page = offline.history(with_="alice", limit=3)
        assert [message.message_id for message in page.messages] == [own.message_id, sent[5], sent[4]] and page.has_more
        assert texts(offline.history(with_="alice", before=sent[1]).messages) == ["m0"]
        assert offline.conversations() == {Place("with", "alice"): own.message_id}
        offline.close()
        await alice.send("bob", "while away")
        async with world.connect("bob", store=store) as bob:
            assert texts(await take(bob, 5)) == ["m2", "m3", "m4", "m5", "while away"], "what was stored and not read"
            with pytest.raises(TimeoutError):
                await bob.next_message(0.1)
        async with world.connect("bob", store=store, patience_seconds=None) as bob:
            assert texts(bob.local.history(with_="alice").messages)[0] == "while away"


@pytest.mark.feature("B15")
async def test_b15_a_short_private_gap_is_closed_forward_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "bob.db"
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("carl") as carl:
        before = await say(alice, 0, 3)
        async with world.connect("bob", device="one", store=store) as bob:
            await take(bob, 3)
        missed = await lose(world, alice, store, count=230)
        async with world.connect("bob", device="two") as two:  # a stranger, read elsewhere: on no list
            missed += await say(carl, 0, 1)
            await take(two, 1)
            await two.read("carl")
        asked: list[str] = []
        real = Client.act

        async def act(self: Client, action: str, **params: Any) -> dict[str, Any]:
            asked.append(action)
            return await real(self, action, **params)

        monkeypatch.setattr(Client, "act", act)
        async with world.connect("bob", device="one", store=store) as bob:
            late = await take(bob, 231)
            assert all(message.is_late for message in late)
            assert [message.message_id for message in late] == missed, "forward, from the last one here to the end"
            held = {message.message_id for message in bob.local.history(limit=1_000).messages}
            assert held == {*before, *missed} and not bob.gaps, "the local set is the server's set"
            assert asked.count("history") + asked.count("sync") <= 3 + 1, "a request per page, and one"
            after = await say(alice, 0, 1)
            assert [message.message_id for message in await take(bob, 1)] == after


async def test_a_gap_that_cannot_be_closed_now_is_closed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is busy while a client catches up; it asks again, also after a restart with its store."""
    monkeypatch.setattr(catching_up, "AGAIN_SECONDS", 0.05)
    store = tmp_path / "bob.db"
    real = Client.act
    refusals: list[str] = []

    async def busy(self: Client, action: str, **params: Any) -> dict[str, Any]:
        if action == "history" and self.name == "bob" and len(refusals) < 2:
            refusals.append(action)
            raise Unavailable("the stores are behind the log")
        return await real(self, action, **params)

    async def never(self: Client, action: str, **params: Any) -> dict[str, Any]:
        if action == "history" and self.name == "bob":
            refusals.append(action)
            raise Unavailable("the stores are behind the log")
        return await real(self, action, **params)

    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        await say(alice, 0, 3)
        async with world.connect("bob", device="one", store=store) as bob:
            await take(bob, 3)
        missed = await lose(world, alice, store, count=5)
        monkeypatch.setattr(Client, "act", never)
        async with world.connect("bob", device="one", store=store) as bob:
            after = await say(alice, 0, 1)
            assert [message.message_id for message in await take(bob, 1)] == after, "the cursor goes on"
            await eventually(lambda: refusals)
        refusals.clear()
        monkeypatch.setattr(Client, "act", busy)
        async with world.connect("bob", device="one", store=store) as bob:
            late = await take(bob, 5)
            assert [message.message_id for message in late] == missed and len(refusals) == 2
            await eventually(lambda: bob.local.owed is None)


@pytest.mark.feature("B16")
async def test_b16_a_long_private_gap_is_closed_backward_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "bob.db"
    monkeypatch.setattr(catching_up, "FORWARD_MS", 0)
    async with world_at(tmp_path, messaging={"forward_gap_ms": 1}) as world, world.connect("alice") as alice:
        before = await say(alice, 0, 3)
        async with world.connect("bob", device="one", store=store) as bob:
            await take(bob, 3)
        missed = await lose(world, alice, store, count=230)
        async with world.connect("bob", device="one", store=store) as bob:
            newest = await take(bob, 100)
            assert [message.message_id for message in newest] == missed[130:], "what is newest is seen first"
            assert bob.gaps == [Gap(Place("with", "alice"), before[2], missed[130])]
            pages = [page async for page in bob.close_gaps(with_="alice")]
            assert [len(page.messages) for page in pages] == [100, 30] and not bob.gaps
            held = {message.message_id for message in bob.local.history(with_="alice", limit=1_000).messages}
            assert held == {*before, *missed}


@pytest.mark.feature("B16")
async def test_b16_a_new_device_begins_with_the_newest_page_and_knows_its_gap(tmp_path: Path) -> None:
    store = tmp_path / "bob.db"
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        sent = await say(alice, 0, 230)
        async with world.connect("bob") as bob:  # another device has had it all
            await bob.contact("alice")
            await take(bob, 230)
        async with world.connect("bob", platform="tablet", store=store) as tablet:
            await tablet.catch_up()
            newest = await take(tablet, 100)
            assert [message.message_id for message in newest] == sent[130:], "the newest page, after one answer"
            assert tablet.gaps == [Gap(Place("with", "alice"), 0, sent[130])]
            assert (await told(tablet, GapEvent)).gap == tablet.gaps[0]
        async with world.connect("bob", platform="tablet", store=store) as tablet:
            assert tablet.gaps == [Gap(Place("with", "alice"), 0, sent[130])], "over a restart"
            async for page in tablet.close_gaps(with_="alice"):
                assert texts(page.messages)[0] == "m129"
                break
            assert tablet.gaps == [Gap(Place("with", "alice"), 0, sent[30])], "page by page"
        async with world.connect("bob", platform="tablet", store=store) as tablet:
            pages = [page async for page in tablet.close_gaps()]
            assert [len(page.messages) for page in pages] == [30] and not tablet.gaps
            held: list[int] = []
            before = 0
            while True:
                page = tablet.local.history(with_="alice", before=before)
                held += [message.message_id for message in page.messages]
                before = page.min
                if not page.has_more:
                    break
            assert held[::-1] == sent


@pytest.mark.feature("B17")
async def test_b17_a_group_begins_with_the_newest_page_over_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "bob.db"
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        async with world.connect("bob", device="one", store=store) as bob:
            await alice.create_group("team", name="Team", members=["bob"])
            before = await say(alice, 0, 3, group="team")
            await wanted(bob, lambda message: message.text == "m2")
        missed = await lose(world, alice, store, count=130, group="team")
        async with world.connect("bob", device="one", store=store) as bob:
            late = await take(bob, 100)
            assert [message.message_id for message in late] == missed[30:], "backward: the newest page"
            gap = (await told(bob, GapEvent)).gap
            assert (
                gap.place == Place("group", "team") and gap.before == missed[30] and before[0] <= gap.after <= before[2]
            )
            await say(alice, 0, 1, group="team")
            await take(bob, 1)
        async with world.connect("bob", device="one", store=store) as bob:
            assert bob.gaps == [gap], "stored: a view shows 'load more' there"
            pages = [page async for page in bob.close_gaps(group="team")]
            assert [texts(page.messages) for page in pages] == [[f"m{number}" for number in range(129, 99, -1)]]
            assert not bob.gaps
            held = {message.message_id for message in bob.local.history(group="team", limit=1000).messages}
            assert {*before, *missed} <= held


async def test_gaps_that_are_closed_by_themselves(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        sent = await say(alice, 0, 130)
        async with world.connect("bob") as bob:
            await bob.contact("alice")
            await take(bob, 130)
        async with world.connect("bob", platform="tablet", gaps="close") as tablet:
            await tablet.catch_up()
            late = await take(tablet, 130)
            assert sorted(message.message_id for message in late) == sent and not tablet.gaps
            assert all(message.is_late for message in late)


async def test_cut_while_storing_shows_everything_once(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        shown: list[str] = []
        talking = asyncio.create_task(say(alice, 0, 120))
        while len(shown) < 120:
            async with world.connect("bob", store=tmp_path / "bob.db") as bob:
                try:
                    while len(shown) < 120:
                        shown.append((await bob.next_message(0.2)).text)
                        if len(shown) % 17 == 0:
                            cut(bob)
                        if len(shown) % 50 == 0:
                            break  # a new life of the program
                except TimeoutError:
                    pass
        await talking
        assert shown == [f"m{number}" for number in range(120)]


async def test_receipts_and_recalls_reach_the_store(tmp_path: Path) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice", store=tmp_path / "alice.db") as alice,
        world.connect("bob", store=tmp_path / "bob.db") as bob,
    ):
        sent = await alice.send("bob", "secret")
        await take(bob, 1)
        await bob.receipt([sent.message_id], "both")
        await eventually(lambda: alice.local.history(with_="bob").messages[0].read_at)
        await alice.recall(sent.message_id)
        await eventually(lambda: any(each.is_recalled for each in bob.local.history(with_="alice").messages))
        assert b"secret" not in b"".join(
            row[0] for row in bob.local._db.execute("SELECT content FROM messages").fetchall()
        )


async def test_a_store_is_one_user_s_and_one_program_s(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        async with world.connect("bob", store=tmp_path / "s.db") as bob:
            with pytest.raises(Unavailable, match="locked"):
                Store(tmp_path / "s.db")
            with pytest.raises(Conflict, match="'bob'"):
                bob.local.claim("carl")
        with pytest.raises(Conflict, match="'bob'"):
            async with world.connect("carl", store=tmp_path / "s.db"):
                pass
        async with world.connect("bob") as plain:
            with pytest.raises(ConfigError, match="no store"):
                plain.local.history()
    (tmp_path / "no.db").write_bytes(b"this is not a database, and it is long enough to be seen as such" * 20)
    with pytest.raises(Unavailable, match="cannot be opened"):
        Store(tmp_path / "no.db")


async def test_a_store_that_cannot_be_written_acks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("bob", store=tmp_path / "bob.db") as bob,
    ):
        real = bob.local._arrived
        failures: list[object] = []

        def full(*args: object, **params: object) -> int:
            if len(failures) < 2:
                failures.append(args)
                raise sqlite3.OperationalError("database or disk is full")
            return real(*args, **params)  # type: ignore[arg-type]

        monkeypatch.setattr(bob.local, "_arrived", full)
        await say(alice, 0, 3)
        assert texts(await take(bob, 3)) == ["m0", "m1", "m2"] and len(failures) == 2


async def test_a_store_that_cannot_be_written_undoes_nothing_that_the_server_has(tmp_path: Path) -> None:
    """A full disk: a send that was accepted is no error, or the program would send it twice."""
    async with (
        world_at(tmp_path) as world,
        world.connect("alice") as alice,
        world.connect("bob", store=tmp_path / "bob.db") as bob,
    ):
        await say(alice, 0, 1)
        (message,) = await take(bob, 1)
        bob.local._db.execute("PRAGMA query_only = ON")
        sent = await bob.send("alice", "said once")
        await bob.recall(sent.message_id)
        await alice.receipt([sent.message_id])
        message.ack()
        bob.local._db.execute("PRAGMA query_only = OFF")
        await say(alice, 1, 2)
        assert texts(await take(bob, 1)) == ["m1"]
    message.ack()  # the store is closed


def test_a_store_keeps_the_newest_that_were_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db", messages_max=10)
    store.claim("bob")
    for number in range(1, 31):
        store.arrived([({"message_id": str(number), "from": "alice", "to": "bob", "at": 1, "text": "x"}, True)], number)
        if number <= 25:
            store.took(number)
    kept = [message.message_id for message in store.history(with_="alice").messages]
    assert kept == list(range(30, 20, -1))
    for number in range(31, 51):  # nobody reads: nothing unread is thrown away
        store.arrived([({"message_id": str(number), "from": "alice", "to": "bob", "at": 1, "text": "x"}, True)], number)
    assert store.waiting(25) == 25
    store.close()
