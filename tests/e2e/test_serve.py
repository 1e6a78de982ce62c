"""``pixiu serve`` as a user runs it: what it prints, what it answers, how it stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pixiu.runtime.datadir import find_server

ALIVE = b"\x11" + bytes(19)
ALIVE_ANSWER = b"\xc9\x00" + bytes(8)


@dataclass
class Served:
    """A running ``pixiu serve`` and what it said."""

    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    def address(self, word: str) -> tuple[str, int]:
        """Where the queue or HTTP listens."""
        (text,) = [line for line in self.lines if line.startswith(f"{word} listening on ")]
        host, _, port = text.rpartition(" ")[2].rpartition(":")
        return host, int(port)

    def get(self, path: str) -> tuple[int, str]:
        """Ask over HTTP."""
        host, port = self.address("http")
        try:
            with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def serving(data: Path, *arguments: str, command: Sequence[str] = (), seconds_max: float = 30) -> Iterator[Served]:
    """Start it on free ports, and wait until it has said everything."""
    command = command or [sys.executable, "-m", "pixiu"]
    ports = ["--port", "0", "--queue-port", "0"]
    process = subprocess.Popen(
        [*command, "serve", "--no-pipeline", "--data", str(data), *ports, *arguments], stdout=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(seconds_max, process.kill)
    watchdog.start()
    try:
        served = Served(process)
        assert process.stdout is not None
        for line in process.stdout:
            served.lines.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        yield served
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def speak_alive(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(ALIVE)
        return connection.recv(100)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("serve") / "data", "--dev") as running:
        yield running


def test_it_says_where_everything_is_and_what_to_try(served: Served) -> None:
    text = "\n".join(served.lines)
    assert re.search(r"^Pixiu \d+\.\d+\.\d+$", text, flags=re.MULTILINE)
    assert re.search(r"^queue listening on 127\.0\.0\.1:\d+$", text, flags=re.MULTILINE)
    assert re.search(r"^data in .*data$", text, flags=re.MULTILINE)
    queue_port = served.address("queue")[1]
    assert f"queue pub hello 'good morning' --port {queue_port}" in text
    host, port = served.address("http")
    assert f"curl http://{host}:{port}/metrics" in text


def test_the_queue_answers(served: Served) -> None:
    assert speak_alive(served.address("queue")) == ALIVE_ANSWER


def test_health_readiness_metrics_and_the_page(served: Served) -> None:
    assert served.get("/healthz") == (200, '{"status": "ok"}\n')
    status, body = served.get("/readyz")
    assert (status, json.loads(body)) == (200, {"ready": True, "reasons": {}, "notes": {}})
    status, body = served.get("/metrics")
    assert status == 200
    assert "pixiu_queue_connections" in body
    assert served.get("/")[0] == 200
    assert served.get("/nowhere")[0] == 404


def test_every_declared_metric_is_exported(served: Served) -> None:
    from pixiu.node.metrics import DECLARED

    body = served.get("/metrics")[1]
    for metric in DECLARED:
        assert f"# HELP {metric.name} " in body


@pytest.mark.feature("QA8")
def test_a_signal_stops_it_in_order_and_frees_the_directory(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running:
        holder = find_server(tmp_path / "data")
        assert holder is not None
        assert holder.pid == running.process.pid
        assert holder.address == "{}:{}".format(*running.address("queue"))
        assert holder.http == "{}:{}".format(*running.address("http"))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=20) == 0
    assert find_server(tmp_path / "data") is None


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running:
        second = subprocess.run(
            [sys.executable, "-m", "pixiu", "serve", "--data", str(tmp_path / "data"), "--port", "0"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert second.returncode == 1
        assert f"is in use by pid {running.process.pid} (127.0.0.1:" in second.stderr
        assert "Traceback" not in second.stderr
        assert speak_alive(running.address("queue")) == ALIVE_ANSWER


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = subprocess.run(
            [sys.executable, "-m", "pixiu", "serve", "--data", str(tmp_path), "--queue-port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert failed.returncode == 1
    assert "in use by pid" in failed.stderr and "--queue-port 0" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_settings_come_from_file_variable_and_option(tmp_path: Path) -> None:
    (tmp_path / "pixiu.toml").write_text('[log]\npath = "stdout"\nlevel = "debug"\n', encoding="utf-8")
    failed = subprocess.run(
        [sys.executable, "-m", "pixiu", "serve", "--config", "pixiu.toml", "--set", "queue.prot=1"],
        cwd=tmp_path,
        env={**os.environ, "PIXIU_JOURNAL__FLUSH": "none"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (failed.returncode, failed.stderr) == (
        2,
        "pixiu: unknown setting queue.prot; did you mean port?\n",
    )
    assert not (tmp_path / "pixiu-data").exists()
