"""The command where only what the server needs is installed: all of it explains itself, and says what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.runtime.java import find_java
from tests.cli.bare_child import MISSING
from tests.needs import skip_or_fail


def bare(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.cli.bare_child", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_command_has_its_help() -> None:
    assert {"kazoo", "valkey", "grpc", "cassandra", "pyspark", "tantivy"} <= MISSING
    done = bare("every --help")
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert {"pixiu cluster up", "pixiu role", "pixiu pipeline run", "pixiu queue pub", "pixiu doctor"} <= set(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("audit", "--registry", "zk://127.0.0.1:1/pubsub"), "kazoo"),
        (("queue", "topics", "--url", "zk://127.0.0.1:1/pubsub"), "kazoo"),
        (("role", "router", "--registry", "zk://127.0.0.1:1/pubsub"), "kazoo"),
        (("cluster", "up", "examples/cluster-3.toml", "--data", "FOLDER"), "pyspark"),
        (("sql", "SELECT 1"), "pyarrow"),
    ],
)
def test_what_needs_more_says_what(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    if said == "pyspark" and find_java() is None:
        skip_or_fail("without Java the command asks for Java first")
    done = bare(*(str(tmp_path) if each == "FOLDER" else each for each in arguments))
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert said in done.stderr and "make setup" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
