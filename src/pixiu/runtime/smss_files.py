"""The files of a stopped smss server: its binlog, and the topics' own logs.

::

    <store.path>/binlog/<n>.log                    u32 line length | line | payload
    <store.path>/topic/<a>/<b>/<topic>/<n>.log     u32 line length | line | message LF

A line is ASCII, TAB separated, ends with LF and names the bytes that follow. Nothing has a checksum. Every start of
smss begins a new file. Only the newest binlog file can end inside a record: smss does not start over one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import CorruptData, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["SmssFiles", "TopicMessage"]

_LENGTH = Struct("<I")
_NUMBER_MAX = 2**62
LINE_BYTES_MAX = 1024
"""Six or seven numbers and a name of 128 bytes."""


class TopicMessage(NamedTuple):
    """One message of a topic's own log."""

    event_id: int
    time_ms: int
    message: bytes


class SmssFiles:
    """The directory that smss's setting ``store.path`` names."""

    def __init__(self, root: Path) -> None:
        """Raises ``NotFound`` if there is no smss data."""
        self.root = root
        if not (root / "binlog").is_dir():
            raise NotFound(f"there is no smss data in {root}: no folder binlog; give the directory of store.path")
        self.torn: str = ""
        """Where the newest binlog file ends inside a record, once it was read."""

    @property
    def journal_files(self) -> list[Path]:
        """The files of the binlog, oldest first, without empty ones."""
        return [path for path in _numbered(self.root / "binlog") if path.stat().st_size]

    @property
    def journal_bytes(self) -> int:
        """Bytes of the binlog."""
        return sum(path.stat().st_size for path in self.journal_files)

    def blocks(self) -> Iterator[bytes]:
        """Every record of the binlog, as smss's replica stream has it. Raises ``CorruptData`` with file and byte."""
        paths = self.journal_files
        for path in paths:
            with path.open("rb") as file:
                yield from self._blocks(path, file, is_last=path is paths[-1])

    def _blocks(self, path: Path, file: BinaryIO, *, is_last: bool) -> Iterator[bytes]:
        for position, line, rest in _records(path, file, size_field=5, fields=6):
            if rest is None:
                if not is_last:
                    raise CorruptData(f"{path} byte {position}: the record is cut off, and a newer file follows")
                self.torn = f"{path} byte {position}"
                return
            yield _LENGTH.pack(len(line)) + line + rest

    def topics(self) -> Iterator[tuple[bytes, Path]]:
        """Every topic that has a folder, by name. A name may hold slashes."""
        top = self.root / "topic"
        for group in sorted(top.glob("*/*")):
            folders = {path.parent for path in group.rglob("*.log")} | {
                path for path in group.iterdir() if path.is_dir() and not any(path.iterdir())
            }
            for folder in sorted(folders):
                if folder != group:
                    yield bytes(folder.relative_to(group)), folder

    def messages(self, folder: Path, *, before: int) -> Iterator[TopicMessage]:
        """The messages of a topic with event ids below ``before``, oldest first; their ids rise."""
        last = 0
        for path in _numbered(folder):
            with path.open("rb") as file:
                for position, line, rest in _records(path, file, size_field=3, fields=7):
                    if rest is None:
                        return
                    time_ms, event_id, *_ = line.split(b"\t")
                    if not event_id.isdigit() or not time_ms.isdigit() or int(time_ms) >= _NUMBER_MAX:
                        raise CorruptData(f"{path} byte {position}: not a record of smss")
                    if not last < int(event_id) < before:
                        return
                    last = int(event_id)
                    yield TopicMessage(last, int(time_ms), rest[:-1])


def _numbered(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("*.log") if path.stem.isdecimal()), key=lambda path: int(path.stem))


def _records(path: Path, file: BinaryIO, *, size_field: int, fields: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Position, line and payload of every record; the payload is None where the file ends inside the record."""
    position = 0
    while head := file.read(_LENGTH.size):
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        if length > LINE_BYTES_MAX or (len(head) == _LENGTH.size and not length):
            raise CorruptData(f"{path} byte {position}: {length} is no length of a line")
        line = file.read(length)
        if len(head) < _LENGTH.size or len(line) < length:
            yield position, b"", None
            return
        parts = line[:-1].split(b"\t")
        if not line.endswith(b"\n") or len(parts) != fields or not parts[size_field].isdigit():
            raise CorruptData(f"{path} byte {position}: not a record of smss")
        size = int(parts[size_field])
        rest = file.read(size)
        if len(rest) < size:
            yield position, line, None
            return
        yield position, line, rest
        position += _LENGTH.size + length + size
