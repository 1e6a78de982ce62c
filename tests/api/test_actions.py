"""Every action over HTTP: the same params, the same results, errors as statuses."""

import asyncio
import json
from pathlib import Path

import pytest

from pixiu.config import MessagingSettings, Settings
from pixiu.config.security import SecuritySettings
from pixiu.model.errors import CorruptData, PixiuError, Unavailable
from tests.api.world import make_api, open_world

EMPTY = {"contacts": [], "others": [], "has_more": False, "cursor": None}


@pytest.mark.feature("R18")
async def test_what_is_sent_over_http_is_what_is_read(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        sent = await world.act("alice", "send", {"to": "bob", "text": "hello 貔貅", "send_id": "1"})
        assert sent.status_code == 200
        page = (await world.act("bob", "history", {"with": "alice"})).json()
        assert [(each["message_id"], each["text"]) for each in page["messages"]] == [
            (sent.json()["message_id"], "hello 貔貅")
        ]
        assert (await world.act("bob", "read", {"with": "alice"})).json() == {"unread": 0}
        # And what the program itself would be told.
        assert page == await world.node.history("bob", with_="alice")


async def test_a_repeat_of_a_send_gives_the_first_answer(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        message = {"to": "bob", "text": "once", "send_id": "abc"}
        first = await world.act("alice", "send", message)
        again = await world.act("alice", "send", message)
        both = await asyncio.gather(*(world.act("alice", "send", {**message, "send_id": "x"}) for _ in range(8)))
        assert again.content == first.content
        assert len({each.content for each in both}) == 1
        # HTTP's own word for it.
        keyed = await world.act("alice", "send", {"to": "bob", "text": "once"}, Idempotency_Key="abc")
        assert keyed.content == first.content
        page = (await world.act("bob", "history", {"with": "alice"})).json()
        assert len(page["messages"]) == 2


async def test_who_acts_comes_from_the_token_alone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.act("alice", "send", {"to": "bob", "text": "x"})
        for more in ({"from": "bob"}, {"actor": "bob"}, {"is_admin": True}):
            assert (await world.act("alice", "send", {"to": "bob", "text": "x", **more})).status_code == 400
        page = (await world.act("bob", "history", {"with": "alice"})).json()
        assert {each["from"] for each in page["messages"]} == {"alice"}


@pytest.mark.parametrize(
    ("action", "params", "status", "code"),
    [
        ("send", {"to": "bob"}, 400, "bad_request"),
        ("send", {"to": "bob", "text": 7}, 400, "bad_request"),
        ("send", {"to": "bob", "text": "x", "colour": "red"}, 400, "bad_request"),
        ("push", {"uids": ["bob"], "msg_bodies": ["x"]}, 403, "forbidden"),
        ("system", {"to": "bob", "text": "x"}, 403, "forbidden"),
        ("send", {"to": "nobody", "text": "x"}, 404, "not_found"),
        ("fly", {}, 404, "not_found"),
        ("create_user", {"user": "bob"}, 409, "conflict"),
        ("send", {"to": "bob", "text": "x" * 70_000}, 413, "too_large"),
    ],
)
async def test_an_error_has_a_fitting_status_and_one_shape(
    tmp_path: Path, action: str, params: dict[str, object], status: int, code: str
) -> None:
    async with open_world(tmp_path) as world:
        before = world.node.messaging.log.committed
        answer = await world.act("alice", action, params)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()) == {"error"} and set(answer.json()["error"]) == {"code", "message"}
        assert world.node.messaging.log.committed == before


async def test_who_sends_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    settings = Settings(messaging=MessagingSettings(sends_per_second=1, send_burst=2))
    async with open_world(tmp_path, settings=settings) as world:
        answers = [await world.act("alice", "send", {"to": "bob", "text": "x"}) for _ in range(3)]
        assert [each.status_code for each in answers] == [200, 200, 429]
        assert answers[2].headers["retry-after"] == "1"
        assert answers[2].json()["error"]["code"] == "rate_limited"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unavailable("the disk is full", retry_after_ms=2500), 503, "unavailable"),
        (CorruptData("segment 7 of /var/lib is broken"), 500, "internal"),
        (ZeroDivisionError("a bug"), 500, "internal"),
    ],
)
async def test_what_goes_wrong_inside_is_not_told_outside(
    tmp_path: Path, error: Exception, status: int, code: str
) -> None:
    def act(actor: object, action: str, params: object, done: object) -> None:
        assert callable(done)
        if not isinstance(error, PixiuError):
            raise error
        done(error)

    async with open_world(tmp_path) as world:
        world.api._bridge._act = act
        answer = await world.act("alice", "contacts")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        if status == 500:
            assert answer.json()["error"]["message"] == "the request failed; the log says why"
        else:
            assert answer.headers["retry-after"] == "3"


