"""What a million of something takes: measured with fewer, and scaled."""

from __future__ import annotations

import json
import timeit
from typing import TYPE_CHECKING

from benchmarks.engines.timelines import TimelineResult, on_cassandra, on_embedded
from benchmarks.queue.section import Section
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.model.errors import PixiuError
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS
from pixiu.model.pixiu_pb2 import MsgChat
from tools.jars import JarsMissing

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.engines.mixes import Engines
    from pixiu.backends.mixed import Base

__all__ = ["measure_recent", "measure_sizes"]

IDS = 50_000
ROWS = 5_000
"""Sends, of two rows each."""
USERS = 100
MILLION = 1_000_000
FIRST = 200_000_000_000 << NODE_BITS + SEQUENCE_BITS
AT = 1_794_758_247_535
REPEATS = 20_000


def measure_sizes(folder: Path, engines: Engines) -> Section:
    """Memory or disk for ids that wait, bodies, and rows of history."""
    section = Section(
        "sizes", "What a million takes, scaled from fewer", ["what", "where", "measured with", "for a million"]
    )
    ids, bodies = _embedded_ids(folder)
    section.rows.append(["ids that wait", "embedded, disk", f"{IDS:,}", _megabytes(ids)])
    section.rows.append(["bodies of 100 bytes", "embedded, disk", f"{IDS:,}", _megabytes(bodies)])
    runs: dict[str, object] = {"embedded": {"id": ids, "body": bodies}}
    if engines.valkey is not None:
        ids, bodies = _redis_ids(engines)
        section.rows.append(["ids that wait", "Redis, memory", f"{IDS:,}", _megabytes(ids)])
        section.rows.append(["bodies of 100 bytes, counted", "Redis, memory", f"{IDS:,}", _megabytes(bodies)])
        runs["redis"] = {"id": ids, "body": bodies}
    results = [("embedded, disk, bodies apart", on_embedded(ROWS))]
    if engines.cassandra is not None:
        engines.cassandra.stop()  # two at a time are too many for a small machine, and its part is done
    try:
        results.append(("Cassandra, disk, content included", on_cassandra(ROWS)))
    except (JarsMissing, PixiuError, RuntimeError) as error:
        section.notes.append(f"Cassandra is left out: {(str(error).splitlines() or [''])[0]}")
    for where, result in results:
        section.rows.append(["rows of private timelines", where, f"{2 * ROWS:,}", _row_size(result)])
        runs[result.engine] = {"disk_mb_per_million_rows": result.disk_mb_per_million_rows}
        if result.server_memory_mb:
            section.notes.append(f"Cassandra's own memory: {result.server_memory_mb:,.0f} MiB, whatever the rows.")
    section.runs = [runs]
    return section


def _megabytes(each: float) -> str:
    return f"{each * MILLION / 2**20:,.0f} MiB ({each:,.0f} bytes each)"


def _row_size(result: TimelineResult) -> str:
    return f"{result.disk_mb_per_million_rows:,.0f} MiB"


def _fill_ids(stores: Base) -> None:
    """So many ids wait, in the inboxes of a hundred users."""
    for user in range(1, USERS + 1):
        stores.inboxes.open(user, "ios")
    for number in range(1, IDS + 1):
        stores.inboxes.add(number % USERS + 1, "ios", FIRST + number, number, AT + number, options=7, session=0)
        if number % 1000 == 0:
            stores.commit({})
    stores.commit({})


def _fill_bodies(stores: Base) -> None:
    body = b"x" * 100
    for number in range(1, IDS + 1):
        stores.bodies.put(FIRST + number, body, 3)
        if number % 1000 == 0:
            stores.commit({})
    stores.commit({})


def _embedded_ids(folder: Path) -> tuple[float, float]:
    """Bytes on disk for each, once it is all written out."""
    sizes = []
    for name, fill in (("ids", _fill_ids), ("bodies", _fill_bodies)):
        root = folder / f"sizes-{name}"
        stores = EmbeddedStores(RocksKeyValue(root, options=LARGE))
        fill(stores)
        stores.flush()
        stores.close()
        sizes.append(sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / IDS)
    return sizes[0], sizes[1]


def _redis_ids(engines: Engines) -> tuple[float, float]:
    """Bytes of memory for each, as Valkey counts what its data takes."""
    from pixiu.backends.redis.address import RedisAddress
    from pixiu.backends.redis.stores import RedisStores

    assert engines.valkey is not None
    engines.ask_valkey("FLUSHALL")
    stores = RedisStores(RedisAddress.parse(f"redis://127.0.0.1:{engines.valkey.port}"), "sizes")
    try:
        empty = engines.valkey_memory()
        _fill_ids(stores)
        with_ids = engines.valkey_memory()
        _fill_bodies(stores)
        with_bodies = engines.valkey_memory()
    finally:
        stores.close()
    return (with_ids - empty) / IDS, (with_bodies - with_ids) / IDS


def measure_recent() -> Section:
    """An entry of a group's newest messages as it is kept (MsgChat), beside the same as JSON."""
    chat = MsgChat(msgId=FIRST, fromId=7, toId=8, tm=AT, data=b"x" * 60, sendId="send-1")
    as_dict = {
        "message_id": str(chat.msgId), "from": str(chat.fromId), "to": str(chat.toId), "at": chat.tm,
        "text": chat.data.decode(), "send_id": chat.sendId,
    }  # fmt: skip
    packed, text = chat.SerializeToString(), json.dumps(as_dict)
    section = Section(
        "recent", "A recent entry as protobuf and as JSON", ["form", "bytes", "µs to write", "µs to read"]
    )
    for form, size, write, read in (
        ("MsgChat", len(packed), chat.SerializeToString, lambda: MsgChat.FromString(packed)),
        ("JSON", len(text), lambda: json.dumps(as_dict), lambda: json.loads(text)),
    ):
        times = [min(timeit.repeat(call, number=REPEATS, repeat=3)) / REPEATS * 1e6 for call in (write, read)]
        section.rows.append([form, str(size), *(f"{time:.2f}" for time in times)])
        section.runs.append({"form": form, "bytes": size, "write_us": times[0], "read_us": times[1]})
    return section
