"""Output that nobody reads: a server goes on, a listing ends as by SIGPIPE, and neither says a word about it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from pixiu.runtime.datadir import find_server
from tests.servers import QueueProcess, wait_for

LISTINGS = [
    ["--help"],
    ["queue", "topics"],
    ["queue", "sub", "letters"],
    ["queue", "dump"],
    ["queue", "tail", "--json"],
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("streams") / "data"
    with QueueProcess(folder):
        for words in (["create", "letters"], ["pub", "letters", *map(str, range(200))]):
            subprocess.run([sys.executable, "-m", "pixiu", "queue", *words, "--data", str(folder)], check=True)
        yield folder


def command_of(words: list[str], data: Path) -> list[str]:
    where = ["--data", str(data)] if not words[-1].startswith(("--help", "--version")) else []
    return [sys.executable, "-m", "pixiu", *words, *where]


def unread_pipe() -> int:
    """The end to write to, of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_a_listing_that_nobody_reads_ends_as_by_sigpipe_and_in_silence(words: list[str], data: Path) -> None:
    pipe = unread_pipe()
    done = subprocess.run(command_of(words, data), stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_a_listing_whose_output_was_closed_before_it_began_does_its_work(words: list[str], data: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *command_of(words, data)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--version"], ["queue", "topics"], ["queue", "dump"]], ids=" ".join)
def test_output_that_cannot_be_written_is_an_error_in_one_line(words: list[str], data: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command_of(words, data), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "No space left" in done.stderr and done.stderr.count("\n") == 1


def test_an_error_is_told_also_if_nobody_reads_the_output(tmp_path: Path) -> None:
    pipe = unread_pipe()
    command = [sys.executable, "-m", "pixiu", "queue", "dump", "--data", str(tmp_path)]
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(pipe)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "there is no queue" in done.stderr


@pytest.mark.parametrize("extra", [[], ["--json"], ["--set", "log.path=stdout"]], ids=["banner", "json", "log"])
def test_a_server_goes_on_without_a_reader_of_its_output(tmp_path: Path, extra: list[str]) -> None:
    data, pipe = tmp_path / "data", unread_pipe()
    options = ["--dev", "--port", "0", "--queue-port", "0", "--no-pipeline", "--data", str(data), *extra]
    command = [sys.executable, "-m", "pixiu", "serve", *options]
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.PIPE, text=True) as server:
        os.close(pipe)
        try:
            wait_for(lambda: server.poll() is not None or bool(_http(data)), what="the server", timeout_s=30)
            with urlopen(f"http://{_http(data)}/healthz", timeout=10) as answer:
                assert answer.status == 200
        finally:
            server.terminate()
        assert server.stderr is not None
        said = server.stderr.read()
    assert server.returncode == 0
    assert "Traceback" not in said and "Broken pipe" not in said and "Logging error" not in said


def _http(data: Path) -> str:
    holder = find_server(data)
    return "" if holder is None or holder.http is None else holder.http
