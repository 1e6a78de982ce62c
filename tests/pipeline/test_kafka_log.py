"""The pipeline on a node whose log is in Kafka: the same rows as from a journal, and books that balance."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import duckdb
import pyarrow as pa

from pixiu.backends.kafka.address import KafkaAddress
from pixiu.backends.kafka.driver import driver
from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.records import LOG, Entry, kafka_records
from pixiu.backends.kafka.topics import Topics
from pixiu.config import EngineSettings, Settings
from pixiu.model.errors import Conflict, CorruptData
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.stores import open_stores
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.query import query_duckdb
from pixiu.pipeline.rebuilding import rebuild_store
from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.source.decode import Wanted
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.pipeline.source.kafka import KafkaLogOf, rows_of_kafka
from pixiu.pipeline.source.slices import batches_in, log_of
from tests.kafka import new_prefix, require_kafka
from tests.pipeline.test_rebuild import held, talk
from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def rows(log: Any, wanted: Wanted, **options: Any) -> list[dict[str, Any]]:
    """Everything, as a reader that is asked for one slice after the other gets it."""
    parts = log.plan(log.first_event_id() - 1, log.end().event_id, **options)
    found: list[dict[str, Any]] = pa.Table.from_batches(
        [batch for part in parts for batch in batches_in(part, wanted)], schema=wanted.schema
    ).to_pylist()
    return found


def copied(journal: Path, data: Path, hosts: str) -> KafkaAddress:
    """The records of a journal in a Kafka, with all their numbers, and a data directory whose log that is."""
    address = KafkaAddress(hosts, new_prefix())
    topics = Topics(address, {})
    topics.make()
    identity = topics.made_identity()
    producer = driver.Producer({"bootstrap.servers": hosts, "enable.idempotence": True})
    last = 0
    for row in rows(JournalFolder(journal), Wanted()):
        last = row["message_id"] or last
        at = int(row["written_at"].timestamp() * 1000 + 0.5)
        number, is_numbered = row["message_id"] or last, row["message_id"] > 0
        entry = Entry(row["event_id"], number, is_numbered, row["topic"], row["payload"], row["key"], at)
        record = next(iter(kafka_records(entry)))  # what else is written with it is of no concern here
        producer.produce(
            address.topic(LOG), record.value, record.key, headers=record.headers, timestamp=record.at, partition=0
        )
    producer.produce(address.topic(LOG), b"by somebody else", partition=0)
    assert producer.flush(30) == 0
    (data / "queue" / "journal").mkdir(parents=True)
    noted = {"log": str(address), "client": "", "cluster_id": identity.cluster_id, "topic_id": identity.topic_id}
    (data / "log.json").write_text(json.dumps(noted))
    return address


def tables(data: Path) -> dict[str, list[Any]]:
    """Every row of the archive."""
    return {name: sorted(query_duckdb(data, f"SELECT * FROM lake_{name}")[1], key=repr) for name in LAKE_SCHEMAS}


def same_messages(folder: Path, hosts: str, seed: int) -> tuple[Path, Path, KafkaAddress]:
    """A journal, a data directory whose log in Kafka has the same records, and where that is."""
    journal, data = folder / "journal", folder / "kafka"
    asyncio.run(talk(journal, random.Random(seed), 60))
    return journal, data, copied(journal, data, hosts)


@pytest.mark.feature("R20")
def test_the_same_messages_are_the_same_records(kafka: KafkaServer, tmp_path: Path) -> None:
    journal, data, _ = same_messages(tmp_path, kafka.hosts, 11)
    for wanted in (Wanted(), Wanted(is_full=False), *(Wanted.rows_of(table) for table in LAKE_SCHEMAS)):
        expected = rows(JournalFolder(journal), wanted)
        assert rows(log_of(data), wanted) == expected
        assert rows(log_of(data), wanted, rows_max=70) == expected, "slices that begin anywhere"
    event_id, at = middle_of(journal)
    assert KafkaLogOf(data).event_before(at) == event_id - 1
    assert applied(data, tmp_path / "made-kafka") == applied(journal, tmp_path / "made-journal")
    Pipeline(data, no_spark).__exit__(None, None, None)
    noted = json.loads((data / "log.json").read_text())
    (data / "log.json").write_text(json.dumps(noted | {"topic_id": "another"}))
    with pytest.raises(CorruptData, match="another log than the stores"):
        Pipeline(data, no_spark)
    (data / "log.json").unlink()
    with pytest.raises(Conflict, match="are of another log"):
        Pipeline(data, no_spark)


@pytest.mark.feature("R20")
def test_and_the_same_rows_of_the_archive(kafka: KafkaServer, spark: Any, tmp_path: Path) -> None:
    journal, data, address = same_messages(tmp_path, kafka.hosts, 13)
    for place in (journal, data):
        with Pipeline(place, lambda: spark, rows_per_trigger=150) as pipeline:
            pipeline.run(["archive"])
    assert tables(data) == tables(journal)
    with Pipeline(data, no_spark) as pipeline:
        assert not any(pipeline.run(["archive"]).values()), "nothing is read twice"
    native = rows_of_kafka(spark.createDataFrame(*as_spark_reads(address)))
    full = spark.read.format("pixiu").load(str(data))
    assert sorted(native.collect()) == sorted(full.collect()), "as Spark's own source would have it"


def no_spark() -> Any:
    pytest.fail("no Spark is needed")


def applied(data: Path, folder: Path) -> dict[str, Any]:
    """The stores that the log of a data directory gives."""
    _, stores = open_stores(folder)
    stores.close()
    rebuild_store(no_spark, data, folder)
    return held(folder / "stores")


def middle_of(journal: Path) -> tuple[int, int]:
    """An event from the middle, the first of its millisecond, and when that was."""
    found = rows(JournalFolder(journal), Wanted(is_full=False))
    at = found[len(found) // 2]["written_at"]
    first = next(row for row in found if row["written_at"] >= at)
    return first["event_id"], int(at.timestamp() * 1000 + 0.5)


def as_spark_reads(address: KafkaAddress) -> tuple[list[Any], str]:
    """``main`` with the columns that Spark's Kafka source gives."""
    reader = PartitionReader(address, {}, LOG)
    reader.seek(0)
    found: list[Any] = []
    is_end = False
    while not is_end:
        messages = reader._consumer.consume(1000, 5)
        is_end = not messages or messages[-1].error() is not None
        found += [
            ([(key, bytes(value)) for key, value in message.headers() or ()], message.value(), message.timestamp()[1])
            for message in messages
            if message.error() is None
        ]
    reader.close()
    import datetime

    utc = datetime.UTC
    timed = [(headers, value, datetime.datetime.fromtimestamp(at / 1000, utc)) for headers, value, at in found]
    return timed, "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, value BINARY, timestamp TIMESTAMP"


