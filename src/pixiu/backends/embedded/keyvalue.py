"""``KeyValue`` on RocksDB (rocksdict).

RocksDB's own write-ahead log is on but not synced at each batch: the journal is the truth and is synced, and the
applied event id travels inside the batch. Small buffers, since this store holds metadata, not messages.
"""

import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import AccessType, DBCompressionType, Options, Rdict, WriteBatch

from pixiu.model.errors import CorruptData, Unavailable

log = logging.getLogger(__name__)

MEND_BYTES = 2**20
"""Room that opening a store takes, beside what it holds in its own log."""

WRITE_BUFFER_BYTES = 4 * 2**20


class RocksKeyValue:
    """A folder with a RocksDB in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_broken = False
        folder.mkdir(parents=True, exist_ok=True)
        self._db = self._open()

    def _open(self) -> Rdict:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(64)
        options.set_compression_type(DBCompressionType.none())
        try:
            return Rdict(str(self._folder), options, access_type=AccessType.read_write())
        except Exception as error:  # rocksdict raises a bare Exception for everything
            raise _translated(error, f"cannot open the store in {self._folder}") from error

    def _mend(self) -> None:
        """After a failed write RocksDB takes no more until it is opened anew, even when the disk has room again."""
        needed = MEND_BYTES + sum(path.stat().st_size for path in self._folder.glob("*.log"))
        if shutil.disk_usage(self._folder).free < needed:
            raise Unavailable(f"the store in {self._folder} needs {needed >> 10} KiB to go on: No space left on device")
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001 - it says again what failed before
            log.debug("closed a store that had failed", extra={"reason": str(error)})
        self._db = self._open()
        self._is_broken = False

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        value = self._db.get(key)
        return value if isinstance(value, bytes) else None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order, as they were when the scan began."""
        items: Iterable[tuple[bytes, bytes]] = self._db.items(from_key=start)  # type: ignore[assignment]
        for key, value in items:
            if key >= end:
                return
            yield key, value

    def dump(self) -> Iterator[tuple[bytes, bytes]]:
        """Every pair as it is at this moment: RocksDB's iterator keeps its own view from here on."""
        items: Iterable[tuple[bytes, bytes]] = self._db.items()  # type: ignore[assignment]
        return iter(items)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch, deletes first."""
        batch = WriteBatch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts:
            batch.put(key, value)
        if self._is_broken:
            self._mend()
        try:
            self._db.write(batch)
        except Exception as error:
            self._is_broken = True
            raise _translated(error, "cannot write to the store") from error

    def flush(self) -> None:
        """Return when all batches are on the disk."""
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise _translated(error, "cannot flush the store") from error

    def close(self) -> None:
        """Let go of the store."""
        try:
            self._db.close()
        except Exception as error:
            raise _translated(error, "cannot close the store") from error


def _translated(error: Exception, what: str) -> CorruptData | Unavailable:
    text = f"{what}: {error}"
    return CorruptData(text) if "orruption" in str(error) else Unavailable(text)
