"""A server with the pipeline beside it: it is there, it says what it does, and it ends with the server."""

import json
import shutil
import signal
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pixiu.pipeline.lake.lock import LakeLock
from pixiu.pipeline.lake.place import Place
from pixiu.runtime.datadir import DataDirectory
from tests.e2e.test_serve import Served, serving
from tests.needs import require_java
from tests.servers import wait_for
from tools.generated import ROOT

OPTIONS = ("--dev", "--set", "pipeline.enabled=true", "--set", "pipeline.first_after_s=0")


def ask(served: Served, path: str) -> dict[str, Any]:
    host, port = served.address("http")
    body = json.dumps({"user": "ops", "admin": True}).encode()
    wanted = urllib.request.Request(f"http://{host}:{port}/v1/dev/token", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(wanted, timeout=10) as answer:
        token = json.load(answer)["token"]
    wanted = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(wanted, timeout=30) as answer:
        return dict(json.load(answer))


@contextmanager
def waiting(data: Path) -> Iterator[tuple[Served, int]]:
    """A server whose pipeline waits for a lake that somebody else holds; and the pipeline's process."""
    require_java()
    with DataDirectory.open(data):
        pass
    with LakeLock(Place(data).folder), serving(data, *OPTIONS, seconds_max=100) as served:
        assert any(line.endswith("/#/pipeline") for line in served.lines)
        assert ask(served, "/v1/admin/pipeline/report") == {"empty": True}
        wait_for(lambda: ask(served, "/v1/admin/pipeline")["state"] == "waiting", timeout_s=60, what="the pipeline")
        shown = ask(served, "/v1/admin/pipeline")
        assert "another pipeline runs" in shown["reason"]
        yield served, shown["pid"]


def lives(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_server_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    with waiting(tmp_path / "data") as (served, pid):
        assert lives(pid)
        served.process.send_signal(number)
        served.process.wait(20)
        wait_for(lambda: not lives(pid), what="the pipeline to end")


def test_make_serve_without_java_downloads_nothing_and_says_what_to_install(tmp_path: Path) -> None:
    """``make setup-pipeline`` is what make serve runs in the background. Here it finds neither Java nor apt-get."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sh", "make", "sed", "tr", "cat", "id", "sha256sum", "cut", "awk", "nice"):
        (commands / name).symlink_to(str(shutil.which(name)))
    install = f"{shutil.which('make')} -C {ROOT} setup-pipeline"
    bare = ["env", f"PATH={commands}", "JAVA_HOME=", sys.executable, "-m", "pixiu"]
    with serving(tmp_path / "data", *OPTIONS, "--set", f"pipeline.install={install}", command=bare) as served:
        assert any(line.startswith("Charts and search need Java 17") for line in served.lines)
        wait_for(lambda: ask(served, "/v1/admin/pipeline")["state"] == "failed", timeout_s=30, what="a failed state")
        reason = ask(served, "/v1/admin/pipeline")["reason"]
    assert reason == "missing: java. Install it, on Debian: sudo apt-get install openjdk-17-jre-headless"
