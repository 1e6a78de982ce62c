"""A node with its timelines in Cassandra: restarts, an engine that was lost, rebuilds, and moves between engines."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pixiu
from pixiu.config import EngineSettings, Settings
from pixiu.model.errors import Conflict, CorruptData, Unavailable
from pixiu.node import audit_stopped
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import open_stores
from pixiu.pipeline.filling import Filled, fill_engine
from pixiu.ports.stores import Lane
from tests.e2e.test_surfaces import Served
from tools.cassandra_server import CassandraServer

pytestmark = pytest.mark.engines

Cql = Callable[..., list[Any]]
TABLES = ("pchat", "gchat", "pixiu_topic")


def address(server: CassandraServer, keyspace: str) -> str:
    return f"cassandra://{server.address}/{keyspace}?timeout_ms=10000"


def settings(server: CassandraServer, keyspace: str) -> Settings:
    return Settings(engines=EngineSettings(timelines=address(server, keyspace)))


def rows(cql: Cql, keyspace: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, in order."""
    return {
        table: sorted((tuple(row) for row in cql(f"SELECT * FROM {keyspace}.{table}")), key=repr) for table in TABLES
    }


async def talk(node: EmbeddedNode) -> list[str]:
    """A bit of everything that timelines keep. Returns the ids of what Alice said to Bob."""
    for user in ("alice", "bob", "carol"):
        await node.create_user(user)
    await node.create_group("alice", group="team", name="Team", members=["bob", "carol"])
    said = [str((await node.send("alice", to="bob", text=f"to bob {n}"))["message_id"]) for n in range(12)]
    for number in range(7):
        await node.act("bob", "gsend", group="team", text=f"to all {number}")
        await node.send("carol", to="alice", text=f"from carol {number}", send_id=str(number))
    await node.act("bob", "receipt", message_ids=said[:3], kind="read")
    await node.act("alice", "recall", message_id=said[4])
    await node.act("bob", "read", **{"with": "alice"})
    return said


async def texts(node: EmbeddedNode, user: str, **place: str) -> list[Any]:
    page = await node.act(user, "history", limit=100, **place)
    return [message.get("text") for message in page["messages"]]


@pytest.mark.feature("B01", "B02", "B06", "B07")
async def test_what_was_said_is_in_cassandra_and_history_comes_from_there(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        said = await talk(node)
        before = await texts(node, "bob", **{"with": "alice"})
        report = await node.audit()
        assert report["balanced"]
    assert before[1:] == [f"to bob {n}" if n != 4 else None for n in range(11, -1, -1)], "below the notice of a recall"
    found = rows(cql, keyspace)
    private = cql(f"SELECT id, io, st, draf FROM {keyspace}.pchat")
    by_id = {each: sorted((row.io, row.st, row.draf) for row in private if row.id == int(each)) for each in said}
    assert by_id[said[0]] == [(0, 2, b"to bob 0"), (1, 0, b"to bob 0")], "two rows; the sender's has the receipt"
    assert by_id[said[4]] == [(0, 5, b""), (1, 5, b"")], "recalled at both sides"
    contents = [row.draf for row in cql(f"SELECT draf FROM {keyspace}.gchat")]
    assert sum(each.startswith(b"to all") for each in contents) == 7, "one row, whatever the number of members"
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        assert await texts(node, "bob", **{"with": "alice"}) == before
        assert (await texts(node, "carol", group="team"))[:7] == [f"to all {number}" for number in range(6, -1, -1)]
        await node.send("alice", to="bob", text="once more")
    assert len(rows(cql, keyspace)["pchat"]) == len(found["pchat"]) + 2


async def test_an_empty_cassandra_is_filled_again_row_by_row(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        await talk(node)
        unread = await node.act("alice", "contacts")
    written = rows(cql, keyspace)
    assert all(written.values())
    for table in (*TABLES, "pixiu_applied"):
        cql(f"TRUNCATE {keyspace}.{table}")
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        assert await node.act("alice", "contacts") == unread
        assert (await node.audit())["balanced"]
    assert rows(cql, keyspace) == written
    command = [sys.executable, "-m", "pixiu", "rebuild", "--data", str(tmp_path), "--json"]
    cql(f"DELETE FROM {keyspace}.pchat WHERE pk=%s AND uid1=%s", written["pchat"][0][0], written["pchat"][0][1])
    subprocess.run([*command, "--set", f"timelines={address(cassandra, keyspace)}"], check=True, timeout=120)
    assert rows(cql, keyspace) == written


async def test_timelines_move_from_one_engine_to_the_other_and_back(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path) as node:
        await talk(node)
        before = await texts(node, "alice"), await node.act("bob", "contacts")
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        assert (await texts(node, "alice"), await node.act("bob", "contacts")) == before
        await node.send("bob", to="alice", text="from there")
    with pytest.raises(Unavailable, match="are in cassandra"):
        audit_stopped(tmp_path)
    async with pixiu.Node.embedded(tmp_path) as node:
        assert await texts(node, "alice") == ["from there", *before[0]]
    assert audit_stopped(tmp_path).balanced
    with pytest.raises(CorruptData, match="has timelines already"):
        async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)):
            pass


