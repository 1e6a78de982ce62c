"""Backups: a snapshot written to a folder, from a running queue or from a stopped one, and back.

A backup is a folder with the files of the queue and ``manifest.json``, which names every file with its size and SHA-256
and the event id of the cut. ``restore`` believes nothing that the manifest does not vouch for, and no record whose own
checksum does not match: the manifest's say that the copy is what was copied, not that this was whole.
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pixiu.machines.queue_wire.follow import FileClosed, FileOpened, PieceSent, SnapshotEnded, SnapshotReader
from pixiu.machines.queue_wire.requests import encode_snapshot
from pixiu.machines.queue_wire.streams import Refused
from pixiu.model.errors import Conflict, CorruptData, NotFound, PixiuError, Unavailable
from pixiu.queue.client.keys import show_key_blocking
from pixiu.queue.storage.verify import Fault, Verifier
from pixiu.runtime.files import SystemFiles, flush_folders, write_durably

MANIFEST = "manifest.json"
RESTORED = "restored.json"
"""In a data directory: through which event it came from a backup."""
VERSION = 1
RECEIVE_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0

Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    event_id: int
    epoch: int
    files: int
    bytes: int


class _FolderWriter:
    """Writes the files of a snapshot stream, and their checksums."""

    def __init__(self, folder: Path, advance: Advance) -> None:
        self._folder = folder
        self._advance = advance
        self._reader = SnapshotReader()
        self._file: BinaryIO | None = None
        self._path = ""
        self._digest = hashlib.sha256()
        self._size = 0
        self._files: list[dict[str, object]] = []
        self.result: Backup | None = None

    def receive(self, data: bytes) -> None:
        for event in self._reader.receive(data):
            match event:
                case FileOpened(_, path):
                    target = self._folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self._file, self._path = target.open("wb"), path
                    self._digest, self._size = hashlib.sha256(), 0
                case PieceSent(piece) if self._file is not None:
                    self._file.write(piece)
                    self._digest.update(piece)
                    self._size += len(piece)
                    self._advance(len(piece))
                case FileClosed() if self._file is not None:
                    _close_durably(self._file)
                    row = {"path": self._path, "size": self._size, "sha256": self._digest.hexdigest()}
                    self._files.append(row)
                case SnapshotEnded(manifest):
                    self._finish(json.loads(manifest))
                case Refused(text):
                    raise Unavailable(f"the queue refused to be backed up: {text}")
                case _:
                    pass

    def _finish(self, manifest: dict[str, int]) -> None:
        event_id, epoch = manifest["event_id"], manifest["epoch"]
        content = {"version": VERSION, "event_id": event_id, "epoch": epoch, "files": self._files}
        with (self._folder / MANIFEST).open("wb") as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")
            _close_durably(file)
        total = sum(int(str(row["size"])) for row in self._files)
        self.result = Backup(event_id, epoch, len(self._files), total)


def backup_running(address: str, folder: Path, advance: Advance, *, key: str = "") -> Backup:
    """Copy a running queue. ``key`` is the node's or the cluster's, for a queue that wants one."""
    _require_empty(folder)
    host, _, port = address.rpartition(":")
    writer = _FolderWriter(folder, advance)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS) as connection:
            if key:
                show_key_blocking(connection, key)
            connection.sendall(encode_snapshot())
            while writer.result is None:
                data = connection.recv(RECEIVE_BYTES)
                if not data:
                    raise Unavailable(f"{address} ended the connection before the backup was whole")
                writer.receive(data)
    except OSError as error:
        raise Unavailable(f"cannot copy from {address}: {error}") from error
    return writer.result


def backup_stopped(messages: Iterator[bytes], folder: Path, advance: Advance) -> Backup:
    """Write the messages of a snapshot that was made in this process."""
    _require_empty(folder)
    writer = _FolderWriter(folder, advance)
    for message in messages:
        writer.receive(message)
    if writer.result is None:
        raise PixiuError("the snapshot is not whole")
    return writer.result


def read_manifest(folder: Path) -> dict[str, object]:
    """The manifest of a backup. Raises if this is none."""
    try:
        found = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{folder} is not a backup: it has no {MANIFEST}") from None
    except ValueError as error:
        raise CorruptData(f"{folder / MANIFEST}: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("files"), list):
        raise CorruptData(f"{folder / MANIFEST} is not a manifest of version {VERSION}")
    return found


def _rows(manifest: dict[str, object]) -> list[dict[str, object]]:
    rows = manifest["files"]
    assert isinstance(rows, list)
    return rows


def check(folder: Path, advance: Advance) -> Backup:
    """Compare every file of a backup with its manifest. Raises ``CorruptData`` naming the first that differs."""
    manifest = read_manifest(folder)
    rows = _rows(manifest)
    total = 0
    for row in rows:
        path = folder / str(row["path"])
        if not path.is_relative_to(folder) or ".." in path.parts:
            raise CorruptData(f"{folder / MANIFEST} names a file outside the backup: {row['path']}")
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while piece := file.read(RECEIVE_BYTES):
                    digest.update(piece)
                    advance(len(piece))
        except FileNotFoundError:
            raise CorruptData(f"{path} is missing from the backup") from None
        if digest.hexdigest() != row["sha256"]:
            raise CorruptData(f"{path} is not what was backed up: its checksum does not match")
        total += path.stat().st_size
    return Backup(int(str(manifest["event_id"])), int(str(manifest["epoch"])), len(rows), total)


def check_records(folder: Path, advance: Advance) -> list[Fault]:
    """What is damaged in the records of a backup: a copy is as damaged as what it was made of, byte for byte."""
    return Verifier(SystemFiles(folder, read_only=True), advance, has_indexes=False).run().faults


def restore(folder: Path, data: Path, advance: Advance, *, takes_damaged: bool = False) -> Backup:
    """Check a backup, then copy it into an empty data directory (which must be open and locked by the caller)."""
    if (data / "queue").exists():
        raise Conflict(f"{data} has a queue already; restore into a new directory, or remove it first")
    found = check(folder, advance)
    faults = check_records(folder, advance)
    if faults and not takes_damaged:
        raise CorruptData(
            f"nothing was restored: what was backed up was damaged already: {faults[0]}. Take an older backup; or "
            "restore this one as it is (--damaged), and see what can be mended (pixiu queue verify)"
        )
    incoming = data / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    for row in _rows(read_manifest(folder)):
        target = incoming / str(row["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / str(row["path"]), target)
    for path in incoming.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    flush_folders(incoming)
    write_durably(data / RESTORED, json.dumps({"event_id": found.event_id}), mode=0o600)
    (incoming / "queue").rename(data / "queue")
    flush_folders(data)
    shutil.rmtree(incoming)
    return found


def restored_through(data: Path) -> int:
    """The last event that a data directory has from a backup; 0 if it was never restored.

    What was to be done for these events was done where the backup was made: nobody is notified of them again.
    """
    try:
        found = json.loads((data / RESTORED).read_bytes())
        return int(found["event_id"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{data / RESTORED} is not what pixiu restore wrote: {error}") from error


def _require_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty; name a new folder for the backup")
    folder.mkdir(parents=True, exist_ok=True)


def _close_durably(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
