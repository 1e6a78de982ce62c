"""What Spark's Java says: nothing at every start, and in a line or two what is wrong with a query."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pixiu.model.errors import RequestError
from pixiu.pipeline.java import worth_saying
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.query import query_spark
from tests.needs import require_java
from tests.node.test_erasure import talk
from tests.pipeline.conftest import SESSION_SECONDS

CHILD = """
import sys
from pathlib import Path
from pixiu.pipeline.session import open_session
spark = open_session(Path(sys.argv[1]), spark_url="local[1]", memory="512m", for_short_runs=True)
spark._jvm.System.err.println("something worth saying")
spark.stop()
spark._sc._gateway.shutdown()
spark._sc._gateway.proc.stdin.close()
spark._sc._gateway.proc.wait()
"""


def test_only_the_lines_that_java_says_at_every_start_are_left_out() -> None:
    lines = [b"WARNING: Using incubator modules: jdk.incubator.vector\n", b"WARNING: it is full\n", b"\n", b"no end"]
    assert list(worth_saying(iter(lines))) == lines[1:]


@pytest.mark.serial
@pytest.mark.timeout(SESSION_SECONDS)
def test_a_session_starts_without_a_word_and_what_java_says_is_heard(tmp_path: Path) -> None:
    require_java()
    words = [sys.executable, "-c", CHILD, str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=SESSION_SECONDS, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "something worth saying\n")


def test_what_is_wrong_with_a_query_is_said_without_a_plan_and_a_stack(
    spark: Any, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(talk(data))
    fill_lake(data)
    capfd.readouterr()
    for text, says in [
        ("SELECT nothing FROM messages", "`nothing`"),
        ("SELECT 1 FROM nowhere", "`nowhere`"),
        ("SELECT (", "Syntax error"),
    ]:
        with pytest.raises(RequestError, match=says) as refused:
            query_spark(spark, data, text)
        assert len(str(refused.value).splitlines()) <= 13
        assert "Project" not in str(refused.value) and "JVM" not in str(refused.value)
    told = capfd.readouterr()
    assert told.out + told.err == ""
