"""What goes on in a node, over HTTP: numbers that agree with what was done, and topics with their tails."""

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any, cast

import httpx

import pixiu
from pixiu.machines.queue_wire.messages import Message
from pixiu.node.admin.stats import Sample
from pixiu.node.admin.stats_history import HOPS, SAMPLES_MAX, StatsHistory
from pixiu.queue.log import EngineLog
from pixiu.queue.storage.record import Kind
from tests.api.world import World, open_world
from tests.sdk.world import world_at


async def stats_of(world: World) -> dict[str, Any]:
    answer = await world.get("/v1/admin/stats", admin=True)
    assert answer.status_code == 200
    return dict(answer.json())


async def publish(world: World, topic: str, *messages: Message) -> None:
    """Into a topic of the queue's own users, which is made where it is missing."""
    engine, done = world.node.host.engine, asyncio.Event()

    def sequence(batch: Any) -> None:
        found = engine.topics.get(topic.encode())
        if found is None:
            event_id = batch.change(Kind.CREATE, topic.encode(), bytes(8))
            found = engine.topics.create(topic.encode(), event_id, batch.now_ms, 0, batch.changes)
        batch.publish(found, [message.encode() for message in messages])

    log = world.node.host.log
    assert isinstance(log, EngineLog)
    log._submit(sequence, lambda _: done.set(), 64)
    await asyncio.wait_for(done.wait(), 10)


