"""One supervised process, whatever becomes of its log and of those who are told."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pixiu.config.cluster import read_cluster_file
from pixiu.node.cluster import child as child_module
from pixiu.node.cluster.child import Child, ChildState
from pixiu.node.cluster.layout import STATE, ChildPlan, read_state
from pixiu.node.cluster.supervisor import Supervisor, end_leftovers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

READY = "import json, sys, time; print(json.dumps({'address': 'x'}), flush=True); "


def child_of(folder: Path, program: str, changed: Callable[[Child, str], object]) -> Child:
    plan = ChildPlan("broker-0-0", "broker", 0, 0, (sys.executable, "-c", program), "127.0.0.1:1")
    return Child(plan, folder / "broker-0-0.log", changed=changed)


async def test_a_log_that_grows_too_large_begins_anew_under_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "LOG_BYTES_MAX", 10_000)
    program = READY + "\nwhile True: print('x' * 99, file=sys.stderr, flush=True); time.sleep(0.0005)"
    child = child_of(tmp_path, program, lambda _child, _words: None)
    child.start()
    path = tmp_path / "broker-0-0.log"
    try:
        async with asyncio.timeout(20):
            for _ in range(3):
                while not path.exists() or path.stat().st_size <= 10_000:
                    await asyncio.sleep(0.01)
                child.turn_log()
                assert path.stat().st_size < 10_000
        assert (tmp_path / "broker-0-0.log.1").stat().st_size > 10_000
    finally:
        await child.stop()
    assert b"\0" not in path.read_bytes(), "it appends to the end that there is"


async def test_a_process_is_ready_also_where_its_log_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    told: list[ChildState] = []

    def changed(child: Child, _words: str) -> None:
        told.append(child.state)

    child = child_of(folder, "import time; time.sleep(0.5)\n" + READY + "time.sleep(60)", changed)
    child.start()
    try:
        async with asyncio.timeout(20):
            while child.pid is None:
                await asyncio.sleep(0.01)
            shutil.rmtree(folder)
            await child.is_ready.wait()
        assert told[-1] is ChildState.RUNNING
    finally:
        await child.stop()


async def test_a_full_disk_does_not_end_the_keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.toml"
    path.write_text('zookeeper = "zk://127.0.0.1:1/x"\n[roles.broker]\n', encoding="utf-8")

    def say(_line: str) -> None:
        raise BrokenPipeError

    supervisor = Supervisor(tmp_path / "c", read_cluster_file(path), say=say)

    def full(**_more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor.layout, "write_state", full)
    child = child_of(tmp_path, READY + "raise SystemExit(1)", supervisor._changed)
    child.start()
    try:
        async with asyncio.timeout(20):
            while child.restarts < 2:
                await asyncio.sleep(0.01)
    finally:
        await child.stop()
        await supervisor.down()


async def test_who_is_told_to_end_while_it_starts_starts_nothing_more_and_says_nothing_wrong(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('zookeeper = "zk://127.0.0.1:1/p"\n[roles.shard]\n[roles.proxy]\n', encoding="utf-8")
    lines: list[str] = []
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: wrong.append(context))
    supervisor = Supervisor(tmp_path / "c", read_cluster_file(path), say=lines.append)
    try:
        coming = asyncio.create_task(supervisor.up())
        while not lines:
            await asyncio.sleep(0.01)
        supervisor.wants_down.set()  # Ctrl-C
        await asyncio.wait_for(coming, 10)
        assert not supervisor.is_up
    finally:
        await supervisor.down()
    del coming
    gc.collect()
    await asyncio.sleep(0)
    assert [line.split() for line in lines] == [["shard-0-0", "starts"], ["shard-0-0", "stopped"]]
    assert wrong == []


async def test_whoever_is_still_starting_is_found_by_the_next_supervisor(tmp_path: Path) -> None:
    """It may never be ready, and its supervisor may be killed meanwhile."""
    path = tmp_path / "c.toml"
    path.write_text('zookeeper = "zk://127.0.0.1:1/x"\n[roles.broker]\n', encoding="utf-8")
    supervisor = Supervisor(tmp_path / "c", read_cluster_file(path), say=lambda _line: None)
    child = supervisor.children["broker-0-0"]
    child.plan = replace(child.plan, command=(sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path / "c")))
    child.start()
    try:
        async with asyncio.timeout(20):
            while child.pid is None:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert child.state is ChildState.STARTING
        assert read_state(tmp_path / "c")["nodes"] == [{"name": "broker-0-0", "pid": child.pid, "state": "starting"}]
        assert [child.plan.name in line for line in await asyncio.to_thread(end_leftovers, tmp_path / "c")] == [True]
        async with asyncio.timeout(20):
            while child.restarts == 0:
                await asyncio.sleep(0.01)
    finally:
        await child.stop()
        await supervisor.down()


def test_leftovers_end_as_a_cluster_does_the_registry_last(tmp_path: Path) -> None:
    """A role that is to leave in order needs it."""
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", str(tmp_path)]
    names = ["zookeeper-1", "shard-0-0", "shard-0-1", "broker-0-0"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in names]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline()
        rows = [{"name": name, "pid": process.pid} for name, process in zip(names, processes, strict=True)]
        (tmp_path / STATE).write_text(json.dumps({"nodes": rows}), encoding="utf-8")
        lines = end_leftovers(tmp_path)
        assert [line.split()[0] for line in lines] == ["broker-0-0", "shard-0-0", "shard-0-1", "zookeeper-1"]
        assert end_leftovers(tmp_path) == []
    finally:
        for process in processes:
            process.kill()
            process.communicate()
