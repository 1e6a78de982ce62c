"""``make test-fresh``: the two commands and the production guide on a machine that has nothing.

It makes a bare Debian root (debootstrap, minbase with python3, make and git; no locale) and runs in it, as root:

* ``make serve``, until charts and search contain a message that was sent to the server;
* the commands of "From --dev to production" in docs/operations.md, and the same there;
* ``CI=true make test``, which must be green.

How this machine reaches its package indexes (apt sources, proxies, pip's settings, certificate authorities) is copied
into the root. The network is shared, so ports are chosen freely. It needs root and about 6 GB of disk.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from tools.generated import ROOT
from tools.guide import guide_blocks, service_command

if TYPE_CHECKING:
    from collections.abc import Callable

SUITE = "bookworm"
INCLUDED = "python3,make,git"
CHECKOUT = str(Path("/srv") / "checkout")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = re.compile(r"(https?|no|all)_proxy|PIP_\w+|UV_\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE", re.IGNORECASE)
"""Variables that say how to reach a package index."""
AUTHORITIES = "/usr/local/share/ca-certificates"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
STEPS = ("serve", "guide", "test")
"""In this order: ``make serve`` meets the machine as it was installed."""
STEP_SECONDS = 1800


class Failed(Exception):
    """A step did not do what a new user expects."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=STEPS, help="this step alone; repeatable")
    parser.add_argument("--root", type=Path, help="keep the root in this directory and use it again")
    parser.add_argument("--commit", default="HEAD", help="what to test")
    parser.add_argument("--run", metavar="COMMAND", help="run this in the root of an earlier run, and nothing else")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("make test-fresh needs root: it makes a Debian root and runs commands in it")
        return 1
    if not options.inside:  # mounts and processes end with the namespace
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*unshare, sys.executable, "-m", "tools.test_fresh", "--inside", *sys.argv[1:]]
        return subprocess.call(command, cwd=ROOT)
    scratch = None if options.root else tempfile.mkdtemp(prefix="pixiu-fresh-")
    machine = Machine(options.root or Path(str(scratch)))
    try:
        return _run(machine, options)
    finally:
        machine.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _run(machine: Machine, options: argparse.Namespace) -> int:
    if options.run:
        machine.enter()
        command, environ = machine.command(options.run)
        return subprocess.call(command, env=environ)
    try:
        machine.make(options.commit)
        for step in options.only or STEPS:
            getattr(machine, step)()
    except (Failed, subprocess.CalledProcessError, OSError) as error:
        machine.results.append(f"FAILED: {error}")
    print("\n".join(["== make test-fresh:", *machine.results]), flush=True)
    return int(machine.results[-1].startswith("FAILED"))


