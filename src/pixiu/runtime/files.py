"""The machine's disk, below one data directory."""

import os
import shutil
from pathlib import Path

SYNC_ALL_BEYOND = 64
"""With more files than this to flush, asking the system to sync everything is quicker."""


class SystemFile:
    """An open descriptor, written and read by position."""

    __slots__ = ("_descriptor", "_no_cache")

    def __init__(self, descriptor: int, *, no_cache: bool) -> None:
        self._descriptor = descriptor
        self._no_cache = no_cache

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position``."""
        written = os.pwrite(self._descriptor, data, position)
        while written < len(data):
            written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end."""
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._descriptor, size)

    def flush(self) -> None:
        """Return when the data is on the disk."""
        os.fdatasync(self._descriptor)
        if self._no_cache:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class SystemFiles:
    """Folders and files below ``root``."""

    def __init__(self, root: Path, *, no_cache: bool = False, read_only: bool = False) -> None:
        """``read_only`` opens files for reading alone: they may lie on a disk that takes nothing."""
        self._root = root
        self._mode = os.O_RDONLY if read_only else os.O_RDWR
        self._no_cache = no_cache

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        """Open for reading and writing, unless it is for reading alone."""
        flags = self._mode | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SystemFile(os.open(self._root / path, flags, 0o640), no_cache=self._no_cache)

    def replace(self, path: str, data: bytes) -> None:
        """Write beside, flush, rename, flush the folder."""
        target = self._root / path
        beside = target.with_name(target.name + ".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.rename(target)
        _flush(target.parent)

    def names(self, folder: str) -> list[str]:
        """Names in ``folder``, sorted."""
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        """Make ``folder`` and its parents."""
        (self._root / folder).mkdir(parents=True, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all in it."""
        shutil.rmtree(self._root / folder, ignore_errors=False, onerror=_ignore_missing)

    def flush_folder(self, folder: str) -> None:
        """Return when the names in ``folder`` are on the disk."""
        _flush(self._root / folder)

    def flush_paths(self, paths: list[str]) -> None:
        """Flush files and folders that still exist."""
        if len(paths) > SYNC_ALL_BEYOND:
            os.sync()
            return
        for path in paths:
            try:
                _flush(self._root / path)
            except FileNotFoundError:
                continue

    def modified_ms(self, path: str) -> int:
        """When the file was last written."""
        return (self._root / path).stat().st_mtime_ns // 1_000_000

    def free_bytes(self) -> int:
        """What an ordinary user may still write."""
        found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize


def flush_folders(root: Path) -> None:
    """Return when the names in ``root`` and in every folder below it are on the disk."""
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ignore_missing(_function: object, _path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def _write_all(descriptor: int, data: bytes) -> None:
    """Write everything or raise: on a disk that is almost full one call may write a part."""
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])


def write_durably(path: Path, text: str, *, mode: int, is_new: bool = False) -> None:
    """Write a small file so that a crash leaves the old one or the new one, whole.

    ``is_new`` refuses with ``FileExistsError`` when someone else is writing it at this moment.
    """
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else os.O_TRUNC), mode)
    try:
        _write_all(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(path)
    _flush(path.parent)
