"""The same code on executors in processes of their own: finds what only pickling and paths can break."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyspark")

import pyspark

from pixiu.pipeline.query import query_duckdb
from tests.needs import require_java
from tests.pipeline.logs import say, small_segments, talk, with_node
from tests.pipeline.test_archive import log_ids

BIN = Path(pyspark.__file__).parent / "bin"
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * SECONDS)]


@pytest.fixture(autouse=True)
def _needs_spark() -> None:
    require_java()


def run(*command: str) -> None:
    environ = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]


def check(data: Path) -> None:
    """Every message once, and books that balance."""
    _, rows = query_duckdb(data, "SELECT message_id FROM messages ORDER BY message_id")
    assert [number for (number,) in rows] == log_ids(data)
    _, ((intended, accounted),) = query_duckdb(
        data, "SELECT sum(intended), sum(acked + waiting + expired + dead) FROM audit"
    )
    assert intended == accounted > 0


def test_two_executors(data: Path) -> None:
    with_node(data, talk, settings=small_segments())
    command = [sys.executable, "-m", "pixiu", "pipeline", "run", "--once", "--data", str(data)]
    run(*command, "--master", "local-cluster[2,1,1024]")
    check(data)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark master with two workers."""
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            told = tmp_path / f"{name}.log"
            environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / name)}
            with told.open("wb") as file:
                process = subprocess.Popen(
                    [str(BIN / "spark-class"), *arguments], stderr=file, stdout=file, env=environ
                )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            return told

        package = "org.apache.spark.deploy"
        told = start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = wait_for(told, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            options = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--host", "127.0.0.1")
            told = start(f"worker{number}", f"{package}.worker.Worker", *options, address)
            wait_for(told, r"(Successfully registered with master)")
        yield address


def wait_for(told: Path, pattern: str) -> str:
    """What a server says on its way up."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = re.search(pattern, told.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.2)
    raise AssertionError(told.read_text(errors="replace")[-2000:])


def test_a_standalone_cluster(data: Path, standalone: str) -> None:
    """By ``--master``, and by ``spark-submit`` as docs/pipeline.md has it."""
    with_node(data, talk, settings=small_segments())
    run(sys.executable, "-m", "pixiu", "pipeline", "run", "--once", "--data", str(data), "--master", standalone)
    check(data)
    with_node(data, lambda node: say(node, 5, begin=300), settings=small_segments())
    program = ROOT / "examples" / "spark_submit.py"
    submit = [str(BIN / "spark-submit"), "--master", standalone, str(program)]
    run(*submit, "pipeline", "run", "--once", "--data", str(data))
    check(data)
