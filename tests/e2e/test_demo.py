"""``make demo`` in small: people talk, go and come back, and the books balance at the end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_serve import serving

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.feature("R22")
def test_ten_people_talk_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["--people", "10", "--seconds", "5", "--pace", "0.4", "--data", str(data)]
    command = [sys.executable, "-m", "examples.demo", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "console   http://127.0.0.1:" in done.stdout
    assert "balanced: nothing lost, nothing doubled" in done.stdout
    counts = {words[0]: int(words[-1].replace(",", "")) for line in done.stdout.splitlines()
              if len(words := line.rsplit(maxsplit=1)) == 2 and words[1].replace(",", "").isdecimal()}  # fmt: skip
    assert counts["  private messages"] > 0 and counts["  group messages"] > 0 and counts["  heard in rooms"] > 0
    # The books that it printed are those of the data that it leaves.
    audit = [sys.executable, "-m", "pixiu", "audit", "--data", str(data), "--json"]
    report = json.loads(subprocess.run(audit, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert report["balanced"] and report["accepted"] == counts["  accepted"] and not report["waiting"]


def test_people_come_to_a_server_that_runs_here(tmp_path: Path) -> None:
    data = tmp_path / "pixiu-data"
    command = [sys.executable, "-m", "examples.demo", "--people", "6", "--seconds", "2", "--pace", "0.3"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with serving(data, "--dev", seconds_max=100) as served:
        for _ in range(2):  # a second demo on the same server is as good as the first
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert "charts    http://{}:{}/#/pipeline".format(*served.address("http")) in done.stdout
            assert "balanced: nothing lost, nothing doubled" in done.stdout
        assert served.get("/healthz")[0] == 200
