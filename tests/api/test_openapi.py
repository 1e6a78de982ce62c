"""The OpenAPI document: valid, complete, and true of what the application answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from pixiu.api.openapi import READS, document
from pixiu.api.schemas import OF_VERB, PARAMS, REQUIRED, RESULTS, operations
from pixiu.im import VERBS
from tests.api.world import World, open_world

DOCUMENT = document(operations())


def test_it_is_a_valid_openapi_document() -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(json.loads(json.dumps(DOCUMENT)))


def test_every_verb_is_described_and_nothing_else() -> None:
    paths = {path.removeprefix("/v1/actions/") for path in DOCUMENT["paths"] if path.startswith("/v1/actions/")}
    assert paths == set(VERBS)
    assert set(RESULTS) == set(VERBS)
    assert set(REQUIRED) <= set(VERBS)
    assert {name for verb in VERBS.values() for name in verb.params} == set(PARAMS) | {name for _, name in OF_VERB}
    for name, verb in VERBS.items():
        shown = DOCUMENT["paths"][f"/v1/actions/{name}"]["post"]
        schema = shown["requestBody"]["content"]["application/json"]["schema"]
        assert set(schema["properties"]) == verb.params, name
        assert schema["additionalProperties"] is verb.takes_any
        assert shown["summary"].endswith("."), name
        assert ("description" in shown) == verb.is_for_admins


def test_names_are_unique_and_every_reference_leads_somewhere() -> None:
    shown = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in shown]
    assert len(set(names)) == len(names)
    text = json.dumps(DOCUMENT)
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in DOCUMENT["components"]["schemas"]
    assert set(READS) <= DOCUMENT["paths"].keys()
    for operation in shown:
        assert operation["security"] in ([], [{"bearer": []}])
        assert "200" in operation["responses"]


@pytest.mark.parametrize("name", sorted(REQUIRED))
async def test_what_is_required_is_required(tmp_path: Path, name: str) -> None:
    """Every param that is there is right, and without one of them there is no action."""
    good: dict[str, object] = {
        "user": "bob", "group": "g", "to": "bob", "op": "mute", "text": "x", "message_id": "1", "message_ids": ["1"],
        "kind": "read", "at": 2**42, "schedule_id": "1", "q": "x", "provider": "fcm", "token": "t",
    }  # fmt: skip
    async with open_world(tmp_path) as world:
        await world.act("alice", "create_group", {"group": "g", "members": ["bob"]})
        for missing in REQUIRED[name]:
            given = {key: good[key] for key in (*REQUIRED[name], "text") if key in VERBS[name].params}
            if name == "schedule":
                given["to"] = "bob"
            del given[missing]
            answer = await world.act("alice", name, given, admin=True)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), missing


async def test_it_is_served(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        answer = await world.client.get("/openapi.json")
        assert answer.json() == json.loads(json.dumps(DOCUMENT))
        assert answer.headers["content-type"] == "application/json"


SCRIPT: list[tuple[str, str, dict[str, object]]] = [
    ("alice", "user", {}),
    ("alice", "create_user", {"user": "alice", "name": "Alice", "city": "Basel"}),
    ("alice", "contact", {"user": "bob"}),
    ("alice", "block", {"user": "carol"}),
    ("alice", "unblock", {"user": "carol"}),
    ("alice", "register_push", {"provider": "apns", "token": "00aa", "topic": "app"}),
    ("alice", "unregister_push", {}),
    ("alice", "create_group", {"group": "g", "members": ["bob"], "needs_approval": True}),
    ("carol", "join", {"group": "g"}),
    ("alice", "group", {"group": "g"}),
    ("alice", "manage", {"group": "g", "user": "carol", "op": "approve"}),
    ("alice", "manage", {"group": "g", "user": "bob", "op": "mute"}),
    ("alice", "group", {"group": "g"}),
    ("carol", "group", {"group": "g"}),
    ("carol", "quit", {"group": "g"}),
    ("alice", "signal", {"to": "bob", "text": "live"}),
    ("alice", "signal", {"to": "alice", "text": "live"}),
    ("alice", "send", {"to": "bob", "text": "x", "send_id": "1", "fields": {"a": "b"}, "priority": "high"}),
    ("alice", "send", {"to": "bob", "body": "AAAA", "kind": "image", "enc": "aes", "key_print": "-7", "subtype": 3}),
    ("bob", "send", {"to": "alice", "text": "y", "ref": "1"}),
    ("alice", "gsend", {"group": "g", "text": "x"}),
    ("admin", "system", {"to": "bob", "text": "x"}),
    ("admin", "broadcast", {"group": "g", "text": "x"}),
    ("admin", "push", {"uids": ["bob"], "msg_bodies": ["x", {"@type": "t", "value": ""}], "msg_options": 7}),
    ("admin", "ban_user", {"user": "carol"}),
    ("admin", "unban_user", {"user": "carol"}),
    ("admin", "erase_user", {"user": "carol"}),
    ("bob", "contacts", {}),
    ("bob", "history", {}),
    ("bob", "history", {"with": "alice", "limit": 1}),
    ("alice", "history", {"group": "g"}),
    ("bob", "receive", {}),
    ("bob", "sync", {}),
    ("bob", "sync", {"with": {"alice": "0"}, "group": {"g": None}}),
    ("bob", "sync", {"with": {"alice": "0"}, "group": {"g": None}, "limit": 2}),
    ("bob", "read", {"with": "alice"}),
    ("alice", "schedule", {"to": "bob", "text": "later"}),
    ("alice", "scheduled", {}),
    ("alice", "unlink", {"user": "bob"}),
]


async def _found(world: World) -> Any:
    """The answer of a search that finds one, in an index that knows of one message."""
    from pixiu.pipeline.search.embedded import EmbeddedIndex
    from pixiu.pipeline.search.steps import Said, State, Step

    sent = await world.act("bob", "send", {"to": "alice", "text": "needle"})
    names = world.node.messaging.proxy.context.directory
    index = EmbeddedIndex(world.node.host.root)
    said = Said(int(sent.json()["message_id"]), 1, names.user("bob"), names.user("alice"), 0, "needle")
    index.apply(Step([said], (), (), State(1)))
    index.close()
    found = await world.act("alice", "search", {"q": "needle", "limit": 1})
    assert [each["text"] for each in found.json()["messages"]] == ["needle"]
    return found.json()


async def test_every_result_is_as_described(tmp_path: Path) -> None:
    """One life with every action in it; each result is checked against its schema."""
    jsonschema = pytest.importorskip("jsonschema")
    checked: set[str] = set()

    def check(action: str, result: Any) -> None:
        schema = DOCUMENT["paths"][f"/v1/actions/{action}"]["post"]["responses"]["200"]
        whole = {**schema["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(whole).validate(result)
        checked.add(action)

    async with open_world(tmp_path, users=("alice", "bob", "carol")) as world:
        soon = world.node.messaging.proxy.context.clock.now_ms() + 3_600_000
        for user, action, given in SCRIPT:
            params = {**given, "at": soon} if action == "schedule" else given
            answer = await world.act(user, action, params, admin=user == "admin")
            assert answer.status_code == 200, (action, params, answer.text)
            check(action, answer.json())
        said = (await world.act("bob", "history", {"with": "alice", "direction": "forward"})).json()["messages"]
        first = next(each["message_id"] for each in said if each["from"] == "alice")
        check("receipt", (await world.act("bob", "receipt", {"message_ids": [first], "kind": "both"})).json())
        check("history", (await world.act("alice", "history", {"with": "bob"})).json())
        check("recall", (await world.act("alice", "recall", {"message_id": first})).json())
        check("history", (await world.act("alice", "history", {"with": "bob"})).json())
        (waiting,) = (await world.act("alice", "scheduled")).json()["scheduled"]
        dropped = await world.act("alice", "unschedule", {"schedule_id": waiting["schedule_id"]})
        check("unschedule", dropped.json())
        check("search", await _found(world))
        assert checked == set(VERBS)


def test_the_checker_sees_a_result_that_is_not_as_described() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = {**RESULTS["send"], "components": DOCUMENT["components"]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({"message_id": 7, "at": 1})
