"""``tools/make_venv`` says in one line what is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "make_venv"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder of commands that is the whole search path of the tool; the user in it is not root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "rm", "dirname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    write(folder / "id", "echo 1000")
    return folder


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def make_venv(commands: Path, python: str, target: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TOOL, python, target], env={"PATH": str(commands)}, capture_output=True, text=True, timeout=120
    )


def test_python_that_is_not_there(commands: Path, tmp_path: Path) -> None:
    result = make_venv(commands, "python3", tmp_path / "venv")
    assert result.returncode == 1
    assert result.stderr.startswith("Pixiu needs Python 3.11 or newer, and 'python3' is not there.")


def test_python_that_is_too_old(commands: Path, tmp_path: Path) -> None:
    write(commands / "python3", 'case "$1" in -V) echo "Python 3.9.2" ;; -c) exit 1 ;; esac')
    result = make_venv(commands, "python3", tmp_path / "venv")
    assert result.returncode == 1
    assert "'python3' is Python 3.9.2. Name another: make PYTHON=" in result.stderr


def test_debian_without_venv_names_the_command_to_run(commands: Path, tmp_path: Path) -> None:
    script = f'case "$2" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"'
    write(commands / "python3", script)
    result = make_venv(commands, "python3", tmp_path / "venv")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert result.returncode == 1
    assert result.stderr == (f"Python's venv module is missing. Run: sudo apt-get install -y python{version}-venv\n")


def test_debian_without_venv_as_root_installs_it(commands: Path, tmp_path: Path) -> None:
    """The package manager here only takes notes, and makes the module appear."""
    write(commands / "id", "echo 0")
    write(commands / "apt-get", f'echo "$@" >> {tmp_path}/notes; : > {tmp_path}/installed')
    script = f'case "$2" in *ensurepip*) test -e {tmp_path}/installed; exit ;; esac\n'
    write(commands / "python3", script + f'case "$2" in venv) exit 0 ;; esac\nexec {sys.executable} "$@"')
    assert make_venv(commands, "python3", tmp_path / "venv").returncode == 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (tmp_path / "notes").read_text().splitlines() == ["update -qq", f"install -y python{version}-venv"]


def test_an_environment_that_works_is_kept_and_one_that_was_moved_is_made_again(tmp_path: Path) -> None:
    def make(target: Path) -> str:
        command = [str(TOOL), sys.executable, str(target)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    assert make(tmp_path / "venv").startswith("making ")
    assert make(tmp_path / "venv") == ""
    (tmp_path / "venv").rename(tmp_path / "moved")
    assert make(tmp_path / "moved").startswith("making ")
    assert make(tmp_path / "moved") == ""
