"""One Cassandra for all tests of this folder. Each test gets a keyspace of its own, or empties one."""

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy

from tests.engines import require_cassandra
from tools.cassandra_server import CassandraServer

PATIENCE_S = 30.0


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """Skipped by name where its jars cannot be had; with CI=true that is a failure where they could."""
    with require_cassandra(tmp_path_factory.mktemp("cassandra")) as server:
        yield server


@pytest.fixture
def cql(cassandra: CassandraServer) -> Iterator[Callable[..., list[Any]]]:
    """Plain CQL by the driver alone: ``cql("SELECT … WHERE id>%s", 5)`` gives named tuples."""
    again = ConstantReconnectionPolicy(0.5, max_attempts=None)
    near = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    cluster = Cluster(
        [cassandra.host], port=cassandra.port, connect_timeout=20, reconnection_policy=again,
        execution_profiles={EXEC_PROFILE_DEFAULT: near},
    )  # fmt: skip
    session = cluster.connect()

    def ask(text: str, *values: object) -> list[Any]:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return list(session.execute(text, values or None, timeout=30))
            except NoHostAvailable:  # the server was killed a moment ago, and this connection with it
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    yield ask
    cluster.shutdown()


@pytest.fixture
def keyspace(request: pytest.FixtureRequest, cql: Callable[..., list[Any]]) -> Iterator[str]:
    """One of the test's own."""
    name = f"t{zlib.crc32(request.node.nodeid.encode()):08x}"
    yield name
    with suppress(Exception):  # a server that a test has hurt goes with its folder
        cql(f"DROP KEYSPACE IF EXISTS {name}")
