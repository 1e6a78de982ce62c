"""The pipeline beside a node: real processes, which fail, wait, and end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import pixiu
from pixiu.config.pipeline import PipelineSettings
from pixiu.node.pipeline_child import PipelineChild
from pixiu.runtime.clock import SystemClock
from tests.needs import require_java
from tests.servers import wait_for


@asynccontextmanager
async def child(data: Path, **settings: Any) -> AsyncIterator[PipelineChild]:
    chosen = PipelineSettings(first_after_s=0, **settings)
    running = PipelineChild(data, chosen, SystemClock(), log_end=lambda: 5)
    running.start()
    try:
        yield running
    finally:
        await running.stop()


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_without_java_it_says_so_and_tries_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "queue").mkdir()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "")
    async with child(tmp_path) as running:
        await until(lambda: running.restarts > 0)
        shown = running.view()
        assert shown["state"] == "failed"
        assert str(shown["reason"]).startswith("the pipeline needs Java 17")
        assert shown["log"] == "5"
        await until(lambda: running.view()["next_at"] is not None)


async def test_it_waits_while_another_pipeline_holds_the_lake(tmp_path: Path) -> None:
    require_java()
    from pixiu.pipeline.lake.lock import LakeLock
    from pixiu.pipeline.lake.place import Place

    async with pixiu.Node.embedded(tmp_path) as node:
        await node.create_user("alice")
    with LakeLock(Place(tmp_path).folder):
        async with child(tmp_path) as running:
            await until(lambda: running.state == "waiting")
            shown = running.view()
            assert "another pipeline runs" in str(shown["reason"])
            pid = shown["pid"]
            assert isinstance(pid, int)
            assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
            assert running.restarts == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_an_install_that_fails_is_said_and_one_that_runs_ends_with_the_node(tmp_path: Path) -> None:
    async with child(tmp_path, install="sh -c 'echo pixiu: no network >&2; exit 3'") as running:
        await until(lambda: running.restarts > 0)
        assert (running.state, running.reason) == ("failed", "no network")
    async with child(tmp_path, install="sleep 100") as running:
        await until(lambda: running.state == "installing" and running.view()["pid"] is not None)
        pid = running.view()["pid"]
    assert isinstance(pid, int)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    async with child(tmp_path, install="no-such-command-anywhere") as running:
        await until(lambda: running.restarts > 0)
        assert running.reason.startswith("cannot start no-such-command-anywhere")


def test_what_belongs_to_a_server_ends_with_it_and_so_does_what_it_has_started() -> None:
    code = (
        "import subprocess, time; from pixiu.cli.supervised import obey_parent; obey_parent();"
        "print(subprocess.Popen(['sleep', '100'], stdin=subprocess.DEVNULL).pid); time.sleep(100)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    started = int(process.stdout.readline())
    process.stdin.close()  # as the death of a parent does
    assert process.wait(20) == -signal.SIGKILL
    wait_for(lambda: not _lives(started), what="the process that it started to end")
    process.stdout.close()


def test_what_ends_by_itself_while_the_server_lives_has_ended_well() -> None:
    code = "from pixiu.cli.supervised import obey_parent; obey_parent(); import time; time.sleep(0.3)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.wait(20) == 0


def _lives(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False
