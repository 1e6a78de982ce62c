"""``tools/install``: packages once, one make at a time, and again where it was interrupted."""

import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "install"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment whose installers write down what they are asked for, and fail while there is a file ``broken``."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    note = f'echo "{{}} $@" >>{folder}/asked\nsleep 0.2\ntest ! -e {folder}/broken'
    write(folder / "bin" / "python", f'test "$7" = get && exit 1\n{note.format("pip")}')  # pip config get …
    write(folder / "bin" / "uv", note.format("uv"))
    return folder


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def asked(venv: Path) -> list[str]:
    return (venv / "asked").read_text(encoding="utf-8").splitlines()


def install(venv: Path, name: str = ".pipeline-2") -> "subprocess.Popen[str]":
    command = [str(TOOL), str(venv / name), "installing a lot", "--no-deps", "-r", "some.txt"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_it_installs_once_and_takes_the_place_of_an_older_stamp(venv: Path) -> None:
    (venv / ".pipeline-1").touch()
    (venv / ".dev-1").touch()
    assert install(venv).communicate(timeout=20)[0] == "installing a lot\n"
    assert sorted(path.name for path in venv.glob(".*-*")) == [".dev-1", ".pipeline-2"]
    assert install(venv).communicate(timeout=20)[0] == ""
    (once,) = asked(venv)
    assert once.startswith("uv pip install")
    assert once.endswith("--no-deps -r some.txt")


def test_where_uv_cannot_be_had_or_fails_pip_does_it(venv: Path) -> None:
    (venv / "bin" / "uv").unlink()
    said = install(venv).communicate(timeout=20)[0]
    assert said.splitlines()[0] == "installing a lot"
    assert "uv could not; once more, with pip" in said
    first, last = asked(venv)
    assert first.startswith("pip -m pip")
    assert first.endswith("requirements/uv.txt")
    assert last.endswith("install --no-deps -r some.txt")
    assert (venv / ".pipeline-2").exists()


def test_what_failed_is_done_again(venv: Path) -> None:
    (venv / "broken").touch()
    failed = install(venv)
    failed.communicate(timeout=20)
    assert failed.returncode != 0
    assert not (venv / ".pipeline-2").exists()
    (venv / "broken").unlink()
    install(venv).communicate(timeout=20)
    assert (venv / ".pipeline-2").exists()


def test_two_at_a_time_are_one_after_the_other_and_the_second_finds_it_done(venv: Path) -> None:
    said = [process.communicate(timeout=20)[0] for process in [install(venv) for _ in range(3)]]
    assert len(asked(venv)) == 1
    assert sum("installing a lot" in each for each in said) == 1
