"""The data directory: whose it is, which format it has, and who uses it now.

::

    pixiu-data/
    ├── FORMAT      {"format": 1}        newer than this program: refused; older: upgraded, one step at a time
    ├── LOCK        {"pid": …, "address": "127.0.0.1:12301", "http": …, "started_at": ms}
    ├── node.key    64 hex digits and a checksum, readable by the owner alone
    ├── node.id     the node's names and a checksum: "node-1a2b3c4d 0123456789abcdef"
    ├── node.key.copy, node.id.copy     second copies, used and written back where the first is damaged
    ├── ballast     room that is given back at a start on a full disk, so that the node can open its files
    └── queue/ …

LOCK is held with flock by the one server that runs on the directory. The lock goes with the process, however
it ends, so a file left behind by a crash holds nobody up. Other commands read it to find the server to ask::

    holder = find_server(Path("pixiu-data"))     # None: nobody runs there, open the files yourself
"""

import contextlib
import fcntl
import json
import logging
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from pixiu.model.errors import CorruptData, NotFound, PixiuError, Unavailable
from pixiu.model.sealed_text import Pair, choose, seal
from pixiu.runtime.files import write_durably

__all__ = [
    "FORMAT",
    "NODE_ID",
    "NODE_KEY",
    "UPGRADES",
    "DataDirectory",
    "DataDirectoryInUse",
    "FormatRefused",
    "Holder",
    "Identity",
    "Progress",
    "Upgrade",
    "find_server",
    "read_format",
    "read_identity",
    "read_node_key",
]

log = logging.getLogger(__name__)

FORMAT = 1
"""The format that this program writes."""

BALLAST = "ballast"
BALLAST_BYTES = 2 * 2**20
"""Opening the stores and taking the lead on a full disk needs about a tenth of this."""

NODE_KEY = "node.key"
NODE_ID = "node.id"

Report = Callable[[int, int], None]
Upgrade = Callable[[Path, Report], None]
"""Brings a directory from one format to the next, reporting ``(done, total)``. A crash may run it twice."""

UPGRADES: Mapping[int, Upgrade] = {}
"""The format a step starts from, and the step. Format 1 is the first, so there is none yet."""

# Entries of an interrupted creation, of a new file system, and of a log.path inside the data directory.
_MAY_PRECEDE_FORMAT = {"LOCK", "FORMAT.new", "lost+found", "log"}

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


@dataclass(frozen=True, slots=True)
class Identity:
    """What others call the node of a data directory. It stays the same when the key is replaced."""

    name: str
    """Among replicas, unless ``replication.name`` is set."""
    engine_name: str
    """In Redis and Cassandra."""