async def test_the_numbers_agree_with_what_was_done(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        before = await stats_of(world)
        bob = await world.node.connect("bob")
        for number in range(3):
            await world.act("alice", "send", {"to": "bob", "text": str(number)})
            await bob.receive(timeout_seconds=5)
        await bob.leave()
        await world.node.audit()
        after = await stats_of(world)
        done = {name: after["counters"][name] - before["counters"][name] for name in after["counters"]}
        assert (done["delivered"], done["acked"], done["logins"], done["kicks"]) == (3, 3, 1, 0)
        assert (done["accepted"], done["actions"]) == (4, 3)  # the first login opens bob's inbox
        hops, bounds = after["hops"], after["hops"]["bounds"]
        for name in ("accept", "apply", "deliver", "ack"):
            assert len(hops[name]["counts"]) == len(bounds) + 1
            assert sum(hops[name]["counts"]) > 0
            assert hops[name]["sum"] > 0
        assert (after["sessions"], after["connections"], after["problems"]) == (0, 0, [])
        assert {lane["name"]: lane["lag"] for lane in after["lanes"]}["inboxes"] == 0
        assert after["version"] == pixiu.__version__
        assert after["process"]["rss_bytes"] > 2**20
        assert after["stores"]["stores_bytes"] > 0
        assert after["uptime_ms"] >= before["uptime_ms"]
        assert "pixiu.main" in {topic["name"] for topic in after["topics"]}
        assert (await world.get("/v1/admin/stats?x=1", admin=True)).status_code == 400


async def test_history_is_bounded_and_has_no_rates_where_nothing_was_observed(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob"):
        client = httpx.AsyncClient(base_url=world.url.replace("ws", "http"))
        token = (await client.post("/v1/dev/token", json={"user": "ops", "admin": True})).json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"

        async def history(after: int | str = 0) -> dict[str, Any]:
            answer = await client.get(f"/v1/admin/stats/history?after={after}")
            return {"status": answer.status_code, **answer.json()}

        first = await history()
        assert first["samples"]["at"] and first["samples"]["accepted"][0] is None, "of one reading there is no rate"
        for number in range(5):
            await alice.send("bob", str(number))
        async with asyncio.timeout(20):
            while not any((await history())["samples"]["accepted"][1:]):
                await asyncio.sleep(0.2)
        found = (await history())["samples"]
        assert {len(column) for column in found.values()} == {len(found["at"])} and found["at"] == sorted(found["at"])
        busy = next(index for index, rate in enumerate(found["accepted"]) if rate)
        assert found["connections"][busy] == found["sessions"][busy] == 2 and found["accept"][busy] > 0
        assert (await history(found["at"][-2]))["samples"]["at"][:1] == found["at"][-1:]
        assert (await history(found["at"][-1] + 10**9))["samples"]["at"] == []
        assert (await history("x"))["status"] == (await history(-1))["status"] == 400
        await client.aclose()


def test_history_keeps_the_newest_samples_and_marks_a_pause() -> None:
    class Moments:
        started_at = 7
        now_us = 0

        def sample(self) -> Sample:
            counters = dict.fromkeys(("accepted", "delivered", "acked"), self.now_us // 1000)
            counters |= {"room_deliveries": 0, "room_messages": 0}
            return Sample(self.now_us // 1000, self.now_us, 1, 1, counters, dict.fromkeys(HOPS, [0] * 47))

    moments = Moments()
    history = StatsHistory(cast("Any", moments))
    for number in range(SAMPLES_MAX + 50):
        moments.now_us += 2_000_000 if number != SAMPLES_MAX else 60_000_000
        history.sample()
    kept = cast("dict[str, list[float | None]]", history.read(0)["samples"])
    assert len(kept["at"]) == SAMPLES_MAX and kept["at"][-1] == moments.now_us // 1000
    assert [rate for rate in kept["accepted"] if rate != 1000] == [None], "a process that was paused observed nothing"


async def test_topics_come_in_pages_with_sizes_and_lags(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for name in ("b", "a/b", "c"):
            await publish(world, name, Message(b"12345"))
        first = (await world.get("/v1/admin/topics?limit=2", admin=True)).json()
        assert ([each["name"] for each in first["topics"]], first["has_more"]) == (["a/b", "b"], True)
        rest = (await world.get("/v1/admin/topics?after=b", admin=True)).json()
        names = [each["name"] for each in rest["topics"]]
        assert (names[0], names == sorted(names), rest["has_more"]) == ("c", True, False)
        assert {"pixiu.main", "pixiu.dlq"} < set(names)
        topic = first["topics"][0]
        assert (topic["bytes"] > 5, topic["subscribers"], topic["is_reserved"]) == (True, [], False)
        await world.act("alice", "send", {"to": "bob", "text": "x"})
        await world.node.audit()
        rest = (await world.get("/v1/admin/topics?after=c", admin=True)).json()
        main = next(each for each in rest["topics"] if each["name"] == "pixiu.main")
        assert [(each["name"], each["lag"]) for each in main["subscribers"]] == [
            ("carrier: rosters", 0), ("carrier: inboxes", 0), ("carrier: timelines", 0),
        ]  # fmt: skip
        for wrong in ("limit=1001", "limit=0", f"after={'x' * 129}", "name=b"):
            assert (await world.get(f"/v1/admin/topics?{wrong}", admin=True)).status_code in (400, 413)


async def test_the_tail_of_a_topic_is_its_newest_messages_and_then_what_follows(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await publish(world, "a/b", *(Message(str(number).encode()) for number in range(30)))
        await publish(world, "a/b", Message(b"\xff\x00" * 4000, ((b"k", b"v"),)))
        page = (await world.get("/v1/admin/topics/a%2Fb/tail?limit=3", admin=True)).json()
        rows = page["messages"]
        assert [b64decode(each["body"]) for each in rows[:2]] == [b"28", b"29"]
        assert (rows[2]["bytes"], rows[2]["is_cut"], rows[2]["headers"]) == (8000, True, {"k": "v"})
        assert len(b64decode(rows[2]["body"])) == 4096
        assert rows[2]["event_id"] == page["topic"]["last_event_id"]
        everything = (await world.get("/v1/admin/topics/a/b/tail?limit=200", admin=True)).json()["messages"]
        assert len(everything) == 31
        await publish(world, "a/b", Message(b"new"))
        after = (
            await world.get(f"/v1/admin/topics/a/b/tail?after={page['topic']['last_event_id']}", admin=True)
        ).json()
        assert [b64decode(each["body"]) for each in after["messages"]] == [b"new"]
        for wrong, status in (("nothing/tail", 404), ("a/b/tail?limit=201", 400), ("a/b/tail?after=-1", 400)):
            assert (await world.get(f"/v1/admin/topics/{wrong}", admin=True)).status_code == status


async def test_the_tail_of_pixius_own_topics_says_who_and_never_what(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.act("alice", "send", {"to": "bob", "text": "a secret"})
        await world.act("alice", "create_group", {"group": "team", "members": ["bob"]})
        await world.act("alice", "gsend", {"group": "team", "text": "a secret"})
        at = world.node.messaging.proxy.context.clock.now_ms() + 300
        await world.act("alice", "schedule", {"to": "bob", "text": "a secret", "at": at})
        page = (await world.get("/v1/admin/topics/pixiu.main/tail", admin=True)).json()
        said = [(each.get("from"), each.get("to"), each.get("group")) for each in page["messages"]]
        assert ("alice", "bob", None) in said
        assert ("alice", None, "team") in said
        assert {each["what"] for each in page["messages"]} >= {"message", "user", "group_info"}
        async with asyncio.timeout(10):
            while not (
                fired := (await world.get("/v1/admin/topics/pixiu.schedule/tail", admin=True)).json()["messages"]
            ):
                await asyncio.sleep(0.02)
        assert (fired[0]["what"], fired[0]["from"], fired[0]["to"]) == ("scheduled", "alice", "bob")
        assert "secret" not in str(page) + str(fired)
        assert all("body" not in each for each in page["messages"] + fired)
