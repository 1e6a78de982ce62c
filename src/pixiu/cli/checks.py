"""What ``pixiu doctor`` looks at. Each check says how it is, and what to do where it is not well.

A check changes nothing: it binds a port and lets it go, writes a scratch file and removes it.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import platform
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

from pixiu.cli.calling import announced_url, own_server_tls
from pixiu.cli.engine_checks import engine_checks
from pixiu.cli.finding import Check, State
from pixiu.cli.journal_check import journal_checks
from pixiu.cli.queue.output import bytes_text
from pixiu.config.extras import how_to_install
from pixiu.model.errors import NotFound, PixiuError
from pixiu.model.ids import SNOWFLAKE_EPOCH_MS
from pixiu.runtime.certificates import certificates_from
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import FORMAT, find_server, read_format, read_identity, read_node_key
from pixiu.runtime.java import find_java
from pixiu.runtime.keys import Keyring
from pixiu.runtime.owner import current_user
from pixiu.runtime.port_holder import port_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.config import Settings
    from pixiu.runtime.datadir import Holder

__all__ = ["Check", "State", "all_checks"]

OLDEST_PYTHON = (3, 11)
JAVA_NEEDED = 17
FILES_GOOD = 65_536
FILES_NEEDED = 1024
FREE_GOOD = 2**30
FREE_NEEDED = 100 * 2**20
MEMORY_GOOD = 512 * 2**20
MEMORY_NEEDED = 128 * 2**20
FLUSHES = 25
FLUSH_GOOD_MS = 20.0
CLOCK_LOOK_SECONDS = 0.2
CLOCK_STEP_MS = 20.0
CERTIFICATE_DAYS = 7

NEEDED = ("uvloop", "picows", "rocksdict", "msgspec", "starlette", "uvicorn", "cryptography")
OPTIONAL = ("textual", "pyspark")


def all_checks(settings: Settings, data: Path) -> Iterator[Check]:
    """One after the other, so that they can be shown as they come."""
    holder = _holder(data)
    yield _python()
    yield Check("user", "ok", f"checked as {current_user()}")
    yield from _packages()
    yield _java()
    yield from _limits()
    yield _memory()
    yield _clock(data)
    yield _loopback()
    ports = (("http", settings.http.host, settings.http.port), ("queue", settings.queue.host, settings.queue.port))
    for name, host, port in ports:
        yield _port(name, host, port, holder)
    yield from _directory(data, holder)
    yield _signing_keys(data)
    if settings.security.tls_certificate or settings.security.tls_key:
        yield _certificate(settings, data)
    yield _flush(data)
    yield from journal_checks(data)
    yield from engine_checks(settings, data)
    if holder is not None:
        yield _server(holder)


# The program and what it is made of.


def _python() -> Check:
    text = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    if tuple(map(int, platform.python_version_tuple()[:2])) < OLDEST_PYTHON:
        return Check("python", "fail", text, "Pixiu needs Python 3.11 or newer: install one and make a venv with it")
    if platform.python_implementation() != "CPython":
        return Check("python", "warn", text, "Pixiu is tested with CPython")
    return Check("python", "ok", text)


def _packages() -> Iterator[Check]:
    for name in NEEDED:
        found = _imported(name)
        if found is None:
            yield Check(f"package {name}", "fail", "cannot be imported", how_to_install())
        else:
            yield Check(f"package {name}", "ok", found)
    for name in OPTIONAL:
        found = _version(name)
        if found is None:
            what = "pixiu top and chat" if name == "textual" else "the pipeline"
            how = how_to_install("" if name == "textual" else "pipeline")
            yield Check(f"package {name}", "warn", "is not installed", f"only {what} needs it: {how}")
        else:
            yield Check(f"package {name}", "ok", found)


def _imported(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - a package of native code may fail in any way
        return None
    return _version(name) or "there"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> Check:
    command = find_java()
    advice = (
        f"only Spark (the pipeline) and ZooKeeper (clusters) need Java {JAVA_NEEDED} or newer. "
        f"Debian, Ubuntu: apt install openjdk-{JAVA_NEEDED}-jre-headless; macOS: brew install openjdk@{JAVA_NEEDED}"
    )
    if command is None:
        return Check("java", "warn", "not found", advice)
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", "warn", f"{command} does not run: {error}", advice)
    said = (done.stderr or done.stdout).strip()
    first = said.splitlines()[0] if said else ""
    found = java_version(said)
    if found is None:
        return Check("java", "warn", f"{command} names no version: {first[:80]!r}", advice)
    return Check("java", "ok", first) if found >= JAVA_NEEDED else Check("java", "warn", first, advice)


def java_version(text: str) -> int | None:
    """The feature version that ``java -version`` prints: 17 of "17.0.2", 8 of "1.8.0_292"."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


# The machine.


