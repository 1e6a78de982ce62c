"""One Spark session for all tests that need one, started by the first of them.

Tests that use it run alone (`serial`): two sessions at once would not fit the machine. Where Java or pyspark is missing
they are skipped by name; in CI, where Java is there, that is a failure.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pixiu.model.errors import Unavailable
from pixiu.pipeline.session import open_session, require_spark

SESSION_SECONDS = 600

if os.environ.get("CI") == "true" and shutil.which("java") is not None:
    require_spark()  # CI has Java, so it must have the rest: nothing here may be skipped


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.serial)
            item.add_marker(pytest.mark.timeout(SESSION_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    try:
        require_spark()
    except Unavailable as error:
        pytest.skip(str(error))
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
