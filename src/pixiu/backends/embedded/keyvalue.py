"""``KeyValue`` on RocksDB (rocksdict).

RocksDB's own write-ahead log is on but not synced at each batch: the journal is the truth and is synced, and the
applied event id travels inside the batch. Small buffers by default, since the queue's store holds metadata, not
messages; ``RocksKeyValue(folder, options=LARGE)`` is for the stores of messaging, which hold millions of rows.
"""

import logging
import secrets
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap, takewhile
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
)

from pixiu.model.errors import CorruptData, Unavailable

log = logging.getLogger(__name__)

MEND_BYTES = 2**20
"""Room that opening a store takes, beside what it holds in its own log."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """How much memory a store may use, and for what."""

    write_buffer_bytes: int = 4 * 2**20
    """Of these there are two: one is filled while the other is written to a file."""
    block_cache_bytes: int = 0
    """Of blocks read from files; 0 leaves it to RocksDB."""
    bloom_bits: int = 0
    """Per key, in files and in the write buffers: asking for what is not there then costs half a microsecond."""
    open_files_max: int = 64


SMALL = RocksOptions()
LARGE = RocksOptions(write_buffer_bytes=32 * 2**20, block_cache_bytes=64 * 2**20, bloom_bits=10, open_files_max=256)


class RocksKeyValue:
    """A folder with a RocksDB in it."""

    def __init__(self, folder: Path, *, options: RocksOptions = SMALL, made_again: str = "") -> None:
        """``made_again`` is the command that makes the store again from the log; errors about damage name it."""
        self._made_again = made_again
        self._folder = folder
        self._options = options
        self._is_broken = False
        folder.mkdir(parents=True, exist_ok=True)
        self._db = self._open()

    def _open(self) -> Rdict:
        chosen = self._options
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(chosen.write_buffer_bytes)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(chosen.open_files_max)
        options.set_compression_type(DBCompressionType.none())
        blocks = BlockBasedOptions()
        if chosen.block_cache_bytes:
            blocks.set_block_cache(Cache(chosen.block_cache_bytes))
        if chosen.bloom_bits:
            blocks.set_bloom_filter(chosen.bloom_bits, False)
            options.set_memtable_prefix_bloom_ratio(0.02)
            options.set_memtable_whole_key_filtering(True)
        options.set_block_based_table_factory(blocks)
        try:
            return Rdict(str(self._folder), options, access_type=AccessType.read_write())
        except Exception as error:  # rocksdict raises a bare Exception for everything
            raise _translated(error, f"cannot open the store in {self._folder}", self._made_again) from error

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
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise _translated(error, "cannot read from the store", self._made_again) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place."""
        try:
            values: list[bytes | None] = self._db.get(list(keys)) if keys else []  # type: ignore[assignment]
        except Exception as error:
            raise _translated(error, "cannot read from the store", self._made_again) from error
        return values

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with ``start <= key < end``, in order, as they were when the scan began."""
        if start >= end:
            return iter(())
        return self._items(start, end, is_backwards=False)

    def scan_back(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of ``scan``, last one first."""
        if start >= end:
            return iter(())
        return takewhile(lambda pair: pair[0] >= start, self._items(end, end, is_backwards=True))

    def _items(self, start: bytes, end: bytes, *, is_backwards: bool) -> Iterator[tuple[bytes, bytes]]:
        """From ``start`` on, never at or behind ``end``: a bound saves a walk over what was deleted there.

        There is no bound for the way back: rocksdict 0.3.29 takes a lower bound for an upper one.
        """
        reading = ReadOptions()
        reading.set_iterate_upper_bound(end)
        try:
            items: Iterator[tuple[bytes, bytes]] = iter(
                self._db.items(backwards=is_backwards, from_key=start, read_opt=reading)  # type: ignore[arg-type]
            )
            yield from items
        except Exception as error:
            raise _translated(error, "cannot read from the store", self._made_again) from error

    def dump(self) -> Iterator[tuple[bytes, bytes]]:
        """Every pair as it is at this moment: RocksDB's iterator keeps its own view from here on."""
        items: Iterable[tuple[bytes, bytes]] = self._db.items()  # type: ignore[assignment]
        return iter(items)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Put and delete as one batch, deletes first."""
        batch = WriteBatch(raw_mode=True)
        deque(map(batch.delete, deletes), maxlen=0)
        deque(starmap(batch.put, puts), maxlen=0)
        if self._is_broken:
            self._mend()
        try:
            self._db.write(batch)
        except Exception as error:
            self._is_broken = True
            raise _translated(error, "cannot write to the store", self._made_again) from error

    def flush(self) -> None:
        """Return when all batches are on the disk."""
        try:
            self._db.flush_wal(True)
        except Exception as error:
            raise _translated(error, "cannot flush the store", self._made_again) from error

    def ingest(self, paths: Sequence[str]) -> None:
        """Take over files of ``write_sorted``, as they are, in one step."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._db.ingest_external_file(list(paths), options)
        except Exception as error:
            raise _translated(error, "cannot take over files") from error

    def compact(self) -> None:
        """Write everything anew, so that what was deleted or replaced is in no file any more."""
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        try:
            self._db.flush(True)
            self._db.compact_range(None, None, compact_opt=options)
            self._db.flush_wal(True)
        except Exception as error:
            raise _translated(error, "cannot compact the store", self._made_again) from error

    def close(self) -> None:
        """Let go of the store."""
        try:
            self._db.close()
        except Exception as error:
            raise _translated(error, "cannot close the store") from error


def write_sorted(folder: str, pairs: Iterable[tuple[bytes, bytes]]) -> tuple[str, int]:
    """Write pairs that rise by key as a new file for ``ingest``. Returns its path, and how many there were."""
    path = Path(folder) / f"{secrets.token_hex(8)}.sst"
    count = 0
    try:
        writer = SstFileWriter(options=Options(raw_mode=True))
        writer.open(str(path))
        for count, (key, value) in enumerate(pairs, 1):  # noqa: B007 - the last number counts them
            writer[key] = value
        if count:
            writer.finish()
    except Exception as error:
        raise _translated(error, f"cannot write {path}") from error
    return str(path), count


def _translated(error: Exception, what: str, made_again: str = "") -> CorruptData | Unavailable:
    said = " ".join(str(error).split())
    text = f"{what}: {said}"
    if "orruption" in said or (made_again and "No such file" in said):  # a file that it names is gone
        return CorruptData(f"{text}. It can be made again from the log: {made_again}" if made_again else text)
    return Unavailable(text)
