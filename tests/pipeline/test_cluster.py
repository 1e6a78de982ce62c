"""The same code on executors in processes of their own: finds what only pickling and paths can break."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb")

from pixiu.model.errors import Unavailable
from pixiu.pipeline.query import query_duckdb
from pixiu.pipeline.session import require_spark
from tests.pipeline.logs import small_segments, talk, with_node
from tests.pipeline.test_archive import log_ids


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_executors(data: Path) -> None:
    try:
        require_spark()
    except Unavailable as error:
        pytest.skip(str(error))
    with_node(data, talk, settings=small_segments())
    command = [sys.executable, "-m", "pixiu", "pipeline", "run", "--once", "--data", str(data)]
    done = subprocess.run(
        [*command, "--master", "local-cluster[2,1,1024]"], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    _, rows = query_duckdb(data, "SELECT message_id FROM messages ORDER BY message_id")
    assert [number for (number,) in rows] == log_ids(data)
    _, ((intended, accounted),) = query_duckdb(
        data, "SELECT sum(intended), sum(acked + waiting + expired + dead) FROM audit"
    )
    assert intended == accounted > 0
