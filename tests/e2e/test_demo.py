"""``make demo`` in small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_serve import serving

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.feature("R22")
def test_demo_survives_a_kill_detects_a_flipped_bit_and_audits_agree(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["--people", "10", "--seconds", "5", "--pace", "0.4", "--kills", "1", "--data", str(data)]
    command = [sys.executable, "-m", "examples.demo", *words]
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nonexistent"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False, cwd=ROOT, env=environment
    )  # Spark has tests of its own: without Java the demo says so and goes on
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert "proved: nothing lost, nothing doubled" in done.stdout
    assert rows["kill"][:1] == ["-9"] and rows["lost"] == rows["doubled"] == ["0"]
    assert rows["detected"] == ["yes"] and rows["repaired"][0] == "yes,"
    assert rows["Spark"] == ["no", "Java", "17"]
    # The audits' rows are those of the data that the demo leaves.
    audit = [sys.executable, "-m", "pixiu", "audit", "--data", str(data), "--json"]
    report = json.loads(subprocess.run(audit, capture_output=True, text=True, timeout=60, check=True).stdout)
    counts = [f"{report[name]:,}" for name in ("accepted", "intended", "acked", "waiting", "expired", "dead")]
    assert rows["Pixiu"] == rows["DuckDB"] == counts
    assert report["accepted"] > 10 and report["balanced"] and not report["waiting"]


def test_demo_fails_when_an_audit_disagrees(tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ["--people", "6", "--seconds", "2", "--pace", "0.3", "--kills", "0", "--data", str(data)]
    program = (
        "import sys, examples.demo.run as run; sys.argv = ['demo', *sys.argv[1:]]; honest = run.audit_by_duckdb\n"
        "def miscount(data, through):\n"
        "    counts = honest(data, through)\n"
        "    return counts | {'acked': counts['acked'] - 1}\n"
        "run.audit_by_duckdb = miscount\n"
        "sys.exit(run.main())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, timeout=150, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT proved" in done.stdout


def test_people_come_to_a_server_that_runs_here(tmp_path: Path) -> None:
    data = tmp_path / "pixiu-data"
    command = [sys.executable, "-m", "examples.demo", "--here", "--people", "6", "--seconds", "2", "--pace", "0.3"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": path}
    with serving(data, "--dev", seconds_max=100) as served:
        for _ in range(2):  # a second demo on the same server starts from its messages
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path, env=environment
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "charts     http://{}:{}/#/pipeline".format(*served.address("http")) in done.stdout
            assert "balanced: nothing lost, nothing doubled" in done.stdout
        assert served.get("/healthz")[0] == 200
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 2 and "start one with: make serve" in done.stderr