async def test_reading_has_paths_of_its_own(tmp_path: Path) -> None:
    async with open_world(tmp_path, users=("alice", "bob", "a/b ü")) as world:
        await world.act("alice", "send", {"to": "bob", "text": "x"})
        await world.act("alice", "create_group", {"group": "g", "members": ["bob"]})
        assert (await world.get("/v1/users/bob")).json()["user"] == "bob"
        assert (await world.get("/v1/users/a%2Fb%20%C3%BC")).json()["user"] == "a/b ü"
        assert (await world.get("/v1/groups/g")).json()["member_count"] == 2
        assert [row["group"] for row in (await world.get("/v1/contacts")).json()["contacts"]] == ["g"]
        assert len((await world.get("/v1/history?with=bob&limit=1")).json()["messages"]) == 1
        assert (await world.get("/v1/scheduled")).json() == {"scheduled": [], "has_more": False, "cursor": None}
        for path, status in (
            ("/v1/users/zoe", 404),
            ("/v1/history?with=bob&with=alice", 400),
            ("/v1/history?wiht=bob", 400),
            ("/v1/history?limit=x", 400),
            ("/v1/users/", 400),
        ):
            assert (await world.get(path)).status_code == status, path
        head = await world.client.head("/v1/contacts", headers=world.bearer("alice"))
        assert (head.status_code, head.content) == (200, b"")


async def test_without_a_good_token_there_is_nothing(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        good = world.bearer("alice")["Authorization"]
        paths = ["/v1/contacts", "/v1/users/bob", "/v1/history", "/v1/admin/topics", "/v1/admin/audit"]
        for path in paths:
            for header in ("", "Bearer", "Bearer x.y.z", "Basic YTpi", good[:-3], good.replace("Bearer", "Basic")):
                headers = {"Authorization": header} if header else {}
                answer = await world.client.get(path, headers=headers)
                assert answer.status_code == 401, (path, header)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/v1/actions/send", "/v1/push", "/v1/actions/nothing", "/v1/admin/kick"):
            assert (await world.client.post(path, json={})).status_code == 401
        # A token in the address would be in every log on the way.
        token = good.removeprefix("Bearer ")
        assert (await world.client.get(f"/v1/contacts?token={token}")).status_code == 401


async def test_a_token_of_someone_who_does_not_exist_is_no_token(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        answer = await world.act("zoe", "contacts")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
        # An admin needs no profile, and is then nobody who could send.
        assert (await world.act("zoe", "send", {"to": "bob", "text": "x"}, admin=True)).status_code == 403
        assert (await world.act("zoe", "user", {"user": "bob"}, admin=True)).status_code == 200


async def test_in_development_users_are_created_on_first_use(tmp_path: Path) -> None:
    async with open_world(tmp_path, creates_users=True, users=()) as world:
        assert (await world.act("carol", "send", {"to": "dave", "text": "x"})).status_code == 200
        assert (await world.get("/v1/users/dave", "carol")).json()["user"] == "dave"


async def test_an_action_that_is_not_answered_is_given_up(tmp_path: Path) -> None:
    async with open_world(tmp_path, security=SecuritySettings(request_timeout_ms=50)) as world:
        later: list[object] = []
        world.api._bridge._act = lambda actor, action, params, done: later.append(done)
        answer = await world.act("alice", "contacts")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert "may still be done" in answer.text
        assert world.api.counters.timeouts == 1
        (done,) = later
        assert callable(done)
        done({})  # nobody waits any more, and nothing happens


async def test_an_action_of_another_role_is_reached_and_documented(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        from pixiu.api.schemas import Operation

        shown = Operation("Search.", {"type": "object"}, {"type": "object"})
        api = make_api(world.node, world.tokens, SecuritySettings(), {}, more_actions={"search": shown})
        assert "/v1/actions/search" in api.document["paths"]
        assert "search" in api.operations


async def test_params_are_a_json_object_or_nothing(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        headers = world.bearer("alice")
        empty = await world.client.post("/v1/actions/contacts", headers=headers)
        assert (empty.status_code, json.loads(empty.content)) == (200, EMPTY)
        for body in (b"[]", b"7", b'"x"', b"null", b"{", b'{"a":}', b"\xff\xfe", b"{} {}", b'{"a": NaN}', b"{'a': 1}"):
            answer = await world.client.post("/v1/actions/contacts", content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), body
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        by_curl = await world.client.post("/v1/actions/contacts", content=b"{}", headers={**headers, **form})
        assert by_curl.status_code == 200, "curl -d calls JSON a form"
        by_a_page = await world.client.post("/v1/actions/contacts", content=b"{}", headers=form)
        assert by_a_page.status_code in (400, 401)
        text = {**headers, "Content-Type": "text/plain"}
        assert (await world.client.post("/v1/actions/contacts", content=b"{}", headers=text)).status_code == 400