class Machine:
    """A Debian root that commands run in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results: list[str] = []

    # The root.

    def make(self, commit: str) -> None:
        """Install the root unless it is there, and put a clean checkout into it."""
        began = time.monotonic()
        if not (self.root / "etc" / "debian_version").exists():
            subprocess.run([ROOT / "tools" / "get_packages.sh", "--required", "debootstrap"], check=True)
            self.root.mkdir(parents=True, exist_ok=True)
            mirror = [line.split()[0] for line in _apt_sources() if line.split()[1] == SUITE][:1]
            command = ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(self.root), *mirror]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.enter()
        checkout = self.root / CHECKOUT.lstrip("/")
        shutil.rmtree(checkout, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(checkout)], check=True)
        found = subprocess.check_output(["git", "rev-parse", "--short", commit], cwd=ROOT, text=True).strip()
        subprocess.run(["git", "checkout", "--quiet", "--detach", found], cwd=checkout, check=True)
        self._done(f"Debian {SUITE} (minbase, {INCLUDED}) with commit {found}", began)

    def enter(self) -> None:
        """Mount what programs expect, and copy how this machine reaches its package indexes."""
        self._mount()
        self._copy_configuration()

    def _mount(self) -> None:
        _mount("--bind", self.root, self.root)  # so that it can be mounted again, read only
        for name in ("proc", "sys", "dev", "tmp"):
            (self.root / name).mkdir(exist_ok=True)
        _mount("-t", "proc", "proc", self.root / "proc")
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", self.root / "dev")
        for name in DEVICES:
            (self.root / "dev" / name).touch()
            _mount("--bind", f"/dev/{name}", self.root / "dev" / name)
        terminals = "newinstance,ptmxmode=0666,mode=620"
        for name, kind, mode in (("shm", "tmpfs", "mode=1777"), ("pts", "devpts", terminals)):
            (self.root / "dev" / name).mkdir()
            _mount("-t", kind, "-o", mode, kind, self.root / "dev" / name)
        (self.root / "dev" / "ptmx").symlink_to("pts/ptmx")
        (self.root / "dev" / "fd").symlink_to("/proc/self/fd")

    def _copy_configuration(self) -> None:
        self._write("etc/resolv.conf", Path("/etc/resolv.conf").read_text(encoding="utf-8"))
        self._write("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
        sources = _apt_sources()
        if sources:
            self._write("etc/apt/sources.list", "".join(f"deb {line}\n" for line in sources))
        dump = subprocess.check_output(["apt-config", "dump"], text=True).splitlines()
        kept = [line for line in dump if re.match(r"Acquire::(https?|Check-Valid-Until|Retries)\b", line)]
        self._write("etc/apt/apt.conf.d/90-from-outside", "".join(f"{line}\n" for line in kept))
        if Path(AUTHORITIES).is_dir():
            shutil.copytree(AUTHORITIES, self.root / AUTHORITIES.lstrip("/"), dirs_exist_ok=True)
        named = [value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)]
        for path in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
            if path.is_file():
                self._write("etc/pip.conf", path.read_text(encoding="utf-8"))
                parsed = configparser.RawConfigParser()
                parsed.read(path)
                named += [value for section in parsed.sections() for value in parsed[section].values()]
        for path in {Path(word) for value in named for word in value.split() if word.startswith("/")}:
            inside = self.root / str(path).lstrip("/")
            if path.is_file():
                inside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, inside)
            elif path.is_dir():
                shutil.copytree(path, inside, dirs_exist_ok=True)

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")

    def command(self, script: str, **more: str) -> tuple[list[str], dict[str, str]]:
        """A shell command for ``subprocess``, with the environment of a machine without a locale."""
        passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        environ = {"HOME": "/root", "PATH": SEARCH_PATH, **passed, **more}
        return ["chroot", str(self.root), "/bin/sh", "-c", f"cd {CHECKOUT} && {script}"], environ

    def close(self) -> None:
        """End everything that was started here."""
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)

    # What a new user does.

    def serve(self) -> None:
        """``make serve``, until charts and search have a message that was sent to it."""
        port = _free_port()
        asked = Asked(f"http://127.0.0.1:{port}")

        def look(run: Run) -> None:
            run.until("make serve is ready", asked.is_ready)
            tokens = [
                asked.ask("/v1/dev/token", {"user": user, "admin": user == "operator"})["token"]
                for user in ("alice", "bob", "operator")
            ]
            run.until_charts(asked, tokens[0], tokens[2])

        self._while("serve", f"exec make serve ARGS='--port {port} --queue-port 0 --data /srv/data'", look)

    def guide(self) -> None:
        """The commands of the guide, as printed but for the port; the service has the limits of the unit."""
        port = _free_port()
        asked = Asked(f"https://127.0.0.1:{port}")
        script = ["set -ex", "export DEBIAN_FRONTEND=noninteractive"]
        for block in guide_blocks():
            text = block.text.replace("8400", str(port))
            if block.language == "toml":
                script.append(f"cat >/etc/pixiu/pixiu.toml <<'END'\n{text}END")
            elif not block.language:
                script += [_service(port) if line.startswith("systemctl") else line for line in text.splitlines()]
        names = ("alice", "operator")
        script += [
            f"pixiu token {name} {'--admin ' * (name != 'alice')}--data /var/lib/pixiu >/srv/{name}" for name in names
        ]
        script += ["touch /srv/followed", "exec sleep infinity"]
        self._write("srv/guide.sh", "\n".join(script))
        (self.root / "etc" / "systemd" / "system").mkdir(parents=True, exist_ok=True)

        def look(run: Run) -> None:
            run.until("the production guide is followed, its audit included", (self.root / "srv" / "followed").exists)
            alice, admin = ((self.root / "srv" / name.split()[0]).read_text(encoding="utf-8").strip() for name in names)
            asked.ask("/v1/actions/create_user", {"user": "bob", "name": "Bob"}, admin)
            run.until_charts(asked, alice, admin)

        (self.root / "srv" / "followed").unlink(missing_ok=True)
        self._while("guide", "exec sh /srv/guide.sh", look)

    def _while(self, name: str, script: str, look: Callable[[Run], None]) -> None:
        """Look at a command while it runs, then stop it. What it printed is shown if something fails."""
        command, environ = self.command(script)
        log = self.root / "srv" / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
        try:
            look(Run(process, self._done))
        except Failed as error:
            raise Failed(f"{error}\n{log.read_text(encoding='utf-8', errors='replace')[-4000:]}") from None
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                pass
            self.close()  # the service of the guide, too

    def test(self) -> None:
        """``make test``, where every real server that this machine can have must run."""
        began = time.monotonic()
        command, environ = self.command("make test 2>&1", CI="true")
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, errors="replace") as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                if re.match(r"(FAILED|ERROR|SKIPPED) |\d+ (passed|failed|error)|== ", line):
                    self.results.append(f"    {line.rstrip()}")
        self._done(f"make test ended with {process.returncode}", began)
        if process.returncode:
            raise Failed("make test is red")

    def _done(self, what: str, began: float) -> None:
        self.results.append(f"{what} ({time.monotonic() - began:.0f} s)")
        print(f"== {self.results[-1]}", flush=True)


class Run:
    """A command that runs, and what is expected of it."""

    def __init__(self, process: subprocess.Popen[bytes], done: Callable[[str, float], None]) -> None:
        self._process = process
        self._done = done
        self._began = time.monotonic()

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition, and note when it came true. Raises ``Failed`` if it does not."""
        while not condition():
            if self._process.poll() is not None:
                raise Failed(f"the command ended with {self._process.returncode} before: {what}")
            if time.monotonic() - self._began > STEP_SECONDS:
                raise Failed(f"after {STEP_SECONDS} s not yet: {what}")
            time.sleep(1)
        self._done(what, self._began)

    def until_charts(self, asked: Asked, alice: str, admin: str) -> None:
        """Send a message, and wait until the pipeline has run and search finds the message."""
        asked.ask("/v1/actions/send", {"to": "bob", "text": "juniper"}, alice)

        def has_charts() -> bool:
            return asked.ask("/v1/admin/pipeline", None, admin).get("last_run") is not None

        def is_found() -> bool:
            return bool(asked.ask("/v1/actions/search", {"q": "juniper"}, alice).get("messages"))

        try:
            self.until("charts are there", has_charts)
            self.until("search finds the message", is_found)
        except Failed as error:
            raise Failed(f"{error}; the pipeline: {asked.ask('/v1/admin/pipeline', None, admin)}") from None


