"""An audit of a log with a corrupt record names the file, the byte and what to do, whichever way it is asked for."""

import re
import subprocess
import sys
from pathlib import Path

import httpx

from tests.e2e.test_surfaces import Served


def audit(*words: str) -> str:
    """What ``pixiu audit`` says where it fails."""
    command = [sys.executable, "-m", "pixiu", "audit", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_an_audit_of_a_corrupt_record_names_file_byte_and_remedy(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        for number in range(20):
            served.act(served.token("alice"), "send", to="bob", text=f"message {number}")
        served.stop()
        (journal,) = (served.data / "queue" / "journal").glob("*.log")
        content = bytearray(journal.read_bytes())
        at = content.index(b"message 3")
        content[at] ^= 1
        journal.write_bytes(content)
        served.start()
        token = served.token("root", "--admin")
        answer = httpx.get(f"{served.url}/v1/admin/audit", headers={"Authorization": f"Bearer {token}"}, timeout=30)
        assert answer.status_code == 503
        assert '"unavailable"' in answer.text
        told = [answer.text, audit("--url", served.url, "--token", token)]
        served.stop()
        told.append(audit("--data", str(served.data)))
        for text in told:
            found = re.search(rf"queue/journal/{journal.name} byte (\d+): .*pixiu queue verify --data", text)
            assert found is not None, text
            assert int(found[1]) <= at
    finally:
        served.stop(kill=True)
