"""``pixiu sim``: exit codes, the summary, a failure that can be replayed."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from pixiu.cli.sim import app
from pixiu.testing.replication import runs as log_runs
from pixiu.testing.replication import world


def sim(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", "sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def test_seeds_that_hold_are_0_and_a_summary() -> None:
    result = sim("--seeds", "6", "--jobs", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("6 seeds, every invariant held: ")
    assert re.search(r"[\d.]+ s of CPU per seed \(median\)$", result.stdout.strip())
    assert result.stderr == ""


def test_a_seed_that_fails_is_1_with_its_number_and_a_script_that_replays() -> None:
    result = sim("--seeds", "200", "--mutant", "E23", "--jobs", "1")
    assert result.returncode == 1
    assert re.match(r"seed \d+: Violation: I8: ", result.stdout)
    replay = result.stdout.splitlines()[-1].removeprefix("replay: pixiu sim ")
    again = sim(*replay.split(), "--trace")
    assert again.returncode == 1
    assert "heal" in again.stdout
    assert again.stdout.splitlines()[-1] == result.stdout.splitlines()[-1]


def test_json() -> None:
    held = json.loads(sim("--seeds", "3", "--first", "5", "--jobs", "1", "--json").stdout)
    assert (held["seeds"], held["first"], held["failed"]) == (3, 5, None)
    assert held["median_cpu_seconds"] > 0
    failed = json.loads(sim("--seeds", "50", "--mutant", "repeats", "--jobs", "1", "--json").stdout)["failed"]
    assert failed["failure"].startswith("Violation: I2: ")
    assert failed["replay"].endswith("--mutant repeats")


class Interrupted:
    """Ctrl-C during this call of something."""

    def __init__(self, call: Any, at: int) -> None:
        self._call, self._left = call, at

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        return self._call(*arguments, **options)


def test_ctrl_c_says_what_held_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ([], ["--json"]):
        monkeypatch.setattr(log_runs, "run", Interrupted(world.run, 4))
        told = CliRunner().invoke(app, ["--world", "log", "--seeds", "50", "--jobs", "1", *options])
        assert told.exit_code == 130
        if options:
            found = json.loads(told.stdout)
            assert (found["seeds"], found["stopped"], found["failed"]) == (3, True, None)
        else:
            assert told.stdout.startswith("stopped after 3 of 50 seeds, every invariant held: ")


def test_ctrl_c_at_the_first_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_runs, "run", Interrupted(world.run, 1))
    told = CliRunner().invoke(app, ["--world", "log", "--seeds", "50", "--jobs", "1"])
    assert (told.exit_code, told.stdout[:25]) == (130, "stopped after 0 of 50 see")


def test_ctrl_c_while_a_script_is_shortened_still_names_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_runs, "explain", Interrupted(log_runs.explain, 1))
    told = CliRunner().invoke(app, ["--mutant", "no-lease", "--seeds", "60", "--jobs", "1"])
    assert told.exit_code == 1
    seed = re.match(r"seed (\d+): ", told.stdout)
    assert seed is not None
    assert (
        told.stdout.splitlines()[-1] == f"replay: pixiu sim --world log --seeds 1 --first {seed[1]} --mutant no-lease"
    )


def test_mutants_are_listed() -> None:
    listed = json.loads(sim("--list-mutants", "--json").stdout)
    assert {"E20", "E21", "E22", "E23", "E24", "E25", "E43", "race", "two-numberers", "T6"} <= listed.keys()
    lines = sim("--list-mutants").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == list(listed)


def test_the_world_of_the_replicated_log_and_its_mutants_by_their_names() -> None:
    held = json.loads(sim("--world", "log", "--seeds", "3", "--jobs", "1", "--json").stdout)
    assert (held["seeds"], held["world"], held["failed"]) == (3, "log", None)
    failed = sim("--mutant", "no-lease", "--seeds", "60", "--jobs", "1")
    assert failed.returncode == 1
    replay = failed.stdout.splitlines()[-1].removeprefix("replay: pixiu sim ")
    assert sim(*replay.split(), "--trace").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mutant", "nonsense"],
        ["--world", "nonsense"],
        ["--world", "log", "--mutant", "E22"],
        ["--seeds", "0"],
        ["--seeds", "x"],
        ["--first", "-1"],
        ["--jobs", "0"],
        ["--keep", "1,2"],
        ["--seeds", "1", "--keep", "one"],
        ["--trace"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    result = sim(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: ")
