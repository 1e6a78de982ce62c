"""One Spark session for all tests that need one, started by the first of them.

Tests that use it run alone (`serial`): two sessions at once would not fit the machine. Without Java or pyspark they are
skipped by name; with CI=true that is a failure wherever the machine can have them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pixiu.pipeline.session import open_session
from tests.needs import require_java

SESSION_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.serial)
            item.add_marker(pytest.mark.timeout(SESSION_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require_java()
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(folder, spark_url="local[2]", partitions=2, memory="1g", for_short_runs=True)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _needs_packages() -> None:
    pytest.importorskip("pyarrow", reason="the pipeline's packages are not installed (requirements/pipeline.txt)")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
