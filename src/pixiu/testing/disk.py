"""A disk that does everything a disk may do, and nothing it may not.

Written bytes are visible at once. When the machine goes down, each block that was written and not flushed is there or
not, or torn at any byte, whatever became of its neighbours; a file is as long as it was flushed, or as it was written,
or anything between; a cut may be undone; a name that was not flushed may be gone, and a removed one back. A flushed
byte under a flushed name is always there. When only the process ends, nothing is lost. One ``random.Random`` decides.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from pixiu.testing.scheduler import Power, PowerCut

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["SimulatedDisk", "SimulatedFile"]

Entries = dict[str, "Inode | None"]
"""What a folder holds: files, and folders as None."""


class Inode:
    """A file's bytes: those that everyone sees, those on the disk, and those that were cut away since."""

    __slots__ = ("content", "errors", "forgotten", "ghosts", "is_dirty", "modified_ms", "on_disk")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.on_disk = b""
        self.ghosts: list[bytes] = []
        self.forgotten: set[int] = set()
        """Blocks that a failed flush dropped: the system thinks they are clean, the disk never got them."""
        self.is_dirty = False
        self.errors = 0
        """Failed flushes: every file that was open then is told once, when it flushes next."""
        self.modified_ms = modified_ms

    def flush(self, block_bytes: int) -> None:
        """All that was written is on the disk, but for what an earlier failure dropped."""
        if self.is_dirty:
            new = bytearray(self.content)
            for block in self.forgotten:
                start = block * block_bytes
                end = min(start + block_bytes, len(new))
                if start < end:
                    old = self.on_disk[start:end]
                    new[start:end] = old + bytes(end - start - len(old))
            self.on_disk = bytes(new)
            self.ghosts.clear()
            self.is_dirty = False

    def crash(self, rng: random.Random, block_bytes: int) -> None:
        """What the disk holds when power comes back."""
        if self.is_dirty:
            self.content = bytearray(_survivors(rng, self.on_disk, [*self.ghosts, bytes(self.content)], block_bytes))
        elif self.forgotten:
            self.content = bytearray(self.on_disk)
        self.on_disk = bytes(self.content)
        self.ghosts.clear()
        self.forgotten.clear()
        self.is_dirty = False


def _survivors(rng: random.Random, old: bytes, versions: list[bytes], block_bytes: int) -> bytes:
    """Mix the flushed bytes with what was written since, block by block."""
    longest = max(len(old), *map(len, versions))
    shortest = min(len(old), *map(len, versions))
    size = rng.choice([len(old), len(versions[-1]), rng.randint(shortest, longest)])
    style = rng.random()
    keep_chance = 0.0 if style < 0.2 else 1.0 if style < 0.4 else rng.random()
    result = bytearray()
    for start in range(0, size, block_bytes):
        end = min(start + block_bytes, size)
        before = _part(old, start, end)
        after = _part(versions[-1] if len(versions) == 1 else rng.choice(versions), start, end)
        if before == after or rng.random() >= keep_chance:
            result += before
        elif rng.random() < 0.15:
            tear = rng.randint(0, end - start)
            result += after[:tear] + before[tear:]
        else:
            result += after
    return bytes(result)


def _part(data: bytes, start: int, end: int) -> bytes:
    part = data[start:end]
    return part + bytes(end - start - len(part))


class SimulatedFile:
    """An open file."""

    __slots__ = ("_disk", "_errors_seen", "_path", "inode", "is_open")

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self.inode = inode
        self._errors_seen = inode.errors
        self.is_open = True

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write at a position; what lies between the end and it is zeros."""
        assert self.is_open, f"{self._path} is closed"
        self._disk.write(self.inode, self._path, bytes(data), position)

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end."""
        assert self.is_open, f"{self._path} is closed"
        if position < 0 or size < 0:
            raise OSError(errno.EINVAL, "Invalid argument", self._path)
        return bytes(self.inode.content[position : position + size])

    def size(self) -> int:
        """Bytes in the file."""
        return len(self.inode.content)

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        assert self.is_open, f"{self._path} is closed"
        self._disk.truncate(self.inode, size)

    def flush(self) -> None:
        """Return when the bytes are on the disk. Does nothing for the name."""
        assert self.is_open, f"{self._path} is closed"
        seen, self._errors_seen = self._errors_seen, self.inode.errors
        if seen < self.inode.errors:
            raise OSError(errno.EIO, "Input/output error", self._path)
        try:
            self._disk.flush(self.inode, self._path)
        finally:
            self._errors_seen = self.inode.errors

    def close(self) -> None:
        """Let go."""
        assert self.is_open, f"{self._path} is closed"
        self.is_open = False