class Asked:
    """A server, asked over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE  # the certificate was made a moment ago, by the guide

    def is_ready(self) -> bool:
        """Whether it runs and can take messages."""
        return self.ask("/readyz").get("ready") is True

    def ask(self, path: str, params: dict[str, object] | None = None, token: str = "") -> dict[str, Any]:
        """What the server answers; empty where it cannot answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        body = None if params is None else json.dumps(params).encode()
        try:
            with urlopen(Request(self._url + path, body, headers), timeout=60, context=self._tls) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}


def _service(port: int) -> str:
    """What systemd does for the unit: its user, its directories, and a file system that is read only elsewhere."""
    unit = (ROOT / "deploy" / "systemd" / "pixiu.service").read_text(encoding="utf-8")
    command = shlex.join(service_command(unit, environ={"PIXIU_QUEUE__PORT": "0"}))
    view = [f"mount --bind /var/{name}/pixiu /var/{name}/pixiu" for name in ("lib", "log")]
    view += ["mount -o remount,bind,ro /", "mount -t tmpfs -o mode=1777 tmpfs /tmp"]
    view += [f"mount -t tmpfs -o mode=000 tmpfs /{name}" for name in ("root", "home")]
    script = shlex.quote("; ".join([*view, f"exec {command}"]))
    return "\n".join([
        "install -d -o pixiu -g pixiu -m 0750 /var/log/pixiu",
        f"unshare --mount sh -ec {script} &",
        f"until curl -sf https://localhost:{port}/readyz; do kill -0 $!; sleep 1; done",
    ])  # fmt: skip


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _apt_sources() -> list[str]:
    """``URI RELEASE COMPONENT`` of what this machine's apt uses of the suite."""
    form = "--format=$(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", form, "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line for line in lines if line.split()[1].partition("-")[0] == SUITE]


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


if __name__ == "__main__":
    sys.exit(main())
