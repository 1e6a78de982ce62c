"""The package as others get it: built, installed into an empty environment, started."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import threading
import venv
import zipfile
from pathlib import Path

import pytest

from pixiu import __version__

ROOT = Path(__file__).resolve().parent.parent.parent
ALIVE = b"\x11" + bytes(19)

pytestmark = [pytest.mark.serial, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it, without a download."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return target


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, and a view of the dependencies that are locked here."""
    path = tmp_path_factory.mktemp("environment")
    venv.create(path, with_pip=False)
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(path / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = path.glob("lib/python*/site-packages")
    # A path in a .pth file is only searched after the environment's own packages, and brings none of the
    # editable installs there along.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return path


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"pixiu-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"pixiu", f"pixiu-{__version__}.dist-info"}
    assert "pixiu/py.typed" in names
    assert f"pixiu-{__version__}.dist-info/licenses/LICENSE" in names
    packaged = {name for name in names if name.startswith("pixiu/") and name.endswith(".py")}
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/pixiu").rglob("*.py")}
    assert packaged == sources
    static = ROOT / "src/pixiu/console/static"
    pages = {path.relative_to(ROOT / "src").as_posix() for path in static.rglob("*") if path.is_file()}
    assert pages <= set(names) and len(pages) > 20


def test_the_sdist_has_all_that_is_needed_to_test_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        "Makefile",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "tests/test_tidy.py",
        "requirements/dev.txt",
    ):
        assert name in names
    for name in ("tools/make_venv", "docs/architecture.md", "examples/pixiu.toml", "src/pixiu/__init__.py"):
        assert name in names
    assert not any(name.startswith((".venv", ".git/", "pixiu-data")) for name in names)


def test_the_command_is_installed_and_is_the_installed_one(environment: Path) -> None:
    run = subprocess.run(
        [environment / "bin" / "pixiu", "--version"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert run.stdout == f"pixiu {__version__}\n"
    code = "import pixiu; print(pixiu.__file__)"
    where = subprocess.run(
        [environment / "bin" / "python", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert Path(where.stdout.strip()).is_relative_to(environment)


def test_the_installed_queue_starts_and_speaks(environment: Path, tmp_path: Path) -> None:
    command = [str(environment / "bin" / "pixiu"), "queue", "serve", "--data", str(tmp_path / "data")]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        watchdog = threading.Timer(30, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            listening = next(line for line in process.stdout if line.startswith("queue listening on "))
            host, _, port = listening.split()[-1].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(ALIVE)
                assert connection.recv(10) == b"\xc9\x00" + bytes(8)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            watchdog.cancel()
            process.kill()
