"""Actions as Redis functions, and ``recive`` through the action stream: what any Redis client can call."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from valkey import Valkey as Client
from valkey.exceptions import ResponseError

from pixiu.backends.redis.action_functions import NAME, PREFIX, VERSION
from pixiu.im import VERBS
from tests.engines import ValkeyCluster, ValkeyProcess
from tests.node.test_redis_door import ROOT, add, all_done, answers, opened, until

if TYPE_CHECKING:
    from pathlib import Path

Valkey: Any = Client
"""Its answers have no types of their own."""


def result_of(redis: Any, entry: str) -> Any:
    return json.loads(answers(redis)[entry]["result"])


async def functions_loaded(redis: Any) -> None:
    await until(lambda: redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", NAME), "the functions to be loaded")


@pytest.mark.feature("R15", "R10")
async def test_recive_through_the_stream_reads_the_inbox_from_a_cursor(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        for user in "12":
            add(redis, "create_user", user)
        for text in ("one", "two", "three"):
            add(redis, "send", "1", tuid="2", text=text)
        await all_done(redis)
        await node.host.settled()
        first = add(redis, "recive", "2", limit="2")
        newest = add(redis, "recive", "2", start="$")
        await all_done(redis)
        page = result_of(redis, first)
        assert [message["text"] for message in page["messages"]] == ["one", "two"]
        assert page["has_more"] is True
        latest = result_of(redis, newest)
        assert latest["messages"] == []
        add(redis, "send", "1", tuid="2", text="four")
        await all_done(redis)
        await node.host.settled()
        rest = add(redis, "recive", "2", start=page["cursor"])
        new = add(redis, "recive", "2", start=latest["cursor"], platform="web")
        bad = add(redis, "recive", "2", start=str(int(latest["cursor"]) + 99))
        await all_done(redis)
        assert [message["text"] for message in result_of(redis, rest)["messages"]] == ["three", "four"]
        assert [message["text"] for message in result_of(redis, new)["messages"]] == ["four"]
        assert answers(redis)[bad]["error"] == "bad_request"


@pytest.mark.feature("R20")
async def test_each_verb_is_a_function_that_appends_to_the_stream_and_returns_the_entry_id(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    async with opened(tmp_path, server.url) as node:
        await functions_loaded(redis)
        redis.fcall("pixiu_create_user", 1, "g:all", "uid", "1", "name", "Ada")
        redis.fcall("pixiu_create_user", 0, "uid", "2", "name", "Bo")
        sent = redis.fcall("pixiu_send", 1, "g:all", "uid", "1", "tuid", "2", "text", "hello", "send_id", "a-1")
        group = redis.fcall("pixiu_create_group", 1, "g:all", "uid", "1", "params", '{"group": "9", "members": ["2"]}')
        said = redis.fcall("pixiu_gsend", 1, "g:all", "uid", "2", "gid", "9", "text", "good morning")
        refused = redis.fcall("pixiu_gsend", 1, "g:all", "uid", "2", "gid", "404", "text", "nobody")
        await all_done(redis)
        await node.host.settled()
        found = redis.fcall("pixiu_recive", 1, "g:all", "uid", "2")
        await all_done(redis)
        assert result_of(redis, sent)["message_id"]
        assert result_of(redis, group)["group"] == "9"
        texts = [message.get("text") for message in result_of(redis, found)["messages"]]
        assert texts[0] == "hello" and "good morning" in [
            fields.get("text") for _, fields in redis.xrange("gs:9")
        ]  # fmt: skip
        # The answer of one entry, without reading the stream of answers.
        flat = redis.fcall_ro("pixiu_answer", 1, "g:answers", said)
        assert dict(zip(flat[::2], flat[1::2], strict=True))["entry"] == said
        flat = redis.fcall_ro("pixiu_answer", 1, "g:answers", refused)
        assert dict(zip(flat[::2], flat[1::2], strict=True))["error"] == "not_found"
        assert redis.fcall_ro("pixiu_answer", 1, "g:answers", "99999999999999-0") is None


async def test_the_calls_that_the_document_shows_are_answered(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    text = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    calls = [shlex.split(match[1]) for match in re.finditer(r"^\$ redis-cli (FCALL .+)$", text, re.MULTILINE)]
    assert len(calls) >= 2
    async with opened(tmp_path, server.url):
        await functions_loaded(redis)
        for user in "12":
            add(redis, "create_user", user)
        for call in calls:
            entry = redis.execute_command(*call)
            await all_done(redis)
            assert "result" in answers(redis)[entry]
        asked = re.search(r"^\$ redis-cli (FCALL_RO .+) \S+$", text, re.MULTILINE)
        assert asked is not None
        assert redis.execute_command(*shlex.split(asked[1]), entry)[1] == entry


@pytest.mark.feature("R20")
async def test_no_function_writes_anything_but_the_stream(tmp_path: Path, server: ValkeyProcess, redis: Any) -> None:
    async with opened(tmp_path, server.url):
        await functions_loaded(redis)
    before = set(redis.keys())
    assert "g:all" in before and redis.xlen("g:all") == 0
    names = [*VERBS, "ulink", "recive"]
    for name in names:
        entry = redis.fcall(f"pixiu_{name}", 1, "g:all", "uid", "1", "text", "x")
        assert redis.xrange("g:all", entry, entry) == [(entry, {"action": name, "uid": "1", "text": "x"})]
    assert set(redis.keys()) == before
    assert redis.xlen("g:all") == len(names)
    for arguments, complaint in [
        (("pixiu_send", 1, "s:2", "uid", "1"), "the key must be g:all"),
        (("pixiu_send", 2, "g:all", "s:2", "uid", "1"), "one key"),
        (("pixiu_send", 1, "g:all", "uid"), "pairs"),
        (("pixiu_send", 1, "g:all", "uid", "1", "action", "quit"), "action"),
        (("pixiu_send", 1, "g:all", *("f", "x") * 300), "fields"),
        (("pixiu_answer", 1, "g:answers"), "entry id"),
        (("pixiu_answer", 1, "g:answers", "no"), "entry id"),
    ]:
        with pytest.raises(ResponseError, match=complaint):
            redis.fcall(*arguments)
    assert redis.xlen("g:all") == len(names)
    (listed,) = redis.execute_command("FUNCTION", "LIST", "LIBRARYNAME", NAME)
    assert str(VERSION) in NAME and listed


async def test_functions_of_an_older_version_are_replaced_and_of_a_newer_one_stay(
    tmp_path: Path, server: ValkeyProcess, redis: Any
) -> None:
    def library(version: int, *names: str) -> str:
        functions = "".join(
            f"redis.register_function('{name}', function() return 'version {version}' end)\n" for name in names
        )
        return f"#!lua name={PREFIX}{version}\n{functions}"

    redis.execute_command("FUNCTION", "FLUSH")
    redis.function_load(library(0, "pixiu_send", "pixiu_gone"))
    async with opened(tmp_path, server.url):
        await functions_loaded(redis)
        with pytest.raises(ResponseError, match="not found"):
            redis.fcall("pixiu_gone", 0)
    redis.function_delete(NAME)
    redis.function_load(library(VERSION + 1, "pixiu_send"))
    async with opened(tmp_path, server.url):
        entry = add(redis, "create_user", "1")
        await all_done(redis)
        assert "result" in answers(redis)[entry]
        assert redis.fcall("pixiu_send", 0) == f"version {VERSION + 1}"


async def test_a_user_who_may_not_load_functions_gets_a_log_event_and_a_working_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ValkeyProcess(tmp_path / "valkey") as server, Valkey(port=server.port, decode_responses=True) as redis:
        redis.execute_command(
            "ACL", "SETUSER", "pixiu", "on", ">secret", "~*", "&*", "+@all", "-function|load", "+function|list"
        )
        url = f"redis://pixiu:secret@127.0.0.1:{server.port}"
        async with opened(tmp_path / "node", "embedded", redis=url):
            entry = add(redis, "create_user", "1")
            await all_done(redis)
            assert "result" in answers(redis)[entry]
    events = [record for record in caplog.records if record.message == "redis_functions_not_loaded"]
    assert len(events) == 1
    assert "function|load" in events[0].__dict__["reason"]


async def test_functions_work_in_a_redis_cluster(tmp_path: Path) -> None:
    from valkey.cluster import ValkeyCluster as ClusterClient

    client: Any = ClusterClient
    with ValkeyCluster(tmp_path / "valkey") as cluster:
        async with opened(tmp_path / "node", cluster.url):
            for leader in cluster.leaders:
                await until(lambda leader=leader: NAME in str(leader.told("FUNCTION", "LIST")), "functions on a master")
            with client(host="127.0.0.1", port=cluster.leaders[0].port, decode_responses=True) as redis:
                entry = redis.fcall("pixiu_create_user", 1, "g:all", "uid", "1", "name", "Ada")
                await until(lambda: redis.fcall_ro("pixiu_answer", 1, "{g:all}:answers", entry), "the answer")
                flat = redis.fcall_ro("pixiu_answer", 1, "{g:all}:answers", entry)
                assert dict(zip(flat[::2], flat[1::2], strict=True))["action"] == "create_user"
