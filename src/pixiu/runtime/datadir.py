"""The data directory: whose it is, which format it has, and who uses it now.

::

    pixiu-data/
    ├── FORMAT      {"format": 1}        newer than this program: refused; older: upgraded, one step at a time
    ├── LOCK        {"pid": …, "address": "127.0.0.1:12301", "http": …, "started_at": ms}
    ├── node.key    64 hex digits, readable by the owner alone
    └── queue/ …

LOCK is held with flock by the one server that runs on the directory. The lock goes with the process, however
it ends, so a file left behind by a crash holds nobody up. Other commands read it to find the server to ask::

    holder = find_server(Path("pixiu-data"))     # None: nobody runs there, open the files yourself
"""

import contextlib
import fcntl
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from pixiu.model.errors import CorruptData, NotFound, PixiuError, Unavailable
from pixiu.runtime.files import write_durably

__all__ = [
    "FORMAT",
    "UPGRADES",
    "DataDirectory",
    "DataDirectoryInUse",
    "FormatRefused",
    "Holder",
    "Progress",
    "Upgrade",
    "find_server",
    "read_format",
    "read_node_key",
]

FORMAT = 1
"""The format that this program writes."""

Report = Callable[[int, int], None]
Upgrade = Callable[[Path, Report], None]
"""Brings a directory from one format to the next, reporting ``(done, total)``. A crash may run it twice."""

UPGRADES: Mapping[int, Upgrade] = {}
"""The format a step starts from, and the step. Format 1 is the first, so there is none yet."""

# What a crash in the middle of creation can leave, and what a fresh filesystem has.
_MAY_PRECEDE_FORMAT = {"LOCK", "FORMAT.new", "lost+found"}

# The lock file has one size, so that a reader never sees half of a rewrite.
_LOCK_BYTES = 512
_LOCK_ATTEMPTS = 10
_LOCK_PAUSE_SECONDS = 0.02


class DataDirectoryInUse(Unavailable):
    """Another process serves this directory. Ask it, stop it, or name another directory."""