async def few_words(root: Path, settings: Settings) -> None:
    """Sends, a group, a phone that acks, and one who is erased."""
    async with EmbeddedNode(root, settings=settings, creates_users=True) as node:
        await node.create_group("ann", "tea", members=["ben", "cat"])
        phone = await node.connect("ben", platform="ios")
        for number in range(12):
            await node.send("ann", to="ben", text=f"to {number}", send_id=f"{number}")
            await node.gsend("ben", group="tea", text=f"in {number}")
        for _ in range(10):
            await phone.receive(timeout_seconds=20)
        await phone.leave()
        await node.act(None, "erase_user", user="cat")
        await node.send("ben", to="ann", text="afterwards")


@pytest.mark.feature("R20", "B21")
def test_a_node_on_kafka_is_archived_and_its_books_balance(kafka: KafkaServer, tmp_path: Path) -> None:
    settings = Settings(engines=EngineSettings(log=f"kafka://{kafka.hosts}?prefix={new_prefix()}"))
    asyncio.run(few_words(tmp_path / "node", settings))
    command = [sys.executable, "-m", "pixiu", "pipeline", "run", "--once", "--json", "--data", str(tmp_path / "node")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout.splitlines()[-1])
    assert done["audit"]["balanced"] is True and done["audit"]["intended"] > 40
    assert done["added"]["messages"] > 20 and done["added"]["usage"]
    with duckdb.connect() as connection:
        files = str(tmp_path / "node" / "pipeline" / "lake" / "messages" / "**" / "*.parquet")
        (texts,) = connection.execute(f"SELECT count(*) FROM '{files}' WHERE text = 'afterwards'").fetchone() or (0,)
    assert texts == 1
    again = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)
    assert not json.loads(again.stdout.splitlines()[-1])["added"]["messages"]
