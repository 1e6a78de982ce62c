"""Which engines keep what in a run, and the servers behind them: started once, used by every round with fresh data."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from benchmarks.messaging.rig import settings
from benchmarks.queue.servers import ServerError, Valkey, connected, line_of
from pixiu.config import EngineSettings
from pixiu.model.errors import ConfigError
from tools.cassandra_server import CassandraServer
from tools.jars import JarsMissing
from tools.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pixiu.config import Settings

__all__ = ["MIXES", "Engines", "Mix"]

PATIENCE_MS = 20_000
"""How long an engine may take here: a benchmark waits where a node would say that it is down."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What is measured together."""

    key: str
    label: str
    needs: tuple[str, ...] = ()

    @property
    def has_cassandra(self) -> bool:
        """Is history in Cassandra?"""
        return "cassandra" in self.needs


MIXES = (
    Mix("embedded", "embedded"),
    Mix("redis", "Redis store", ("redis",)),
    Mix("cassandra", "Cassandra timelines", ("cassandra",)),
    Mix("kafka", "Kafka log", ("kafka",)),
    Mix("all", "Redis + Cassandra + Kafka", ("redis", "cassandra", "kafka")),
)


class Engines:
    """The servers of a run. ``left_out`` says which cannot be had, and why."""

    def __init__(self, folder: Path, wanted: Iterable[str]) -> None:
        self._folder = folder
        self._wanted = frozenset(wanted)
        self._exits = ExitStack()
        self._numbers = count(1)
        self.left_out: dict[str, str] = {}
        self.valkey: Valkey | None = None
        self.cassandra: CassandraServer | None = None
        self.kafka: KafkaServer | None = None
        self._session: Any = None

    def __enter__(self) -> Self:
        starts: dict[str, Callable[[], object]] = {
            "redis": self._start_valkey, "cassandra": self._start_cassandra, "kafka": self._start_kafka,
        }  # fmt: skip
        try:
            for name, start in starts.items():
                if name in self._wanted:
                    try:
                        start()
                    except (JarsMissing, ServerError, ConfigError, ImportError, RuntimeError) as error:
                        self.left_out[name] = (str(error).splitlines() or [type(error).__name__])[0]
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _start_valkey(self) -> None:
        import valkey  # noqa: F401 - the client: without it there is nothing to measure

        self.valkey = self._exits.enter_context(Valkey(self._folder / "valkey", "everysec"))

    def _start_cassandra(self) -> None:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import RoundRobinPolicy

        server = CassandraServer(self._folder / "cassandra", starts_quickly=False)
        self.cassandra = self._exits.enter_context(server)
        profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
        cluster = Cluster(
            [server.host], port=server.port, connect_timeout=60, execution_profiles={EXEC_PROFILE_DEFAULT: profile}
        )
        self._exits.callback(cluster.shutdown)
        self._session = cluster.connect()

    def _start_kafka(self) -> None:
        self.kafka = self._exits.enter_context(KafkaServer(self._folder / "kafka"))

    def has(self, mix: Mix) -> bool:
        """Are all its servers there?"""
        return not any(name in self.left_out for name in mix.needs)

    def settings_of(self, mix: Mix) -> Settings:
        """For one node on data of its own."""
        number = next(self._numbers)
        engines = EngineSettings()
        if "redis" in mix.needs and self.valkey is not None:
            self.ask_valkey("FLUSHALL")
            url = f"redis://127.0.0.1:{self.valkey.port}?timeout_ms={PATIENCE_MS}"
            engines = replace(engines, store=url)
        if "cassandra" in mix.needs and self.cassandra is not None:
            url = f"cassandra://{self.cassandra.address}/bench{number}?timeout_ms={PATIENCE_MS}"
            engines = replace(engines, timelines=url)
        if "kafka" in mix.needs and self.kafka is not None:
            engines = replace(engines, log=f"kafka://{self.kafka.hosts}?prefix=b{os.getpid()}-{number}")
        return replace(settings(), engines=engines)

    # What the servers themselves have counted.

    def ask_valkey(self, *words: str) -> bytes:
        """One command, and its answer's text."""
        assert self.valkey is not None
        with connected(self.valkey.port) as connection:
            connection.sendall((" ".join(words) + "\r\n").encode())
            reader = connection.makefile("rb")
            first = line_of(reader)
            return reader.read(int(first[1:])) if first.startswith(b"$") else first

    def valkey_says(self, section: str, field: str) -> str:
        """One line of ``INFO``; empty if there is none."""
        lines = self.ask_valkey("INFO", section).decode().splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith(f"{field}:")), "")

    def function_calls(self) -> int:
        """How often Valkey ran one of our functions: once per commit."""
        words = self.valkey_says("commandstats", "cmdstat_fcall")
        return int(words.partition("calls=")[2].partition(",")[0] or 0)

    def valkey_memory(self) -> int:
        """Bytes that its data takes."""
        return int(self.valkey_says("memory", "used_memory") or 0)

    def cassandra_requests(self) -> int:
        """Requests of all connections that it has now, by its own count, this one included."""
        rows = self._session.execute("SELECT request_count FROM system_views.clients")
        return sum(row[0] for row in rows)