class SimulatedDisk:
    """``Files`` that outlive the process and may suffer."""

    def __init__(
        self,
        rng: random.Random,
        *,
        block_bytes: int = 512,
        power: Power | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._rng = rng
        self._block_bytes = block_bytes
        self._power = power or Power()
        self._now_ms = now_ms or (lambda: 0)
        self.disk_time: Callable[[], None] = lambda: None
        """Called in every flush: time passes."""
        self._folders: dict[str, Entries] = {"": {}}
        self._on_disk: dict[str, Entries] = {"": {}}
        self.capacity: int | None = None
        """Bytes that fit; None is no limit."""
        self.fail_write: Callable[[str], bool] = lambda path: False
        """Told of a write; True makes it fail with EIO after a part."""
        self.fail_flush: Callable[[str], bool] = lambda path: False
        """Told of a flush; True makes it fail with EIO, and the unflushed bytes never reach the disk."""

    # The port.

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Open for reading and writing."""
        folder, name = _split(path)
        entries = self._folders.get(folder)
        inode = None if entries is None else entries.get(name)
        if inode is None:
            if entries is None or not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self._step()
            inode = entries[name] = Inode(self._now_ms())
        return SimulatedFile(self, path, inode)

    def replace(self, path: str, data: bytes) -> None:
        """Old or new, whole and durable."""
        self._step()
        folder, name = _split(path)
        inode = Inode(self._now_ms())
        inode.content[:] = data
        inode.on_disk = bytes(data)
        self._folders[folder][name] = inode
        self._step()
        self._on_disk[folder] = dict(self._folders[folder])

    def names(self, folder: str) -> list[str]:
        """Names in ``folder``, sorted."""
        return sorted(self._folders.get(folder.rstrip("/"), {}))

    def make_folder(self, folder: str) -> None:
        """Make ``folder`` and its parents."""
        path = ""
        for name in folder.strip("/").split("/"):
            parent, path = path, f"{path}/{name}" if path else name
            if path not in self._folders:
                self._step()
                self._folders[parent][name] = None
                self._folders[path] = {}
                self._on_disk[path] = {}

    def remove(self, path: str) -> None:
        """Remove a file."""
        folder, name = _split(path)
        if name in self._folders.get(folder, {}):
            self._step()
            del self._folders[folder][name]

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all in it."""
        if folder not in self._folders:
            return
        for name, inode in list(self._folders[folder].items()):
            if inode is None:
                self.remove_folder(f"{folder}/{name}")
            else:
                self.remove(f"{folder}/{name}")
        self._step()
        parent, name = _split(folder)
        del self._folders[parent][name]
        del self._folders[folder]

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder, in the place of another one; durable when this returns, with all names in it."""
        self.remove_folder(target)
        for path in [path for path in self._on_disk if _is_under(path, target)]:
            del self._on_disk[path]
        for path in [path for path in self._folders if _is_under(path, source)]:
            moved = target + path[len(source) :]
            self._on_disk.pop(path, None)
            self._folders[moved] = self._folders.pop(path)
            self._on_disk[moved] = dict(self._folders[moved])
        (above, name), (into, new_name) = _split(source), _split(target)
        del self._folders[above][name]
        self._folders[into][new_name] = None
        for folder in (above, into):
            self._on_disk[folder] = dict(self._folders[folder])

    def flush_folder(self, folder: str) -> None:
        """Return when the names in ``folder`` are on the disk."""
        folder = folder.rstrip("/")
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder)
        self._step()
        self._on_disk[folder] = dict(self._folders[folder])
        self.disk_time()

    def flush_paths(self, paths: list[str]) -> None:
        """Flush files and folders that still exist."""
        for path in paths:
            folder, name = _split(path)
            if path.rstrip("/") in self._folders:
                self.flush_folder(path)
            elif (inode := self._folders.get(folder, {}).get(name)) is not None:
                self.flush(inode, path)

    def modified_ms(self, path: str) -> int:
        """When the file was last written."""
        return self.open(path).inode.modified_ms

    def free_bytes(self) -> int:
        """What is left."""
        return 2**40 if self.capacity is None else max(self.capacity - self.used(), 0)

    # What files do.

    def write(self, inode: Inode, path: str, data: bytes, position: int) -> None:
        """Write, unless there is no power, no room or no luck."""
        is_last = self._power.use()
        fitting = len(data)
        if self.capacity is not None:
            growth = max(position + len(data) - len(inode.content), 0)
            fitting = max(len(data) - max(growth - self.free_bytes(), 0), 0)
        is_broken = self.fail_write(path)
        if is_broken or is_last:
            fitting = self._rng.randint(0, fitting)
        content = inode.content
        if fitting:
            if position > len(content):
                content.extend(bytes(position - len(content)))
            content[position : position + fitting] = data[:fitting]
            inode.is_dirty = True
            if inode.forgotten:  # a page that is written again is dirty again
                first, last = position // self._block_bytes, (position + fitting - 1) // self._block_bytes
                inode.forgotten.difference_update(range(first, last + 1))
            inode.modified_ms = self._now_ms()
        if is_last:
            raise PowerCut
        if is_broken:
            raise OSError(errno.EIO, "Input/output error", path)
        if fitting < len(data):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def truncate(self, inode: Inode, size: int) -> None:
        """Cut or lengthen."""
        self._step()
        if size < len(inode.content):
            inode.ghosts.append(bytes(inode.content))
            del inode.content[size:]
            inode.is_dirty = True
        elif size > len(inode.content):
            inode.content.extend(bytes(size - len(inode.content)))
            inode.is_dirty = True

    def flush(self, inode: Inode, path: str) -> None:
        """Everything written before this began is on the disk when it ends."""
        self._step()
        if self.fail_flush(path):
            for start in range(0, max(len(inode.content), len(inode.on_disk)), self._block_bytes):
                end = start + self._block_bytes
                if inode.content[start:end] != inode.on_disk[start:end]:
                    inode.forgotten.add(start // self._block_bytes)
            inode.errors += 1
            raise OSError(errno.EIO, "Input/output error", path)
        inode.flush(self._block_bytes)
        self.disk_time()

    def _step(self) -> None:
        if self._power.use():
            raise PowerCut

    # What the world does.

    def used(self) -> int:
        """Bytes in all files."""
        return sum(
            len(inode.content) for entries in self._folders.values() for inode in entries.values() if inode is not None
        )

    def files(self, under: str = "") -> list[str]:
        """Paths of all files, sorted."""
        return sorted(
            f"{folder}/{name}" if folder else name
            for folder, entries in self._folders.items()
            for name, inode in entries.items()
            if inode is not None and folder.startswith(under)
        )

    def content(self, path: str) -> bytes:
        """What everyone sees in a file."""
        return bytes(self.open(path).inode.content)

    def crash(self) -> None:
        """The machine goes down and comes back."""
        rng = self._rng
        style = rng.random()
        keep_chance = 0.0 if style < 0.3 else 1.0 if style < 0.6 else rng.random()
        found: dict[str, Entries] = {}
        self._recover_folder("", found, keep_chance)
        self._folders = found
        self._on_disk = {folder: dict(entries) for folder, entries in found.items()}
        seen: set[int] = set()
        for entries in found.values():
            for inode in entries.values():
                if inode is not None and id(inode) not in seen:
                    seen.add(id(inode))
                    inode.crash(rng, self._block_bytes)

    def _recover_folder(self, folder: str, found: dict[str, Entries], keep_chance: float) -> None:
        """Settle which names of a folder are there, then those below it."""
        now, before = self._folders.get(folder, {}), self._on_disk.get(folder, {})
        entries = found[folder] = {}
        for name in sorted({*now, *before}):
            is_new = name in now and (name not in before or now[name] is not before[name])
            is_gone = name in before and name not in now
            if is_new and self._rng.random() >= keep_chance:
                if name in before:
                    entries[name] = before[name]
            elif is_gone and self._rng.random() < keep_chance:
                continue
            else:
                entries[name] = now[name] if name in now else before[name]
        for name, inode in entries.items():
            if inode is None:
                self._recover_folder(f"{folder}/{name}" if folder else name, found, keep_chance)

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit over, on the disk and for everyone who reads."""
        inode = self.open(path).inode
        inode.content[bit // 8] ^= 1 << bit % 8
        inode.on_disk = bytes(inode.content)


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rstrip("/").rpartition("/")
    return folder, name