class DataDirectory:
    """An open data directory, locked by this process until it is closed."""

    def __init__(self, path: Path, lock: int, key: str, identity: Identity) -> None:
        self.path = path
        self.key = key
        self.identity = identity
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
            _release_ballast(path)
            key = _node_key(path)
            return cls(path, lock, key, _node_identity(path, key))
        except OSError as error:
            os.close(lock)
            raise PixiuError(f"cannot use the data directory {path}: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise

    @property
    def name(self) -> str:
        """The node's name among replicas, unless ``replication.name`` is set."""
        return self.identity.name

    def announce(self, *, address: str | None = None, http: str | None = None) -> None:
        """Tell other commands where this process listens."""
        _write_holder(self._lock, Holder(os.getpid(), address, http, time.time_ns() // 1_000_000))

    def keep_ballast(self) -> None:
        """Keep as much room as a start after a crash would need. Call it now and then while the directory is used."""
        with contextlib.suppress(OSError):
            _keep_ballast(self.path, _needed_to_start(self.path))

    def close(self) -> None:
        """Give the directory up. Closing twice is closing once."""
        if self._lock >= 0:
            self.keep_ballast()
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
    """The key of a data directory that a server may be running on. Raises ``NotFound`` or ``CorruptData``."""
    pair = _read_pair(path, NODE_KEY, _check_key)
    if pair.is_absent:
        raise NotFound(f"there is no {NODE_KEY} in {path}; is it a data directory of Pixiu?")
    if pair.text is None:
        raise _damaged(
            path, NODE_KEY, pair, "The next start makes a new key; followers and commands then have to use it"
        )
    return pair.text


def read_identity(path: Path) -> Identity:
    """The names of a data directory's node. Raises ``NotFound`` or ``CorruptData``."""
    pair = _read_pair(path, NODE_ID, _check_identity)
    if pair.is_absent:
        return _identity_of_key(read_node_key(path))
    if pair.text is None:
        raise _damaged(path, NODE_ID, pair, f"The next start makes it again from {NODE_KEY}")
    return Identity(*pair.text.split(" "))


def _identity_of_key(key: str) -> Identity:
    """What earlier versions used, and what a new directory begins with."""
    name, engine_name = key.encode(), b"pixiu node " + key.encode()
    return Identity(f"node-{sha256(name).hexdigest()[:8]}", sha256(engine_name).hexdigest()[:16])


def _check_key(text: str) -> None:
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise ValueError("it does not hold a key of 64 hex digits")


def _check_identity(text: str) -> None:
    if [len(word) for word in text.split(" ")] != [13, 16]:
        raise ValueError("it does not hold the names of a node")


def _copies_of(path: Path, name: str) -> tuple[Path, Path]:
    return path / name, path / f"{name}.copy"


def _read_pair(path: Path, name: str, check: Callable[[str], object]) -> Pair:
    first, second = (_read_if_there(copy) for copy in _copies_of(path, name))
    return choose((first, second), check)


def _read_if_there(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PixiuError(f"cannot read {path}: {error.strerror or error}") from error


def _damaged(path: Path, name: str, pair: Pair, then: str) -> CorruptData:
    """The error for a file of which no copy is usable, with a remedy."""
    copies = _copies_of(path, name)
    reasons = "; ".join(f"{copies[number].name}: {reason}" for number, reason in pair.faults)
    files = " ".join(shlex.quote(str(copy)) for copy in copies)
    return CorruptData(
        f"{copies[0]} is damaged ({reasons}). Put it back from a copy of the directory, or remove both copies with the "
        f"node stopped: rm -f {files}. {then}",
        path=str(copies[0]),
    )


def _keep_pair(path: Path, name: str, text: str, pair: Pair, *, mode: int, is_new: bool = False) -> None:
    """Write the copies that are not as they should be. Only a new text has to be written before the node may start."""
    copies = _copies_of(path, name)
    for number, reason in pair.faults:
        log.warning("damaged_file_replaced", extra={"path": str(copies[number]), "reason": reason})
    for number in pair.stale if pair.text is not None else (0, 1):
        try:
            write_durably(copies[number], seal(text).decode(), mode=mode)
        except OSError as error:
            if is_new:
                raise
            log.warning("file_not_written", extra={"path": str(copies[number]), "reason": str(error)})


def _needed_to_start(path: Path) -> int:
    """Room that a start needs: RocksDB writes what is in its logs (numbered, .log) to new files."""
    logs = (log for folder in ("stores", "queue/state") for log in (path / folder).glob("*.log"))
    return BALLAST_BYTES + sum(log.stat().st_size for log in logs)


def _release_ballast(path: Path) -> None:
    """On a full disk, give back the room that was kept for this start; otherwise keep some for the next."""
    if shutil.disk_usage(path).free >= _needed_to_start(path):
        _keep_ballast(path, BALLAST_BYTES)
    elif (path / BALLAST).exists():
        log.warning("ballast_released", extra={"path": str(path / BALLAST), "bytes": (path / BALLAST).stat().st_size})
        (path / BALLAST).unlink()


def _keep_ballast(path: Path, wanted: int) -> None:
    """Keep room for the next start; half of what is free, where there is little. A full disk is no error."""
    ballast = path / BALLAST
    size = ballast.stat().st_size if ballast.exists() else 0
    more = min(wanted - size, shutil.disk_usage(path).free // 2)
    if more <= 0:
        return
    try:
        with ballast.open("ab") as file:
            os.posix_fallocate(file.fileno(), size, more)
    except OSError as error:
        log.debug("ballast_not_kept", extra={"path": str(ballast), "reason": str(error)})


def _require_ours(path: Path) -> None:
    """Raise for a directory with things in it that Pixiu did not put there."""
    if (path / "FORMAT").exists():
        return
    if any((path / name).exists() for name in (NODE_KEY, NODE_ID)):
        file = path / "FORMAT"
        raise CorruptData(
            f"{file} is missing, and the rest of a data directory is there. {_how_to_restore_format(path)}",
            path=str(file),
        )
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
            f"{file} is damaged: it does not say which format the directory has. {_how_to_restore_format(path)}",
            path=str(file),
        )
    return found


def _how_to_restore_format(path: Path) -> str:
    return (
        f"Restore FORMAT from a copy of the directory. If no newer Pixiu has used the directory, write it again: "
        f"echo '{json.dumps({'format': FORMAT})}' > {shlex.quote(str(path / 'FORMAT'))}. "
        f"Then check the other files: pixiu queue verify --data {shlex.quote(str(path))}"
    )


def _write_format(path: Path, format_version: int) -> None:
    write_durably(path / "FORMAT", json.dumps({"format": format_version}) + "\n", mode=0o644)


def _node_key(path: Path) -> str:
    """The node's key, made at the first start; a damaged copy is replaced by the other."""
    pair = _read_pair(path, NODE_KEY, _check_key)
    key = secrets.token_hex(32) if pair.is_absent else read_node_key(path)
    _keep_pair(path, NODE_KEY, key, pair, mode=0o600, is_new=pair.is_absent)
    return key


def _node_identity(path: Path, key: str) -> Identity:
    """The node's names, made from its first key; a damaged copy is replaced by the other."""
    pair = _read_pair(path, NODE_ID, _check_identity)
    identity = _identity_of_key(key) if pair.is_absent else read_identity(path)
    _keep_pair(path, NODE_ID, f"{identity.name} {identity.engine_name}", pair, mode=0o644)
    return identity