def _limits() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_limit_text(soft)}, and a server may raise it to {_limit_text(hard)}"
    name, advice = "open files", "raise it: ulimit -Hn 1048576, LimitNOFILE= in a systemd unit, or limits.conf"
    if hard == resource.RLIM_INFINITY or hard >= FILES_GOOD:
        yield Check(name, "ok", text)
    else:
        state: State = "warn" if hard >= FILES_NEEDED else "fail"
        yield Check(name, state, text, f"every connection takes one: {advice}")
    with suppress(AttributeError, ValueError, OSError):
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        few = soft != resource.RLIM_INFINITY and soft < 256
        advice = "raise it: ulimit -u 4096; RocksDB and Spark start threads" if few else ""
        yield Check("processes", "warn" if few else "ok", _limit_text(soft), advice)


def _limit_text(value: int) -> str:
    return "no limit" if value == resource.RLIM_INFINITY else f"{value:,}"


def _memory() -> Check:
    available = _available_bytes()
    if available is None:
        return Check("memory", "ok", "this system does not say how much is free")
    text = f"{bytes_text(available)} available"
    if available >= MEMORY_GOOD:
        return Check("memory", "ok", text)
    state: State = "warn" if available >= MEMORY_NEEDED else "fail"
    return Check("memory", state, text, "a server takes some 100 MiB, and 10 to 20 KiB per connection: free some")


def _available_bytes() -> int | None:
    """What the machine has, or what a control group leaves of it."""
    found: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            found.append(int(limit) - int((group / "memory.current").read_text(encoding="ascii")))
    return min(found, default=None)


def _clock(data: Path) -> Check:
    """Does the wall clock go as the steady one goes, and is it later than everything that was written?"""
    wall, steady = time.time(), time.monotonic()
    time.sleep(CLOCK_LOOK_SECONDS)
    step_ms = abs((time.time() - wall) - (time.monotonic() - steady)) * 1000
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now * 1000 < SNOWFLAKE_EPOCH_MS:
        return Check("clock", "fail", text, "set it: message ids count from 2020 on")
    with suppress(OSError, ValueError):
        newest = max((path.stat().st_mtime for path in (data / "queue" / "journal").iterdir()), default=0.0)
        if newest > now + 1:
            advice = "it was set back, or the data came from elsewhere: new ids go on from the newest; set the clock"
            return Check("clock", "warn", f"{text}, and the journal was written {newest - now:.0f} s later", advice)
    if step_ms > CLOCK_STEP_MS:
        return Check("clock", "warn", f"stepped by {step_ms:.0f} ms within {CLOCK_LOOK_SECONDS} s", "look at NTP")
    return Check("clock", "ok", f"{text}, in step with the steady clock; its zone does not matter")


def _loopback() -> Check:
    try:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            begun = time.monotonic()
            with socket.create_connection(server.getsockname(), timeout=2) as near:
                far, _ = server.accept()
                with far:
                    near.sendall(b"?")
                    far.sendall(far.recv(1))
                    near.recv(1)
            took_us = (time.monotonic() - begun) * 1e6
    except OSError as error:
        return Check("loopback", "fail", f"127.0.0.1 does not work: {error}", "bring it up: ip link set lo up")
    return Check("loopback", "ok", f"connect and round trip in {took_us:.0f} µs")


# Ports.


def _port(name: str, host: str, port: int, holder: Holder | None) -> Check:
    title = f"port {port} ({name})"
    if port == 0:
        return Check(title, "ok", "a free one is picked")
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(kind, socket.SOCK_STREAM)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
    except OSError as error:
        return _port_problem(title, name, port, error, holder)
    return Check(title, "ok", f"free on {host}")


def _port_problem(title: str, name: str, port: int, error: OSError, holder: Holder | None) -> Check:
    if error.errno != errno.EADDRINUSE:
        return Check(title, "fail", f"cannot be used: {error.strerror}", "name another one in the settings")
    ours = holder is not None and any((each or "").endswith(f":{port}") for each in (holder.address, holder.http))
    if ours and holder is not None:
        return Check(title, "ok", f"held by the server of this data directory, pid {holder.pid}")
    option = "--port" if name == "http" else "--queue-port"
    who = port_holder(port)
    return Check(title, "fail", f"held by {who or 'another process'}", f"stop it, or start with {option} N")


# The data directory.


def _holder(data: Path) -> Holder | None:
    try:
        return find_server(data)
    except OSError:
        return None


def _directory(data: Path, holder: Holder | None) -> Iterator[Check]:
    if not data.exists():
        parent = _existing(data)
        if os.access(parent, os.W_OK | os.X_OK):
            yield Check("data directory", "ok", f"{data} is not there yet: the first start makes it")
        else:
            advice = f"make it writable, or name another with --data: chown $USER {parent}"
            yield Check("data directory", "fail", f"{data} cannot be made: {parent} is not writable", advice)
        yield _space(data)
        return
    if not data.is_dir():
        yield Check("data directory", "fail", f"{data} is not a directory", "name another with --data")
        return
    yield _format(data)
    yield _rights(data)
    if holder is None:
        yield Check("lock", "ok", "nobody runs on it")
    else:
        where = ", ".join(filter(None, (holder.address, holder.http))) or "no address yet"
        yield Check("lock", "ok", f"held by pid {holder.pid} ({where}): commands ask that server")
    yield _space(data)


