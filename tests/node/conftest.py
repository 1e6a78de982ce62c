"""What tests of nodes with stores in Redis share: one Valkey for a file of tests, empty for each of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from valkey import Valkey

from tests.engines import ValkeyProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def redis(server: ValkeyProcess) -> Iterator[Any]:
    """Its answers have no types of their own."""
    client: Any
    with Valkey(port=server.port, decode_responses=True) as client:
        client.flushall()
        yield client