class FormatRefused(PixiuError):
    """The directory was written by a newer Pixiu, or by something else."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a data directory, and where it listens."""

    pid: int
    address: str | None = None
    http: str | None = None
    started_at: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an upgrade has come."""

    from_format: int
    to_format: int
    done: int
    total: int


class DataDirectory:
    """An open data directory, locked by this process until it is closed."""

    def __init__(self, path: Path, lock: int, key: str) -> None:
        self.path = path
        self.key = key
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        format_version: int = FORMAT,
        upgrades: Mapping[int, Upgrade] = UPGRADES,
        progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Self:
        """Open a directory, creating or upgrading it where needed. Raise if another process has it."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            _require_ours(path)
            lock = _take_lock(path)
        except FileExistsError as error:
            raise PixiuError(f"cannot use the data directory {path}: it is not a directory") from error
        except OSError as error:
            raise PixiuError(f"cannot use the data directory {path}: {error.strerror}") from error
        try:
            _bring_to_format(path, format_version, upgrades, progress)
            return cls(path, lock, _node_key(path))
        except OSError as error:
            os.close(lock)
            raise PixiuError(f"cannot use the data directory {path}: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise

    @property
    def name(self) -> str:
        """What others call who runs here, unless it is told another name."""
        return f"node-{sha256(self.key.encode()).hexdigest()[:8]}"

    def announce(self, *, address: str | None = None, http: str | None = None) -> None:
        """Tell other commands where this process listens."""
        _write_holder(self._lock, Holder(os.getpid(), address, http, time.time_ns() // 1_000_000))

    def close(self) -> None:
        """Give the directory up. Closing twice is closing once."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_server(path: Path) -> Holder | None:
    """The process that serves a data directory now, or None where nobody does."""
    try:
        lock = os.open(path / "LOCK", os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(lock)
    else:
        return None
    finally:
        os.close(lock)


def read_node_key(path: Path) -> str:
    """The key of a data directory that a server may be running on."""
    try:
        key = (path / "node.key").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise NotFound(f"there is no node.key in {path}; is it a data directory of Pixiu?") from None
    except UnicodeDecodeError:
        key = ""
    except OSError as error:
        raise PixiuError(f"cannot read {path / 'node.key'}: {error.strerror or error}") from error
    if len(key) != 64 or set(key) - set("0123456789abcdef"):
        raise CorruptData(
            f"{path / 'node.key'} is damaged: it does not hold a key of 64 hex digits. Put it back from a copy of the "
            "directory. Where stores and log are in the directory itself, it is enough to remove the file: the next "
            "start makes a new key",
            path=str(path / "node.key"),
        )
    return key


def _require_ours(path: Path) -> None:
    """Raise for a directory with things in it that Pixiu did not put there."""
    if (path / "FORMAT").exists():
        return
    foreign = sorted({entry.name for entry in path.iterdir()} - _MAY_PRECEDE_FORMAT)
    if foreign:
        raise FormatRefused(
            f"{path} is not a data directory of Pixiu and not empty (it has {foreign[0]}); name another with --data"
        )


def _take_lock(path: Path) -> int:
    """Lock the directory for this process. Return the descriptor that holds the lock."""
    lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # `find_server` holds a shared lock for microseconds; a server holds its own for long.
            if attempt + 1 < _LOCK_ATTEMPTS:
                time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            _write_holder(lock, Holder(os.getpid()))
            return lock
    holder = _read_holder(lock)
    os.close(lock)
    addresses = " and ".join(filter(None, (holder.address, holder.http)))
    where = f" ({addresses})" if addresses else ""
    raise DataDirectoryInUse(
        f"data directory {path} is in use by pid {holder.pid}{where}; stop it, or name another with --data"
    )


def _write_holder(lock: int, holder: Holder) -> None:
    text = json.dumps(asdict(holder)).encode().ljust(_LOCK_BYTES - 1) + b"\n"
    os.pwrite(lock, text, 0)
    os.ftruncate(lock, len(text))


def _read_holder(lock: int) -> Holder:
    """Who holds the lock. A holder that has not written yet is pid 0."""
    with contextlib.suppress(ValueError, TypeError):
        return Holder(**json.loads(os.pread(lock, 4096, 0)))
    return Holder(0)


def _bring_to_format(
    path: Path, wanted: int, upgrades: Mapping[int, Upgrade], progress: Callable[[Progress], None]
) -> None:
    """Create FORMAT, or check it, or upgrade step by step. Each step that is done is written down."""
    if not (path / "FORMAT").exists():
        _write_format(path, wanted)
        return
    found = read_format(path)
    if found > wanted:
        raise FormatRefused(
            f"{path} has format {found}, written by a newer version; this Pixiu knows up to format {wanted}"
        )
    for step in range(found, wanted):
        if step not in upgrades:
            raise FormatRefused(f"{path} has format {found}, and there is no upgrade from {step} to {step + 1}")
    for step in range(found, wanted):
        progress(Progress(step, step + 1, 0, 1))

        def report(done: int, total: int, step: int = step) -> None:
            progress(Progress(step, step + 1, done, total))

        upgrades[step](path, report)
        _write_format(path, step + 1)
        progress(Progress(step, step + 1, 1, 1))


def read_format(path: Path) -> int:
    """The format of a directory. Raises ``CorruptData``, with what to do, where its file makes no sense."""
    file = path / "FORMAT"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["format"]
    except OSError as error:
        raise PixiuError(f"cannot read {file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError):
        found = None
    if type(found) is not int or found < 0:
        raise CorruptData(
            f"{file} is damaged: it does not say which format the directory has. Put it back from a copy of the "
            f"directory; or, if no newer Pixiu than this one has used it, write it anew: "
            f"echo '{json.dumps({'format': FORMAT})}' > {shlex.quote(str(file))}. "
            f"Then look at the rest: pixiu queue verify --data {shlex.quote(str(path))}",
            path=str(file),
        )
    return found


def _write_format(path: Path, format_version: int) -> None:
    write_durably(path / "FORMAT", json.dumps({"format": format_version}) + "\n", mode=0o644)


def _node_key(path: Path) -> str:
    """The node's key, made at the first start."""
    if not (path / "node.key").exists():
        write_durably(path / "node.key", secrets.token_hex(32) + "\n", mode=0o600)
    return read_node_key(path)
