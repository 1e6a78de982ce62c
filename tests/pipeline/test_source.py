"""``format("pixiu")``: batch and stream, over a data directory and over a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pixiu.model.errors import ConfigError
from pixiu.pipeline.source.datasource import SourceOptions
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.queue.client import BlockingClient
from tests.pipeline.logs import say, small_segments, talk, with_node
from tests.servers import QueueProcess


def ids_of(frame: Any) -> list[int]:
    return [row.event_id for row in frame.select("event_id").orderBy("event_id").collect()]


def drain(frame: Any, work: Path, name: str = "q") -> list[tuple[int, list[int]]]:
    """Run a stream to the end of what is there; the event ids of each batch."""
    batches: list[tuple[int, list[int]]] = []
    query = (
        frame.writeStream.foreachBatch(lambda rows, number: batches.append((number, ids_of(rows))))
        .option("checkpointLocation", str(work / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_batch_has_every_message(spark: Any, data: Path) -> None:
    with_node(data, talk, settings=small_segments())
    frame = spark.read.format("pixiu").load(str(data))
    rows = frame.collect()
    events = [row.event_id for row in rows]
    assert len(events) == len(set(events))
    assert frame.rdd.getNumPartitions() == len(JournalFolder(data).firsts())
    header = spark.read.format("pixiu").option("columns", "header").load(str(data))
    assert header.columns == frame.columns[:-2]
    assert ids_of(header) == sorted(events)
    main = spark.read.format("pixiu").option("topics", "pixiu.main, pixiu.tasks").load(str(data))
    assert {row.topic for row in main.select("topic").distinct().collect()} == {"pixiu.main"}
    late = spark.read.format("pixiu").option("startingEventId", "20").load(str(data))
    assert ids_of(late) == [event for event in sorted(events) if event >= 20]
    by_time = spark.read.format("pixiu").option("startingTime", str(2**41 * 2)).load(str(data))
    assert by_time.count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colums": "full"}, "has no option"),
        ({"columns": "some"}, "header or full"),
        ({"startingEventId": "x"}, "whole number"),
        ({"startingEventId": "1", "startingTime": "1"}, "not both"),
        ({"server": "h:1"}, "one log"),
        ({"nodeKey": "k"}, "has no option"),
        ({"columns": "messages", "topics": "pixiu.main"}, "leave out the option topics"),
    ],
)
def test_bad_options_are_refused(data: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SourceOptions.of({"path": str(data), **options})


def test_a_refusal_reaches_whoever_asked(spark: Any, data: Path) -> None:
    with_node(data, lambda node: say(node, 1))
    with pytest.raises(Exception, match="has no option"):
        spark.read.format("pixiu").option("colums", "full").load(str(data)).count()


def test_stream_takes_bounded_batches_and_goes_on_where_it_stopped(spark: Any, data: Path, tmp_path: Path) -> None:
    with_node(data, lambda node: say(node, 40), settings=small_segments())
    stream = spark.readStream.format("pixiu").option("maxRowsPerTrigger", "16").load(str(data))
    first = drain(stream, tmp_path)
    everything = ids_of(spark.read.format("pixiu").load(str(data)))
    assert [event for _, batch in first for event in batch] == everything
    assert max(len(batch) for _, batch in first) <= 16
    with_node(data, lambda node: say(node, 10, begin=40), settings=small_segments())
    second = drain(stream, tmp_path)
    assert second[0][0] == first[-1][0] + 1
    everything = ids_of(spark.read.format("pixiu").load(str(data)))
    assert [event for _, batch in (*first, *second) for event in batch] == everything
    assert drain(stream, tmp_path) == []
    assert len(JournalFolder(data).firsts()) >= 3, "nothing is deleted by reading"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path / "data") as process:
        yield process


def test_a_server_is_read_by_its_protocol(spark: Any, queue: QueueProcess, tmp_path: Path) -> None:
    with BlockingClient(queue.address) as client:
        client.create_topic("order")
        client.publish_many("order", [b"%d" % number for number in range(300)])
        client.append("order", b"last", key=b"k")
        folder = spark.read.format("pixiu").load(str(queue.data))
        asked = {"server": queue.address, "secretFile": str(queue.data / "node.key")}
        remote = spark.read.format("pixiu").options(**asked).option("rowsPerPartition", "64").load()
        assert remote.rdd.getNumPartitions() == 5
        assert sorted(map(tuple, remote.collect())) == sorted(map(tuple, folder.collect()))
        stream = spark.readStream.format("pixiu").options(**asked).option("maxRowsPerTrigger", "100").load()
        batches = drain(stream, tmp_path)
        assert [event for _, batch in batches for event in batch] == ids_of(folder)
        followers = client.run(client._client.status())["followers"]
        assert not any(follower["in_sync"] for follower in followers), "a reader is no follower that counts"


def test_damage_fails_the_query_with_file_and_byte(spark: Any, data: Path) -> None:
    with_node(data, lambda node: say(node, 20))
    (path,) = (data / "queue" / "journal").glob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="checksum does not match"):
        spark.read.format("pixiu").load(str(data)).count()
