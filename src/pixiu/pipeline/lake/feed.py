"""A stream of the source into a table, exactly once.

Spark plans a batch and writes its offsets into the checkpoint before it runs it, so a batch that is run again is made
of the same events. Its range comes from there; what the table still needs of it, and whether it fits, the table decides
(``ranges``). The table is the truth of how far it is: a checkpoint that was lost, or that belongs to another state of
the table, is set aside, said so, and reading goes on behind what the table holds.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.model.errors import CorruptData
from pixiu.pipeline.jobs.archive import shape
from pixiu.pipeline.lake.ranges import needed_after
from pixiu.pipeline.lake.schema import ORDER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.pipeline.lake.table import LakeTable

__all__ = ["CRASH_POINTS", "Feed", "Progress"]

log = logging.getLogger(__name__)

CRASH_POINTS = ("before-write", "after-write", "before-commit", "after-commit", "before-spark-commit")
"""Where tests kill the process."""

_START = "pixiu-start.json"

WRITE_OPTIONS = {"parquet.compression.codec.zstd.level": "1"} | {
    f"parquet.enable.dictionary#{name}": "false"
    for name in ("message_id", "event_id", "accepted_at", "written_at", "text", "body", "send_id")
}
"""Most of a batch's work is writing Parquet: no dictionaries for what hardly repeats, and little time for compression.
Compaction writes the files anew, with Spark's defaults."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch that is done."""

    table: str
    rows: int
    through: int
    end: int
    """How far the log was when this run began."""
    seconds: float


@dataclass(slots=True)
class Feed:
    """One table of the archive and the stream that fills it."""

    spark: SparkSession
    table: LakeTable
    checkpoints: Path
    source: dict[str, str]
    """Options of the source: where the log is."""
    rows_per_trigger: int
    tell: Callable[[Progress], object] = lambda progress: None
    warn: Callable[[str], object] = log.warning
    reached: Callable[[str], object] = lambda point: None

    def run(self, end: int) -> int:
        """Read everything through event ``end`` that the table does not hold yet. Returns the rows that were added."""
        self.table.refresh()
        if self.table.through >= end:
            return 0  # a batch that Spark has not ticked off comes again with the next events, and is left out then
        self._settle_checkpoint()
        options = self.source | {
            "columns": self.table.name,
            "startingEventId": str(self._start() + 1),
            "endingEventId": str(end),
            "maxRowsPerTrigger": str(self.rows_per_trigger),
        }
        added = 0
        began = time.monotonic()

        def write(rows: DataFrame, batch_id: int) -> None:
            nonlocal added, began
            count, through = self._write(rows, batch_id)
            added += count
            now = time.monotonic()
            self.tell(Progress(self.table.name, count, through, end, now - began))
            began = now
            self.reached("before-spark-commit")

        query = (
            self.spark.readStream.format("pixiu")
            .options(**options)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.checkpoint))
            .queryName(f"pixiu_{self.table.name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return added

    @property
    def checkpoint(self) -> Path:
        """Where Spark remembers this stream."""
        return self.checkpoints / self.table.name

    # One batch.

    def _write(self, rows: DataFrame, batch_id: int) -> tuple[int, int]:
        """Write one batch and commit it. Returns its rows, and through which event the table is."""
        table = self.table
        after, through = self._range(batch_id)
        table.refresh()
        needed = needed_after(table.name, table.through, after, through)
        if needed is None:
            return 0, table.through
        self.reached("before-write")
        if needed > after:
            rows = rows.where(rows["event_id"] > needed)
        folder = table.new_folder(f"{through:020d}")
        sorted_rows = shape(table.name, rows).sortWithinPartitions(*ORDER[table.name])
        sorted_rows.write.options(**WRITE_OPTIONS).parquet(str(table.folder / folder))
        self.reached("after-write")
        self.reached("before-commit")
        count = table.append(folder, after=needed, through=through, query_id=self._query_id(), batch_id=batch_id)
        self.reached("after-commit")
        return count, through

    def _range(self, batch_id: int) -> tuple[int, int]:
        """The events of a batch, as Spark planned it: from behind the first to the second."""
        after = self._start() if batch_id == 0 else self._offset(batch_id - 1)
        return after, self._offset(batch_id)

    # What Spark keeps in its checkpoint.

    def _offset(self, batch_id: int) -> int:
        path = self.checkpoint / "offsets" / str(batch_id)
        try:
            return int(json.loads(path.read_text(encoding="utf-8").splitlines()[-1])["event_id"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CorruptData(f"the checkpoint {path} cannot be understood: {error}") from error

    def _query_id(self) -> str:
        found = json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))
        return str(found["id"])

    def _has_checkpoint(self) -> bool:
        return (self.checkpoint / "offsets").is_dir() and (self.checkpoint / _START).exists()

    def _start(self) -> int:
        return int(json.loads((self.checkpoint / _START).read_text(encoding="utf-8"))["after"])

    def _committed(self) -> int:
        """Through which event Spark believes that it is done."""
        names = [int(path.name) for path in (self.checkpoint / "commits").glob("*") if path.name.isdecimal()]
        return self._offset(max(names)) if names else self._start()

    def _settle_checkpoint(self) -> None:
        """Have a checkpoint that fits the table; say so where that is not a matter of course."""
        table = self.table
        if self._has_checkpoint():
            committed = self._committed()
            if committed <= table.through:
                return
            self.warn(
                f"the checkpoint of {table.name} says that event {committed} is done, but the table holds the log only "
                f"through {table.through}: the checkpoint is set aside, and reading goes on behind {table.through}"
            )
        elif table.through > 0 and table.files():
            self.warn(
                f"the checkpoint of {table.name} is lost; the table holds the log through event {table.through}, and "
                "reading goes on behind it"
            )
        if self.checkpoint.exists():
            aside = self.checkpoint.with_name(f"{self.checkpoint.name}.aside-{time.time_ns()}")
            self.checkpoint.rename(aside)
        self.checkpoint.mkdir(parents=True)
        (self.checkpoint / _START).write_text(json.dumps({"after": table.through}), encoding="utf-8")
