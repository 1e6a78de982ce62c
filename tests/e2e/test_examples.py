"""The examples run as they are shown, and so does what the documents say about the data that they leave."""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.node.stores import open_stores
from pixiu.ports.stores import Lane

ROOT = Path(__file__).resolve().parent.parent.parent
QUICKSTART = ROOT / "examples" / "quickstart.py"
OUTPUT = "alice to bob: hello, Bob\n{'accepted': 1, 'intended': 2, 'acked': 1, 'waiting': 1, 'balanced': True}\n"


def pixiu(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def chat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The data that the quickstart leaves in a folder of one's own."""
    spec = importlib.util.spec_from_file_location("quickstart", QUICKSTART)
    assert spec is not None and spec.loader is not None
    quickstart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quickstart)
    asyncio.run(quickstart.main(str(tmp_path / "chat")))
    assert capsys.readouterr().out == OUTPUT
    return tmp_path / "chat"


def test_the_quickstart_prints_what_the_readme_shows() -> None:
    done = subprocess.run([sys.executable, str(QUICKSTART)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == OUTPUT
    assert OUTPUT in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_audit_prints_what_the_documents_show(chat: Path) -> None:
    done = pixiu("audit", "--data", str(chat))
    assert done.returncode == 0, done.stderr
    counts = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    text = (ROOT / "docs" / "messaging.md").read_text(encoding="utf-8")
    shown = text.partition("$ pixiu audit --data chat\n")[2].partition("```")[0]
    assert counts == [list(row) for row in re.findall(r"^ (\w+) +(\d+)$", shown, flags=re.MULTILINE)]
    # How many records of traces there are depends on how long it ran.
    assert re.sub(r"event \d+", "event 12", done.stdout.splitlines()[-1]) in shown


def test_an_entry_that_is_missing_is_named_and_a_rebuild_brings_it_back(chat: Path) -> None:
    _, stores = open_stores(chat)
    (waiting,) = [state for state in stores.inboxes.states() if state.waiting]
    (entry,) = stores.inboxes.remove(waiting.user, waiting.platform, 1, waiting.latest)
    stores.commit({lane: stores.applied(lane) for lane in Lane})
    stores.close()

    done = pixiu("audit", "--data", str(chat), "--json")
    books = json.loads(done.stdout)
    assert (done.returncode, books["balanced"], books["lost_count"]) == (1, False, 1)
    assert books["lost"] == [
        {
            "user": waiting.user,
            "platform": "first",
            "useq": 1,
            "message_id": str(entry.message_id),
            "reason": "not in the inbox",
        }
    ]

    assert pixiu("rebuild", "--data", str(chat)).returncode == 0
    done = pixiu("audit", "--data", str(chat), "--json")
    assert (done.returncode, json.loads(done.stdout)["balanced"]) == (0, True)
