"""One Cassandra for all tests of this folder. Each test gets a keyspace of its own, or empties one."""

import os
from collections.abc import Iterator

import pytest

from tools.cassandra_server import CassandraServer
from tools.jars import JarsMissing


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServer]:
    """Skipped by name where its jars cannot be had; with CI=true that is a failure where they could."""
    try:
        server = CassandraServer(tmp_path_factory.mktemp("cassandra"))
    except JarsMissing as error:
        if os.environ.get("CI") == "true" and error.can_be_had:
            pytest.fail(str(error))
        pytest.skip(str(error))
    with server:
        yield server
