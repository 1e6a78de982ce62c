"""``tools/get_packages.sh``: Debian's packages where root can install them, and one line elsewhere."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "get_packages.sh"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """The whole search path of the tool: no Java, no curl, and a user who is not root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "sed", "tr", "grep", "cat"):
        (folder / name).symlink_to(str(shutil.which(name)))
    write(folder / "id", "echo 1000")
    return folder


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def get_packages(commands: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = {"PATH": str(commands)}
    return subprocess.run([TOOL, *words], env=environ, capture_output=True, text=True, timeout=60, check=False)


def become_root(commands: Path, notes: Path) -> None:
    """Root, with a package manager that takes notes and installs by making the commands appear."""
    write(commands / "id", "echo 0")
    write(commands / "apt-cache", 'test "$2" != openjdk-17-jre-headless || test ! -e "$0.new"')
    java = """printf '#!/bin/sh\\necho openjdk version \\\\"21.0.1\\\\" >&2\\n'"""
    write(
        commands / "apt-get",
        f'echo "$@" >>{notes}\ncase "$*" in *install*) test -e {notes}.offline && exit 1\n'
        f"{java} >{commands}/java; /bin/cp {commands}/id {commands}/curl; /bin/chmod +x {commands}/java;; esac",
    )


def test_one_line_says_what_to_install_where_the_user_is_not_root(commands: Path) -> None:
    done = get_packages(commands, "java", "curl", "sed")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("== missing: java curl. The tests that need it are skipped.")
    assert line.endswith("sudo apt-get install openjdk-17-jre-headless curl")


def test_a_required_need_that_is_missing_is_an_error_in_one_line(commands: Path) -> None:
    done = get_packages(commands, "--required", "java")
    assert done.returncode == 1
    assert done.stderr == (
        "pixiu: missing: java. Install it, on Debian: sudo apt-get install openjdk-17-jre-headless\n"
    )


def test_root_installs_what_is_missing_once(commands: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    become_root(commands, notes)
    done = get_packages(commands, "--required", "java", "curl")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "== installing Debian's openjdk-17-jre-headless curl (once)\n"
    (installed,) = notes.read_text(encoding="utf-8").splitlines()
    assert installed.endswith("install -y --no-install-recommends openjdk-17-jre-headless curl")
    again = get_packages(commands, "--required", "java", "curl")
    assert (again.returncode, again.stdout) == (0, "")


def test_a_newer_java_is_installed_where_debian_has_no_17(commands: Path, tmp_path: Path) -> None:
    become_root(commands, tmp_path / "notes")
    (commands / "apt-cache.new").touch()
    assert "openjdk-21-jre-headless" in get_packages(commands, "java").stdout


def test_root_without_a_network_updates_tries_again_and_says_what_is_missing(commands: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    become_root(commands, notes)
    (tmp_path / "notes.offline").touch()
    done = get_packages(commands, "curl")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("== missing: curl.")
    assert ["update" in line for line in notes.read_text(encoding="utf-8").splitlines()] == [False, True, False]


def test_java_that_is_too_old_is_missing(commands: Path) -> None:
    write(commands / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    assert "missing: java" in get_packages(commands, "java").stdout
    write(commands / "java", "echo 'openjdk version \"17.0.2\"' >&2")
    assert get_packages(commands, "java").stdout == ""


def test_make_sets_a_locale_of_its_own() -> None:
    """A machine may have none, or name one that was never generated."""
    script = "include Makefile\nshow:\n\t@env; locale charmap\n"
    environ = {"PATH": "/usr/bin:/bin", "LANG": "xx_XX", "LC_ALL": "xx_XX.ISO-8859-1"}
    done = subprocess.run(
        ["make", "-s", "-f", "-", "show"],
        input=script,
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "LC_ALL=C.UTF-8" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "UTF-8"
