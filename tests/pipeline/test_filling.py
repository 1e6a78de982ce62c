"""An empty Redis filled from the log: every key is what a node that lived on Redis wrote."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from valkey import Valkey as Client

pytest.importorskip("pyspark")

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.bulk import check_empty
from pixiu.config import EngineSettings, Settings
from pixiu.model.errors import ConfigError, Conflict
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.remembered import open_redis
from pixiu.node.stores import open_stores
from pixiu.pipeline.filling import fill_engine
from tests.engines import ValkeyProcess
from tests.pipeline.test_rebuild import talk

Valkey: Any = Client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


def held(port: int, database: int) -> dict[str, Any]:
    """Every key with what it holds, but what names the process that wrote it, and when."""
    found: dict[str, Any] = {}
    with Valkey(port=port, db=database) as client:
        for key in client.scan_iter(count=1000):
            name = key.decode()
            if name.endswith(("owner", "present")) or name.startswith(("bsgmsg_", "pixiu:bsgmsg:")):
                continue  # who owns it; what groups said last, which is read into it when somebody asks
            match client.type(key):
                case b"string":
                    found[name] = client.get(key)
                case b"hash":
                    found[name] = client.hgetall(key)
                case b"set":
                    found[name] = client.smembers(key)
                case b"stream":
                    pass  # they hold what is said from now on
                case _:
                    found[name] = client.zrange(key, 0, -1, withscores=True)
    for name in [name for name in found if name.endswith("meta")]:
        # Only a filling counts bodies that were gone before a commit, and events that change nothing behind the last.
        found[name] = {field: value for field, value in found[name].items() if field == b"layout"}
    return found


def settings(url: str) -> Settings:
    return Settings(engines=EngineSettings(store=url))


def no_spark() -> Any:
    pytest.fail("no Spark is needed: the stores begin empty, and are brought up to the log")


def made_empty(folder: Path) -> Path:
    """Stores of this layout without a row: what comes next is applied, not computed."""
    _, stores = open_stores(folder)
    stores.close()
    return folder


@pytest.mark.feature("R20")
@pytest.mark.parametrize("layout", ["seed", "cluster"])
async def test_every_key_is_what_a_node_on_redis_wrote(server: ValkeyProcess, tmp_path: Path, layout: str) -> None:
    with Valkey(port=server.port) as client:
        client.flushall()
    data, lived, target = tmp_path / "node", f"{server.url}/1?layout={layout}", f"{server.url}/2?layout={layout}"
    await talk(data, random.Random(5), 60, settings(lived))
    told: list[str] = []
    done = await asyncio.to_thread(
        fill_engine, no_spark, data, target, tmp_path, made=made_empty(tmp_path / "made"), tell=told.append
    )
    written = held(server.port, 1)
    assert done.engine == "redis" and done.rows > 100 and any(text.startswith("bodies: ") for text in told)
    assert held(server.port, 2) == written
    with pytest.raises(Conflict, match="is not empty: it has the key"):
        fill_engine(no_spark, data, target, tmp_path)
    async with EmbeddedNode(data, settings=settings(target)) as node:  # it takes it over, and goes on
        assert node.host.redis_round_trips < 100, "nothing was applied again"
        await node.send("ben", to="cat", text="on the new one")
        assert (await node.audit())["balanced"]
    assert len(held(server.port, 2)) > len(written)


async def test_a_filling_that_did_not_end_counts_for_nothing(server: ValkeyProcess, tmp_path: Path) -> None:
    with Valkey(port=server.port) as client:
        client.flushall()
    data, target = tmp_path / "node", f"{server.url}/3"
    await talk(data, random.Random(6), 20)
    redis = open_redis(data, target)
    assert redis is not None
    redis.note_filling()
    redis.bodies.put(1, b"half of it", 1)
    redis.commit({})
    redis.close()
    check_empty(RedisAddress.parse(target))  # no refusal: it is filled anew
    async with EmbeddedNode(data, settings=settings(target)) as node:
        assert not node.messaging.stores.bodies.get([1]), "the node emptied it, and made it again from the log"
        assert (await node.audit())["balanced"]


def test_a_target_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"redis://… or cassandra://…, not 'mongo://x'"):
        fill_engine(no_spark, tmp_path, "mongo://x", tmp_path)


@pytest.mark.engines
@pytest.mark.serial
@pytest.mark.timeout(1900)
@pytest.mark.feature("R20")
def test_spark_computes_the_same_keys(server: ValkeyProcess, tmp_path: Path) -> None:
    with Valkey(port=server.port) as client:
        client.flushall()
    data, lived, target = tmp_path / "node", f"{server.url}/4", f"{server.url}/5"
    asyncio.run(talk(data, random.Random(8), 40, settings(lived)))
    command = [
        sys.executable,
        "-m",
        "pixiu",
        "pipeline",
        "run",
        "rebuild",
        "--data",
        str(data),
        "--json",
        "--to",
        target,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout.splitlines()[-1])
    assert done["engine"] == "redis" and done["rows"] > 50
    assert held(server.port, 5) == held(server.port, 4)
    again = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert again.returncode and "is not empty: it has the key" in again.stderr and "Traceback" not in again.stderr
    assert not list((data / "pipeline" / "work").glob("filling-*")), "what was made on the way is gone"
