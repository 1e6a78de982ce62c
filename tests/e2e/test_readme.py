"""What the README shows, done: the commands and the program."""

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_surfaces import Served
from tests.needs import require_command
from tests.servers import QueueProcess

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path_factory.mktemp("readme") / "data") as running:
        yield running


def readme_block(language: str, containing: str) -> str:
    """The code block of the README that contains some text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (block,) = [body for fence, body in blocks if fence == language and containing in body]
    return str(block)


def first_line(command: list[str]) -> str:
    """The first line that a command prints; it is ended after that."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(20, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            return process.stdout.readline()
        finally:
            watchdog.cancel()
            process.kill()


def test_the_commands_work_as_they_are_shown(queue: QueueProcess) -> None:
    lines = readme_block("", "pixiu queue create hello").splitlines()
    create, publish, subscribe = [line.split("'")[0].split() for line in lines if line.startswith("pixiu queue")]
    pixiu = [sys.executable, "-m"]
    at = ["--port", str(queue.port)]
    subprocess.run([*pixiu, *create, *at], check=True, timeout=30, capture_output=True)
    subprocess.run([*pixiu, *publish, "good morning", *at], check=True, timeout=30, capture_output=True)
    assert "good morning" in first_line([*pixiu, *subscribe, *at])


def test_curl_works_as_it_is_shown(tmp_path: Path) -> None:
    require_command("curl")
    served = Served(tmp_path / "data")
    served.start()
    try:
        said, history = [
            subprocess.run(
                ["sh", "-c", line.replace("curl 127.0.0.1:8400", f"curl -s 127.0.0.1:{served.port}")],
                capture_output=True, text=True, check=True, timeout=30,
                env={**os.environ, "TOKEN": served.token("alice")},
            ).stdout
            for line in readme_block("", "TOKEN=").splitlines()
            if line.startswith("curl")
        ]  # fmt: skip
        assert "message_id" in json.loads(said)
        assert json.loads(history)["messages"][0]["text"] == "hello"
    finally:
        served.stop()


def test_the_client_works_as_it_is_shown(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        served.act(served.token("bob"), "send", to="alice", text="good morning")
        imports, _, body = readme_block("python", "pixiu.connect").partition("\n\n")
        body = body.replace("127.0.0.1:8400", f"127.0.0.1:{served.port}").replace("text)", "text, flush=True)")
        program = f"import asyncio\n{imports}\ntoken = {served.token('alice')!r}\n"
        program += f"async def main():\n{textwrap.indent(body, '    ')}\nasyncio.run(main())"
        assert first_line([sys.executable, "-c", program]) == "bob good morning\n"
        said = served.act(served.token("bob"), "history", **{"with": "alice"})["messages"]
        assert [each["text"] for each in said if each["kind"] == "text"] == ["hello", "good morning"], "newest first"
    finally:
        served.stop()


def test_the_node_in_a_program_works_as_it_is_shown(tmp_path: Path) -> None:
    imports, _, body = readme_block("python", "Node.embedded").partition("\n\n")
    body = body.replace('"data"', repr(str(tmp_path / "data")))
    program = f"import asyncio\n{imports}\nasync def main():\n{textwrap.indent(body, '    ')}"
    program += "    print(message['text'], books['balanced'])\nasyncio.run(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "hello, Bob True\n"
