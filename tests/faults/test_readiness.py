"""What ``/readyz`` says while the journal's disk refuses writes, and when it takes them again.

The journal is on a small disk of its own, so that nothing else fails; where none can be mounted the test is skipped.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.test_surfaces import Served
from tests.faults.test_disk_full import fill
from tests.servers import wait_for

pytestmark = pytest.mark.crash


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server whose journal is on a disk of one megabyte."""
    node = Served(tmp_path / "data", "journal.fill_bytes=0")
    node.start()
    node.stop()
    journal, aside = node.data / "queue" / "journal", tmp_path / "aside"
    shutil.move(journal, aside)
    journal.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(journal)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk here: mount says {mounted.stderr.strip()!r}")
    try:
        shutil.copytree(aside, journal, dirs_exist_ok=True)
        node.start()
        yield node
    finally:
        node.stop(kill=True)
        subprocess.run(["umount", "--lazy", str(journal)], check=True)


def test_readyz_says_why_while_every_journal_write_fails_and_recovers(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token('alice')}"}
    served.act(served.token("alice"), "send", to="bob", text="before")

    def send(text: str) -> httpx.Response:
        params = {"to": "bob", "text": text}
        return httpx.post(f"{served.url}/v1/actions/send", json=params, headers=headers)

    filler = fill(served.data / "queue" / "journal", leave=0)
    wait_for(lambda: send("x" * 8192).status_code == 503, what="a send that is refused")
    assert '"unavailable"' in send("x" * 8192).text
    answer = httpx.get(f"{served.url}/readyz")
    assert answer.status_code == 503
    assert "the journal cannot be written: No space left on device" in answer.text
    filler.unlink()
    wait_for(served.is_ready, what="a node that is ready without being asked to write")
    assert send("after").status_code == 200
