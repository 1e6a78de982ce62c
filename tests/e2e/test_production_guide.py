"""The guide "From --dev to production", followed as root with a service user.

The commands come from docs/operations.md. Only the paths, the port and the user's name are replaced, and systemd's part
is done by a command that applies the unit's user and privileges. ``make test-fresh`` follows the guide unchanged.
"""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.chromium import ARGUMENTS, CHROMIUM, require_chromium
from tests.needs import require_command
from tests.servers import free_port, wait_for
from tools.generated import ROOT
from tools.guide import guide_blocks, service_command

USER = "nobody"
INSTALL = "Install Pixiu"
"""The step that takes minutes; the tests run the Pixiu that is being tested."""


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: the guide changes owners and starts a server as another user")
    for name in ("openssl", "curl"):
        require_command(name)


class Namespace:
    """A view of the file system in which every user can read this Python and this checkout, wherever they are."""

    def __init__(self, folder: Path) -> None:
        script = ["set -e", f"mkdir {folder}/python {folder}/checkout"]
        places = {"python": Path(sys.base_prefix), "checkout": ROOT}
        script += [f"mount --rbind {place} {folder}/{name}" for name, place in places.items()]
        hidden = {_first_hidden(place) for place in places.values()} - {None}
        script += [f"mount -t tmpfs -o mode=755 tmpfs {place}" for place in hidden]
        for name, place in places.items():
            if _first_hidden(place) is not None:
                script += [f"mkdir -p {place}", f"mount --rbind {folder}/{name} {place}"]
        script += ["echo ready", "exec sleep 3600"]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", "\n".join(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().decode()
        if said != "ready\n":
            self.close()
            pytest.skip(f"mount namespaces are not allowed here: {said}")
        process = f"/proc/{self._process.pid}"
        self.command = ["nsenter", f"--mount={process}/ns/mnt", f"--root={process}/root"]  # which may be a chroot
        """Put this before a command to run it with this view."""

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _lives(pid: int) -> bool:
    """Whether a process runs. Where process 1 does not wait for orphans, an ended one stays as a zombie."""
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return False


