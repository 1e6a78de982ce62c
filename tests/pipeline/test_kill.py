"""Exactly once under kill -9: a pipeline in a process of its own dies at every named point, and is taken up.

The same session then finishes the work, and DuckDB compares the ids with those of the log.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from pixiu.pipeline.lake.feed import CRASH_POINTS
from pixiu.pipeline.runner import Pipeline
from tests.pipeline.logs import say, talk, with_node
from tests.pipeline.test_archive import lake_ids, log_ids, rows

ROOT = Path(__file__).resolve().parents[2]

# Each costs half a minute: the one where most could go wrong is always tried, the others by test-long.
ALWAYS = "after-commit"
POINTS = [
    point if point == ALWAYS else pytest.param(point, marks=pytest.mark.long)
    for point in (*CRASH_POINTS, "during-compaction")
]


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_killed(spark: Any, data: Path, point: str) -> None:
    with_node(data, talk)
    times = "1" if point == "during-compaction" else "2"
    command = [sys.executable, "-m", "tests.pipeline.archive_child", str(data), point, times]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=400, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
    with_node(data, lambda node: say(node, 5, begin=200))
    with Pipeline(data, lambda: spark) as pipeline:
        pipeline.run(["archive"])
        assert lake_ids(pipeline) == log_ids(data)
        for name in ("deliveries", "changes"):
            keys = rows(pipeline.table(name), "event_id, part")
            assert len(keys) == len(set(keys)), "no row twice"
            assert pipeline.table(name).through == pipeline.log.end().event_id