async def test_a_keyspace_of_another_log_is_left_alone(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path / "a", settings=settings(cassandra, keyspace)) as node:
        await talk(node)
    written = rows(cql, keyspace)
    with pytest.raises(CorruptData, match="another log"):
        async with pixiu.Node.embedded(tmp_path / "b", settings=settings(cassandra, keyspace)):
            pass
    assert rows(cql, keyspace) == written


async def test_a_crash_between_the_two_commits_is_made_good_from_the_log(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path
) -> None:
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        await talk(node)
        counts = await node.act("bob", "contacts")
    written = rows(cql, keyspace)
    # As if the process had died before Cassandra had the end of it: a position of the past, and rows of both kinds.
    (row,) = cql(f"SELECT event_id FROM {keyspace}.pixiu_applied")
    last = max(cql(f"SELECT pk, uid1, id FROM {keyspace}.pchat"), key=lambda each: each.id)
    cql(f"DELETE FROM {keyspace}.pchat WHERE pk=%s AND uid1=%s AND id=%s", last.pk, last.uid1, last.id)
    cql(f"INSERT INTO {keyspace}.pixiu_applied (lane, event_id) VALUES ('timelines', %s)", row.event_id - 25)
    async with pixiu.Node.embedded(tmp_path, settings=settings(cassandra, keyspace)) as node:
        assert node.messaging.carrier.applied(Lane.TIMELINES) >= row.event_id
        assert await node.act("bob", "contacts") == counts
    assert rows(cql, keyspace) == written


@pytest.mark.feature("B02")
def test_serve_takes_it_in_one_line(cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path) -> None:
    served = Served(tmp_path / "data", f"timelines={address(cassandra, keyspace)}")
    served.start()
    try:
        code, shown = _doctor(tmp_path / "data", address(cassandra, keyspace))
        assert code == 0 and any(check["name"] == "timelines engine" for check in shown["checks"])
    finally:
        assert served.stop() == 0
    assert cql(f"SELECT event_id FROM {keyspace}.pixiu_applied")[0].event_id > 0


def _doctor(data: Path, timelines: str) -> tuple[int, Any]:
    config = data.parent / "pixiu.toml"
    config.write_text(f'timelines = "{timelines}"\n[http]\nport = 0\n[queue]\nport = 0\n')
    command = [sys.executable, "-m", "pixiu", "doctor", "--data", str(data), "--config", str(config), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(300)
@pytest.mark.feature("R20")
@pytest.mark.parametrize("layout", ["default", "seed", "bucketed"])
async def test_the_pipeline_fills_an_empty_cassandra_row_by_row(
    cassandra: CassandraServer, cql: Cql, keyspace: str, tmp_path: Path, layout: str
) -> None:
    lived, target = f"{keyspace}a", f"{keyspace}b"
    chosen = {name: f"{address(cassandra, name)}&layout={layout}" for name in (lived, target)}
    data = tmp_path / "node"
    async with pixiu.Node.embedded(data, settings=Settings(engines=EngineSettings(timelines=chosen[lived]))) as node:
        await talk(node)
        await node.act(None, "erase_user", user="carol")
    tables = [*TABLES, *{"seed": ["pixiu_prev"], "bucketed": ["pixiu_bucket"]}.get(layout, [])]

    def held(name: str) -> dict[str, list[Any]]:
        return {table: sorted(map(tuple, cql(f"SELECT * FROM {name}.{table}")), key=repr) for table in tables}

    _, stores = open_stores(tmp_path / "made")  # they begin empty, and are applied and not computed: no Spark here
    stores.close()
    done = await asyncio.to_thread(fill, data, chosen[target], tmp_path / "made")
    assert done.engine == "cassandra" and done.rows == len(held(lived)["pchat"]) + len(held(lived)["gchat"])
    assert held(target) == held(lived)
    with pytest.raises(Conflict, match=f"keyspace {target} is not empty"):
        fill(data, chosen[target], tmp_path)
    embedded = tmp_path / "embedded"
    shutil.copytree(data, embedded)
    shutil.rmtree(embedded / "stores")  # a node that has kept its timelines by itself
    async with pixiu.Node.embedded(embedded) as node:
        before = await texts(node, "alice")
    engines = EngineSettings(timelines=chosen[target])
    async with pixiu.Node.embedded(embedded, settings=Settings(engines=engines)) as node:
        assert await texts(node, "alice") == before
        await node.send("bob", to="alice", text="goes on")
        assert (await node.audit())["balanced"]
    assert len(held(target)["pchat"]) == len(held(lived)["pchat"]) + 2
    for name in (lived, target):
        cql(f"DROP KEYSPACE {name}")


def fill(data: Path, target: str, made: Path) -> Filled:
    return fill_engine(lambda: pytest.fail("no Spark is needed"), data, target, made, made=made)
