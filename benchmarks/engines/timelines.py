"""Timelines on Cassandra beside the embedded ones: rows written, pages read, requests per send, disk and memory.

``python -m benchmarks.engines.timelines [--sends 50000] [--layout default]``. A send is two private rows with a body of
100 bytes, committed as a carrier does. Everything runs on this machine, one Cassandra with 512 MB of heap: the numbers
compare, they do not size a cluster.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.model.ids import Snowflakes
from pixiu.model.pixiu_pb2 import P2P, MsgChat
from pixiu.model.timeline import PrivateRow
from pixiu.ports.timelines import Timelines
from tools.cassandra_server import CassandraServer
from tools.jars import JarsMissing

__all__ = ["TimelineResult", "on_cassandra", "on_embedded"]

USERS = 1000
COMMIT_SENDS = 1000
PAGE = 100
PAGES = 500
BODY = b"x" * 100


@dataclass(frozen=True, slots=True)
class TimelineResult:
    """What one engine did."""

    engine: str
    sends: int
    sends_per_second: float
    rows_per_second: float
    requests_per_send: float
    """Batches and statements to the server; 0 for what is embedded."""
    pages_per_second: float
    disk_mb_per_million_rows: float
    """Measured with these rows. Embedded: without bodies, which it keeps once in xiu."""
    server_memory_mb: float
    cpu_us_per_send: float
    """Of this process, all threads: what a busy machine changes least."""
    server_cpu_us_per_send: float


def _say(timelines: Timelines, commit: Callable[[], object], sends: int, bodies: dict[int, bytes]) -> float:
    """Seconds until everything is committed."""
    numbers, rng = Snowflakes(1), random.Random(1)
    now_ms = int(time.time() * 1000)
    began = time.perf_counter()
    for count in range(sends):
        sender, receiver = rng.sample(range(1, USERS + 1), 2)
        message_id = numbers.next(now_ms + count // 10)
        chat = MsgChat(msgId=message_id, fromId=sender, toId=receiver, tm=now_ms, data=BODY, chatType=P2P)
        bodies[message_id] = chat.SerializeToString()
        timelines.put_private(sender, PrivateRow(message_id, receiver, is_incoming=False))
        timelines.put_private(receiver, PrivateRow(message_id, sender, is_incoming=True))
        if count % COMMIT_SENDS == COMMIT_SENDS - 1:
            commit()
    commit()
    return time.perf_counter() - began


def _read(timelines: Timelines) -> float:
    """Pages per second, newest first, of users at random."""
    rng = random.Random(2)
    began = time.perf_counter()
    for _ in range(PAGES):
        timelines.private_backward(rng.randint(1, USERS), limit=PAGE)
    return PAGES / (time.perf_counter() - began)


def on_cassandra(sends: int, layout: str = "default") -> TimelineResult:
    """Start one, use it, measure it. Raises ``JarsMissing``."""
    with tempfile.TemporaryDirectory() as folder:
        server = CassandraServer(Path(folder), starts_quickly=False)
        with server:
            bodies: dict[int, bytes] = {}
            address = Address(
                hosts=(server.host,), port=server.port, keyspace="bench", layout=layout, timeout_ms=20_000
            )
            part = CassandraTimelines(address, lambda ids: {each: bodies[each] for each in ids}, is_patient=True)
            cpu, server_cpu = time.process_time(), server.cpu_seconds()
            took = _say(part, lambda: part.commit({}), sends, bodies)
            begun = time.perf_counter()
            part.flush()
            took += time.perf_counter() - begun
            cpu, server_cpu = time.process_time() - cpu, server.cpu_seconds() - server_cpu
            requests = part.link.requests
            pages = _read(part)
            memory = server.memory_bytes()
            part.close()
        disk = _size(Path(folder) / "data" / "bench")  # a stop in order has flushed it
    return _result(f"cassandra ({layout})", sends, took, requests / sends, pages, disk, memory, cpu, server_cpu)


def on_embedded(sends: int) -> TimelineResult:
    """The default, with the same calls."""
    with tempfile.TemporaryDirectory() as folder:
        store = RocksKeyValue(Path(folder) / "stores", options=LARGE)
        stores = EmbeddedStores(store)
        cpu = time.process_time()
        took = _say(stores.timelines, lambda: stores.commit({}), sends, {})
        stores.flush()
        cpu = time.process_time() - cpu
        pages = _read(stores.timelines)
        stores.close()
        disk = _size(Path(folder))
    return _result("embedded", sends, took, 0.0, pages, disk, 0, cpu, 0.0)


def _result(
    engine: str,
    sends: int,
    took: float,
    requests: float,
    pages: float,
    disk: int,
    memory: int,
    cpu: float,
    server_cpu: float,
) -> TimelineResult:
    per_million = disk / 2**20 / (2 * sends) * 1_000_000
    return TimelineResult(
        engine, sends, round(sends / took), round(2 * sends / took), round(requests, 4), round(pages),
        round(per_million, 1), round(memory / 2**20),
        round(cpu / sends * 1e6), round(server_cpu / sends * 1e6),
    )  # fmt: skip


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Print one JSON object per engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sends", type=int, default=50_000)
    parser.add_argument("--layout", default="default", choices=["default", "seed", "bucketed"])
    chosen = parser.parse_args()
    print(json.dumps(asdict(on_embedded(chosen.sends))), flush=True)
    try:
        print(json.dumps(asdict(on_cassandra(chosen.sends, chosen.layout))), flush=True)
    except JarsMissing as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