def _first_hidden(path: Path) -> Path | None:
    """The outermost directory above a path that other users may not enter."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)


class Production:
    """One machine on which the guide is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.group = str(pwd.getpwnam(USER).pw_gid)
        self.data = folder / "var/lib/pixiu"
        self.keys = self.data / "keys"
        self.log = folder / "service.log"
        (folder / "bin").mkdir()
        (folder / "bin" / "pixiu").symlink_to(Path(sys.executable).parent / "pixiu")
        self.namespace = Namespace(folder)
        self.environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def replaced(self, text: str) -> str:
        """A text of the guide with this machine's paths, port and user."""
        for path in ("/etc/pixiu", "/var/lib/pixiu", "/var/log/pixiu", "/backup", "/opt/pixiu/bin"):
            text = text.replace(path, str(self.folder / ("bin" if path == "/opt/pixiu/bin" else path.lstrip("/"))))
        for word, ours in ((" -g pixiu", f" -g {self.group}"), (" -o pixiu", f" -o {USER}")):
            text = text.replace(word, ours)
        text = text.replace("chgrp pixiu", f"chgrp {self.group}").replace("8400", str(self.port))
        return text.replace("User=pixiu", f"User={USER}").replace("Group=pixiu", f"Group={self.group}")

    def follow(self) -> str:
        """Run the commands of the guide in one shell; start the service where systemctl would. Returns the output."""
        script = ["set -ex", f"cd {ROOT}"]
        for block in guide_blocks():
            if block.step == INSTALL:
                continue
            if block.language == "toml":
                settings = self.folder / "etc/pixiu/pixiu.toml"
                script.append(f"cat >{settings} <<'END'\n{self.replaced(block.text)}END")
            elif not block.language:
                script += [self.line(line) for line in block.text.splitlines()]
        done = subprocess.run(
            [*self.namespace.command, "sh", "-c", "\n".join(script)],
            env=self.environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self.said()}"
        return done.stdout

    def line(self, line: str) -> str:
        """One command of the guide, as this machine runs it."""
        if line.startswith("useradd") or "/etc/systemd" in line:
            return ":"
        if line.startswith("systemctl"):
            wait = f"until curl -sf https://localhost:{self.port}/readyz; do kill -0 $!; sleep 0.2; done"
            logs = self.replaced("install -d -o pixiu -g pixiu /var/log/pixiu")  # LogsDirectory= of the unit
            return f"{logs}\n{self.service_line()} & echo $! >{self.folder}/pid\n{wait}"
        return self.replaced(line)

    def service_line(self) -> str:
        unit = self.replaced((ROOT / "deploy/systemd/pixiu.service").read_text(encoding="utf-8"))
        more = {"PIXIU_QUEUE__PORT": "0", "PIXIU_PIPELINE__ENABLED": "false"}
        return f"{shlex.join(service_command(unit, environ=more))} >>{self.log} 2>&1"

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the service again."""
        command = [*self.namespace.command, "sh", "-c", f"exec {self.service_line()}"]
        return subprocess.Popen(command, env=self.environ)

    def stop(self) -> None:
        """Stop the service that the guide has started."""
        pid = self.folder / "pid"
        if pid.exists():
            started = int(pid.read_text(encoding="ascii"))
            pid.unlink()
            os.kill(started, signal.SIGTERM)
            wait_for(lambda: not _lives(started), timeout_s=20, what="the service to end")

    def said(self) -> str:
        """What the service printed and logged."""
        texts = [self.log, *sorted((self.folder / "var/log/pixiu").glob("*"))]
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in texts if path.is_file())

    def ready(self) -> httpx.Response:
        return httpx.get(f"https://127.0.0.1:{self.port}/readyz", verify=False)

    def ask(self, token: str) -> httpx.Response:
        url, headers = f"https://localhost:{self.port}/v1/actions/contacts", {"Authorization": f"Bearer {token}"}
        return httpx.post(url, json={}, headers=headers, verify=False)

    def pixiu(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.namespace.command, "pixiu", *words],
            env=self.environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[Production, str]]:
    require_root()
    folder = Path(tempfile.mkdtemp(prefix="pixiu-guide-"))
    folder.chmod(0o755)
    made = Production(folder)
    try:
        yield made, made.follow()
    finally:
        made.stop()
        made.namespace.close()
        shutil.rmtree(folder)


def test_the_guide_ends_with_a_server_that_accepts_its_tokens(machine: tuple[Production, str]) -> None:
    production, printed = machine
    assert '"user":"alice"' in printed.replace(": ", ":"), printed
    assert "balanced" in printed
    token = production.pixiu("token", "alice", "--data", str(production.data)).stdout.strip()
    (backend,) = [block.text for block in guide_blocks() if block.language == "python"]
    program = production.replaced(backend) + "print(token('alice'))"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    for each in (token, made.stdout.strip()):
        assert production.ask(each).status_code == 200


def test_commands_of_root_leave_files_that_the_service_can_read(machine: tuple[Production, str]) -> None:
    production, _ = machine
    owner = pwd.getpwnam(USER).pw_uid
    foreign = [str(path) for path in production.data.rglob("*") if path.lstat().st_uid != owner]
    assert foreign == []


def test_chromium_opens_the_console_with_the_certificate_of_the_guide(machine: tuple[Production, str]) -> None:
    require_chromium()
    from playwright.sync_api import sync_playwright

    production, _ = machine
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page: Any = browser.new_page(ignore_https_errors=True)
        answer = page.goto(f"https://localhost:{production.port}/")
        assert answer.status == 200
        browser.close()


def test_doctor_of_root_finds_keys_that_the_service_cannot_read(machine: tuple[Production, str]) -> None:
    production, _ = machine
    words = ["doctor", "--config", str(production.folder / "etc/pixiu/pixiu.toml"), "--data", str(production.data)]
    good = production.pixiu(*words)
    assert good.returncode == 0, good.stdout
    tls = production.folder / "etc/pixiu/privkey.pem"
    (signing,) = production.keys.glob("*.json")
    try:
        os.chown(tls, 0, 0)
        tls.chmod(0o600)
        os.chown(signing, 0, 0)
        bad = production.pixiu(*words)
    finally:
        os.chown(tls, 0, int(production.group))
        tls.chmod(0o640)
        os.chown(signing, production.data.stat().st_uid, production.data.stat().st_gid)
    assert bad.returncode == 1
    failures = [line for line in bad.stdout.splitlines() if line.startswith("fail")]
    assert any(str(tls) in line and USER in line for line in failures), bad.stdout
    assert any(str(signing) in line and USER in line for line in failures), bad.stdout


def test_a_running_server_reports_signing_keys_that_it_cannot_read(machine: tuple[Production, str]) -> None:
    production, _ = machine
    owner = production.data.stat()
    wait_for(lambda: production.ready().json()["notes"] == {}, what="/readyz without notes")
    (key,) = production.keys.glob("*.json")
    for path in (production.keys, key):  # a key that is in use stays in use
        os.chown(path, 0, 0)
        try:
            wait_for(lambda: "keys" in production.ready().json()["notes"], what="/readyz with a note")
            note = production.ready().json()["notes"]["keys"]
            assert str(path) in note and "owner root" in note and USER in note
            assert production.ready().status_code == 200
        finally:
            os.chown(path, owner.st_uid, owner.st_gid)
        wait_for(lambda: production.ready().json()["notes"] == {}, what="/readyz without notes")
    token = production.pixiu("token", "alice", "--data", str(production.data)).stdout.strip()
    assert production.ask(token).status_code == 200
    key.rename(production.folder / "key")
    wait_for(lambda: production.ask(token).status_code == 401, what="the key to be gone")
    os.chown(production.folder / "key", 0, 0)
    (production.folder / "key").rename(key)  # as a key that root has made
    wait_for(lambda: production.ready().status_code == 503, what="/readyz to answer 503")
    reason = production.ready().json()["reasons"]["keys"]
    assert str(key) in reason and "owner root" in reason and f"chown {USER}" in reason
    os.chown(key, owner.st_uid, owner.st_gid)
    wait_for(lambda: production.ready().status_code == 200, what="/readyz to answer 200")
    assert "signing_key_ignored" in production.said()


def test_a_server_refuses_to_start_with_keys_that_it_cannot_read(machine: tuple[Production, str]) -> None:
    production, _ = machine
    production.stop()
    for path in (production.keys, next(production.keys.glob("*.json")), production.folder / "etc/pixiu/privkey.pem"):
        before = path.stat()
        offset = len(production.log.read_text(encoding="utf-8"))
        os.chown(path, 0, 0)
        path.chmod(before.st_mode & 0o700)
        try:
            assert production.start().wait(30) in (1, 2)
        finally:
            os.chown(path, before.st_uid, before.st_gid)
            path.chmod(before.st_mode & 0o777)
        said = production.log.read_text(encoding="utf-8")[offset:]
        assert str(path) in said and "owner root" in said and USER in said, said
