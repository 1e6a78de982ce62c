"""The disk: append, read, flush, cut. Paths are relative to the data directory, with ``/``.

What the contract promises and what it does not is exactly what a file system does: written bytes are visible at once
to every reader, and survive the machine only after ``flush`` of the file and, for a new name, ``flush_folder``.
"""

from typing import Protocol


class File(Protocol):
    """One open file. Writes at a position; the caller knows where the end is."""

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position`` or raise ``OSError``; a failed write may leave a part behind."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        ...

    def flush(self) -> None:
        """Return when every byte written so far is on the disk."""
        ...

    def close(self) -> None:
        """Give the descriptor back. Does not flush."""
        ...


class Files(Protocol):
    """A folder tree that the queue owns."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; ``FileNotFoundError`` unless it exists or ``create``."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Put a small file there so that a crash leaves the old one or the new one, whole and durable."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names in ``folder``, sorted; none if there is no such folder."""
        ...

    def make_folder(self, folder: str) -> None:
        """Make ``folder`` and its parents."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens if it is gone already."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all in it; nothing happens if it is gone already."""
        ...

    def flush_folder(self, folder: str) -> None:
        """Return when the names in ``folder`` are on the disk."""
        ...

    def flush_paths(self, paths: list[str]) -> None:
        """Return when these files, where they still exist, are on the disk. May run beside the loop."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since the epoch."""
        ...

    def free_bytes(self) -> int:
        """How much more fits on this disk."""
        ...