def _format(data: Path) -> Check:
    path = data / "FORMAT"
    if not path.exists():
        if any(entry.name not in ("LOCK", "lost+found") for entry in data.iterdir()):
            advice = "name another with --data: Pixiu does not start in a folder that holds other things"
            return Check("data directory", "fail", f"{data} is not one of Pixiu's", advice)
        return Check("data directory", "ok", f"{data} is empty: the first start fills it")
    try:
        found = read_format(data)
        with suppress(NotFound):
            read_identity(data)
            read_node_key(data)
    except PixiuError as error:
        said, _, advice = str(error).partition(". ")
        return Check("data directory", "fail", said, advice or f"see who may read it: ls -l {data}")
    if found > FORMAT:
        return Check("data directory", "fail", f"format {found}, newer than {FORMAT}", "use a newer Pixiu")
    text = f"{data}, format {found}"
    return Check("data directory", "ok", text if found == FORMAT else f"{text}: the next start brings it to {FORMAT}")


def _rights(data: Path) -> Check:
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        return Check("permissions", "fail", f"{data} is not readable and writable", f"chown -R $USER {data}")
    secrets = [*data.glob("node.key*"), *(data / "keys").glob("*.json")]
    loose = [each for each in secrets if each.exists() and each.stat().st_mode & 0o077]
    if loose:
        names = " ".join(map(str, loose))
        return Check("permissions", "warn", f"others can read {names}", f"chmod 600 {names}")
    return Check("permissions", "ok", "readable and writable; secrets are the owner's alone")


def _signing_keys(data: Path) -> Check:
    """Whether this user can read the keys that verify tokens."""
    name = "signing keys"
    try:
        count = len(Keyring(data, SystemClock()).keys)
    except PixiuError as error:
        return _failed(name, error)
    if not count:
        return Check(name, "ok", f"none yet; make one: pixiu token --new-key --data {data}")
    return Check(name, "ok", f"{count} readable")


def _certificate(settings: Settings, data: Path) -> Check:
    """Whether this user can read the TLS certificate and its key, and whether browsers will take it."""
    name = "tls certificate"
    try:
        found = certificates_from(settings.security, data)
    except PixiuError as error:
        return _failed(name, error)
    assert found is not None
    days = (found.expires_at / 1000 - time.time()) / 86400
    text = f"{found.key_type}, valid for {days:.0f} more days"
    if days < CERTIFICATE_DAYS:
        return Check(name, "warn" if days > 0 else "fail", text, "renew it; a running server loads the new files")
    if found.key_type not in ("EC", "RSA"):
        return Check(name, "warn", text, "browsers accept ECDSA P-256 and RSA; make a new certificate with one of them")
    return Check(name, "ok", text)


def _failed(name: str, error: PixiuError) -> Check:
    said, _, advice = str(error).partition(". ")
    return Check(name, "fail", said, advice or "see docs/operations.md, From --dev to production")


def _space(data: Path) -> Check:
    free = shutil.disk_usage(_existing(data)).free
    text = f"{bytes_text(free)} free"
    if free >= FREE_GOOD:
        return Check("disk", "ok", text)
    state: State = "warn" if free >= FREE_NEEDED else "fail"
    return Check("disk", state, text, "a full disk stops writes: make room, or set retention (docs/operations.md)")


def _flush(data: Path) -> Check:
    """How long a durable write takes there: what every accepted message waits for."""
    took: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=_existing(data)) as file:
            for _ in range(FLUSHES):
                file.write(b"\0" * 4096)
                file.flush()
                begun = time.perf_counter()
                _sync(file.fileno())
                took.append((time.perf_counter() - begun) * 1000)
    except OSError as error:
        return Check("flush", "fail", f"cannot write there: {error.strerror}", "make it writable, or make room")
    middle, worst = statistics.median(took), max(took)
    text = f"median {middle:.2f} ms, worst {worst:.1f} ms of {FLUSHES}"
    if middle > FLUSH_GOOD_MS:
        return Check("flush", "warn", text, "every message waits for one: use a faster disk, or journal.flush=interval")
    return Check("flush", "ok", text)


_sync: Callable[[int], object] = getattr(os, "fdatasync", os.fsync)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    found = path.absolute()
    while not found.is_dir():
        found = found.parent
    return found


def _server(holder: Holder) -> Check:
    """What the server that runs says of itself."""
    if holder.http is None:
        return Check("server", "ok", f"pid {holder.pid}, without HTTP")
    url = announced_url(holder.http)
    try:
        with urlopen(f"{url}/readyz", timeout=5, context=own_server_tls()) as answer:
            answer.read()
        return Check("server", "ok", f"ready at {url}")
    except HTTPError as error:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            reasons = json.loads(error.read())["reasons"]
            text = "; ".join(f"{part}: {why}" for part, why in reasons.items())
            return Check("server", "fail", f"not ready: {text}", "its log says more")
        return Check("server", "fail", f"answers with status {error.code}", "its log says why")
    except OSError as error:
        return Check(
            "server", "fail", f"pid {holder.pid} holds the data and does not answer: {error}", "look at its log"
        )
