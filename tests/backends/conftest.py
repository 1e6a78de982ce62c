"""A Kafka for each module of this folder that wants one; what it needs is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.kafka_server import KafkaServer


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Skipped by name where its jars cannot be had; with CI=true that is a failure where they could."""
    from tests.kafka import require_kafka

    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server
