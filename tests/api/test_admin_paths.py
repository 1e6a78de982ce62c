"""Looking after a node over HTTP: who may, and what it does."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from pixiu.config import CarrierSettings, HornSettings, Settings
from pixiu.model.errors import CorruptData, Unavailable
from tests.api.world import World, open_world

PATHS = (
    ("GET", "/v1/admin/sessions?user=bob"),
    ("POST", "/v1/admin/kick"),
    ("GET", "/v1/admin/dead-letters"),
    ("POST", "/v1/admin/dead-letters/1/replay"),
    ("GET", "/v1/admin/scheduled"),
    ("GET", "/v1/admin/stats"),
    ("GET", "/v1/admin/stats/history"),
    ("GET", "/v1/admin/topics"),
    ("GET", "/v1/admin/topics/pixiu.main/tail"),
    ("GET", "/v1/admin/audit"),
    ("POST", "/v1/admin/redact"),
    ("GET", "/v1/admin/explain?message_id=1"),
    ("GET", "/v1/admin/cut"),
    ("GET", "/v1/admin/pipeline"),
    ("GET", "/v1/admin/pipeline/report"),
)


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_only_an_admin_looks_after_a_node(tmp_path: Path, method: str, path: str) -> None:
    async with open_world(tmp_path) as world:
        described = (await world.client.get("/openapi.json")).json()["paths"]
        known = {re.sub(r"\{[^}]+\}", "*", each) for each in described if each.startswith("/v1/admin/")}
        checked = {re.sub(r"/1/|/pixiu\.main/", "/*/", each.partition("?")[0]) for _, each in PATHS}
        assert known == checked, "every admin path is checked here"
        content = b'{"user": "bob"}' if path.endswith("kick") else b""
        nobody = await world.client.request(method, path, content=content)
        user = await world.client.request(method, path, content=content, headers=world.bearer("alice"))
        headers = world.bearer("ops", admin=True)
        admin = await world.client.request(method, path, content=content, headers=headers)
        assert (nobody.status_code, user.status_code) == (401, 403)
        assert admin.status_code == (404 if "replay" in path or "explain" in path else 200)


async def test_sessions_are_listed_and_kicked(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        phone = await world.node.connect("bob", platform="ios", device="p")
        web = await world.node.connect("bob", platform="web", device="w")
        listed = (await world.get("/v1/admin/sessions?user=bob", admin=True)).json()["sessions"]
        assert [(each["platform"], each["device"]) for each in listed] == [("web", "w"), ("ios", "p")]
        headers = world.bearer("ops", admin=True)
        one = {"user": "bob", "session_id": listed[1]["session_id"], "reason": "lost phone"}
        answer = await world.client.post("/v1/admin/kick", json=one, headers=headers)
        assert answer.json() == {"kicked": 1}
        assert (phone.closed, web.closed) == ("lost phone", None)
        assert (await world.client.post("/v1/admin/kick", json=one, headers=headers)).json() == {"kicked": 0}
        everyone = await world.client.post("/v1/admin/kick", json={"user": "bob"}, headers=headers)
        assert (everyone.json(), web.closed) == ({"kicked": 1}, "kicked")
        for wrong, status in (({}, 400), ({"user": "zoe"}, 404), ({"user": "bob", "session": "1"}, 400)):
            assert (await world.client.post("/v1/admin/kick", json=wrong, headers=headers)).status_code == status


async def test_sessions_of_all_are_listed_in_pages_newest_first(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for number in range(3):
            await world.node.connect(
                ("alice", "bob")[number % 2], platform=("ios", "ios", "web")[number], device=str(number)
            )
        page = (await world.get("/v1/admin/sessions?limit=2", admin=True)).json()
        assert [(each["user"], each["device"]) for each in page["sessions"]] == [("alice", "2"), ("bob", "1")]
        assert page["has_more"] is True
        last = page["sessions"][-1]["session_id"]
        rest = (await world.get(f"/v1/admin/sessions?limit=2&after={last}", admin=True)).json()
        assert ([each["device"] for each in rest["sessions"]], rest["has_more"]) == (["0"], False)
        own = (await world.get(f"/v1/admin/sessions?user=alice&after={last}", admin=True)).json()
        assert [each["device"] for each in own["sessions"]] == ["0"]
        for wrong, status in (("user=zoe", 404), ("limit=1001", 400), ("limit=0", 400), ("after=x", 400)):
            assert (await world.get(f"/v1/admin/sessions?{wrong}", admin=True)).status_code == status


async def dead_letter(world: World) -> dict[str, object]:
    """A notification to a server that is not there, which is given up at once."""
    await (await world.node.connect("bob", platform="ios")).leave()
    await world.act("alice", "send", {"to": "bob", "text": "hello"})
    async with asyncio.timeout(20):
        while True:
            page = (await world.get("/v1/admin/dead-letters", admin=True)).json()
            if page["dead_letters"]:
                found: dict[str, object] = page["dead_letters"][0]
                return found
            await asyncio.sleep(0.02)


@pytest.mark.feature("P11")
async def test_a_dead_letter_is_listed_with_its_reason_and_given_back_once(tmp_path: Path) -> None:
    horn = HornSettings(provider="webhook", webhook_url="http://127.0.0.1:9/", collapse_ms=0)
    settings = Settings(horn=horn, carrier=CarrierSettings(task_retries_max=0))
    async with open_world(tmp_path, settings=settings) as world:
        letter = await dead_letter(world)
        assert (letter["what"], letter["user"], letter["platforms"]) == ("notify", "bob", ["ios"])
        assert letter["reason"]
        assert "hello" not in str(letter)
        headers = world.bearer("ops", admin=True)
        path = f"/v1/admin/dead-letters/{letter['id']}/replay"
        assert (await world.client.post(path, headers=headers)).status_code == 200
        assert (await world.client.post(path, headers=headers)).status_code == 409
        assert (await world.client.post(path.replace(str(letter["id"]), "7"), headers=headers)).status_code == 404
        assert (await world.client.post(path.replace(str(letter["id"]), "x"), headers=headers)).status_code == 400
        async with asyncio.timeout(20):  # it fails again, and is another dead letter
            while (again := await dead_letter(world))["id"] == letter["id"]:
                await asyncio.sleep(0.02)
        after = (await world.get(f"/v1/admin/dead-letters?after={again['id']}", admin=True)).json()
        assert all(int(each["id"]) > int(str(again["id"])) for each in after["dead_letters"])


async def test_scheduled_sends_of_all_are_listed_without_what_they_say(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        at = world.node.messaging.proxy.context.clock.now_ms() + 3_600_000
        for text in ("secret 1", "secret 2"):
            await world.act("alice", "schedule", {"to": "bob", "text": text, "at": at})
        page = (await world.get("/v1/admin/scheduled?limit=1", admin=True)).json()
        (first,) = page["scheduled"]
        assert (first["from"], first["to"], first["at"], page["has_more"]) == ("alice", "bob", at, True)
        rest = (await world.get(f"/v1/admin/scheduled?after={first['schedule_id']}", admin=True)).json()
        assert (len(rest["scheduled"]), rest["has_more"]) == (1, False)
        assert "secret" not in str(page) + str(rest)


async def test_topics_and_the_audit(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.act("alice", "send", {"to": "bob", "text": "x"})
        topics = (await world.get("/v1/admin/topics", admin=True)).json()["topics"]
        assert {"pixiu.main", "pixiu.dlq"} <= {each["name"] for each in topics}
        report = (await world.get("/v1/admin/audit", admin=True)).json()
        assert (report["balanced"], report["accepted"], report["lost"]) == (True, 1, [])
        later = (await world.get(f"/v1/admin/audit?from={2**40 * 2}", admin=True)).json()
        assert later["accepted"] == 0
        assert (await world.get("/v1/admin/audit?since=1", admin=True)).status_code == 400
        nothing = await world.get("/v1/admin/audit?from=5&to=5", admin=True)
        assert (nothing.status_code, "from must be before to" in nothing.text) == (400, True)


async def test_a_message_is_explained(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        phone = await world.node.connect("bob", platform="ios")
        sent = (await world.act("alice", "send", {"to": "bob", "text": "x"})).json()
        await phone.receive(timeout_seconds=10)
        found = (await world.get(f"/v1/admin/explain?message_id={sent['message_id']}", admin=True)).json()
        assert (found["message_id"], found["from"], found["to"]) == (sent["message_id"], "alice", "bob")
        assert [each["user"] for each in found["inboxes"]] == ["bob"]
        assert [each["hop"] for each in found["hops"]] == ["write", "flush", "store"]
        for query, status in (("", 400), ("?message_id=x", 400), ("?message_id=0", 400), ("?message_id=5", 404)):
            assert (await world.get(f"/v1/admin/explain{query}", admin=True)).status_code == status


async def test_one_audit_at_a_time(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.act("alice", "send", {"to": "bob", "text": "x"})
        answers = await asyncio.gather(*(world.get("/v1/admin/audit", admin=True) for _ in range(3)))
        assert sorted(each.status_code for each in answers) == [200, 503, 503]
        assert {each.headers.get("retry-after") for each in answers} == {None, "5"}
        assert (await world.get("/v1/admin/audit", admin=True)).status_code == 200


@pytest.mark.feature("P28")
async def test_a_node_whose_store_is_down_is_not_ready_and_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ready() -> int:
        return (await world.client.get("/readyz")).status_code

    def down(*_: object, **__: object) -> None:
        raise Unavailable("the store does not answer")

    settings = Settings(carrier=CarrierSettings(lane_retry_ms=20))
    async with open_world(tmp_path, settings=settings) as world:
        assert await ready() == 200
        inboxes = type(world.node.messaging.stores.inboxes)
        with monkeypatch.context() as broken:
            broken.setattr(inboxes, "add", down)
            # What is in the log is accepted, whatever becomes of the stores.
            assert (await world.act("alice", "send", {"to": "bob", "text": "x"})).status_code == 200
            async with asyncio.timeout(10):
                while await ready() != 503:
                    await asyncio.sleep(0.01)
            answer = (await world.client.get("/readyz")).json()
            assert "the store does not answer" in answer["reasons"]["messaging"]
            assert (await world.client.get("/healthz")).status_code == 200
        async with asyncio.timeout(10):
            while await ready() != 200:
                await asyncio.sleep(0.01)
        report = (await world.get("/v1/admin/audit", admin=True)).json()
        assert (report["balanced"], report["waiting"]) == (True, 2)


async def test_health_readiness_and_metrics_as_before(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        health = await world.client.get("/healthz")
        assert (health.status_code, health.content) == (200, b'{"status": "ok"}\n')
        ready = await world.client.get("/readyz")
        assert (ready.status_code, ready.content) == (200, b'{"ready": true, "reasons": {}}\n')
        world.down["stores"] = "the disk is gone"
        ready = await world.client.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, {"stores": "the disk is gone"})
        metrics = await world.client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=")
        assert b"pixiu_build_info" in metrics.content
        front = await world.client.get("/")
        assert (front.text, front.headers["content-type"]) == ("Pixiu is here.\n", "text/plain; charset=utf-8")
        assert (await world.client.post("/healthz")).status_code == 405


async def test_what_waits_is_told_to_the_last_entry(tmp_path: Path) -> None:
    from pixiu.pipeline.cut import read_cut

    async with open_world(tmp_path) as world:
        for number in range(3):
            await world.act("alice", "send", {"to": "bob", "text": str(number)})
        answer = await world.get("/v1/admin/cut", admin=True)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        cut = read_cut(lines)
        books = (await world.get("/v1/admin/audit", admin=True)).json()
        assert (cut.event_id, sum(len(entries) for _, entries, _ in cut.inboxes.values())) == (books["cut"], 6)
        assert not any(missing for _, _, missing in cut.inboxes.values())
        for cropped in (lines[:-1], lines[:1], [], [lines[0], lines[-1]]):
            with pytest.raises(CorruptData, match="not told to its end"):
                read_cut(cropped)


async def test_a_node_without_a_pipeline_says_that_it_is_off(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        assert (await world.get("/v1/admin/pipeline", admin=True)).json()["state"] == "off"
        assert "pixiu pipeline report" in (await world.get("/v1/admin/pipeline/report", admin=True)).json()["problem"]
