"""One stream of the log into all tables of the archive, exactly once.

Spark plans a batch and writes its offsets into the checkpoint before it runs it, so a batch that is run again is made
of the same events. Its rows are not asked for: tasks get slices of the log, read each of them once, write the files of
every table (``intake``), and give back the names, which are then committed table by table. What a table still needs of
a batch, and whether it fits, the table decides (``ranges``): it is the truth of how far it is. A checkpoint that was
lost, or that belongs to another state of the tables, is set aside, said so, and reading goes on behind what all of them
hold.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import CorruptData
from pixiu.pipeline.lake.intake import WRITTEN_DDL, Target, take_in_batches
from pixiu.pipeline.lake.ranges import needed_after
from pixiu.pipeline.source.datasource import SourceOptions
from pixiu.pipeline.source.slices import SLICES_DDL, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.pipeline.lake.table import LakeTable

__all__ = ["CRASH_POINTS", "Feed", "Progress"]

logger = logging.getLogger(__name__)

CRASH_POINTS = ("before-write", "after-write", "before-commit", "after-commit", "before-spark-commit")
"""Where tests kill the process. Commits are per table: a crash may come between two of them."""

_START = "pixiu-start.json"
_TOO_SLOW = "Python worker failed to connect back"

STARTS = 20
"""How often a stream is started, where Spark loses patience with a Python process before it is up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What one batch added to one table."""

    table: str
    rows: int
    through: int
    end: int
    """How far the log was when this run began."""
    seconds: float


@dataclass(slots=True)
class Feed:
    """The tables of the archive and the stream that fills them."""

    spark: SparkSession
    tables: Sequence[LakeTable]
    checkpoints: Path
    source: dict[str, str]
    """Options of the source: where the log is."""
    rows_per_trigger: int
    tell: Callable[[Progress], object] = lambda progress: None
    warn: Callable[[str], object] = logger.warning
    reached: Callable[[str], object] = lambda point: None

    def run(self, end: int) -> dict[str, int]:
        """Read everything through event ``end`` that a table does not hold yet. Returns the rows that each got."""
        added = {table.name: 0 for table in self.tables}
        for table in self.tables:
            table.refresh()
        if self.through >= end:
            return added  # a batch that Spark has not ticked off comes again with the next events, and is left out then
        self._settle_checkpoint()
        options = self.source | {
            "columns": "header",
            "startingEventId": str(self._start() + 1),
            "endingEventId": str(end),
            "maxRowsPerTrigger": str(self.rows_per_trigger),
        }
        began = time.monotonic()

        def write(_: DataFrame, batch_id: int) -> None:
            nonlocal began
            for name, (count, through) in self._write(batch_id).items():
                added[name] += count
                self.tell(Progress(name, count, through, end, time.monotonic() - began))
            began = time.monotonic()
            self.reached("before-spark-commit")

        self._drain(options, write)
        return added

    def _drain(self, options: dict[str, str], write: Callable[[DataFrame, int], None]) -> None:
        """Run the stream until everything was read. What is read twice is left out, so it may be started again."""
        from pyspark.errors import StreamingQueryException

        for start in range(STARTS):
            query = (
                self.spark.readStream.format("pixiu")
                .options(**options)
                .load()
                .writeStream.foreachBatch(write)
                .option("checkpointLocation", str(self.checkpoint))
                .queryName("pixiu_archive")
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
                return
            except StreamingQueryException as error:
                if _TOO_SLOW not in str(error) or start == STARTS - 1:
                    raise
                self.warn("this machine is too busy for Spark to start a Python process in ten seconds; once more")

    @property
    def through(self) -> int:
        """The event through which every table holds the log."""
        return min(table.through for table in self.tables)

    @property
    def checkpoint(self) -> Path:
        """Where Spark remembers this stream."""
        return self.checkpoints / "archive"

    # One batch.

    def _write(self, batch_id: int) -> dict[str, tuple[int, int]]:
        """Write one batch and commit it. Returns by table its rows, and through which event the table is."""
        after, through = self._range(batch_id)
        folders: dict[str, str] = {}
        targets: dict[str, Target] = {}
        for table in self.tables:
            table.refresh()
            needed = needed_after(table.name, table.through, after, through)
            if needed is not None:
                folders[table.name] = table.new_folder(f"{through:020d}")
                targets[table.name] = Target(str(table.folder / folders[table.name]), needed)
        if not targets:
            return {}
        self.reached("before-write")

        log = SourceOptions.of(self.source).log()
        slices = [(text_of(part),) for part in log.plan(min(target.after for target in targets.values()), through)]

        def take(batches: Iterator[Any]) -> Iterator[Any]:
            return take_in_batches(batches, targets)

        written = self.spark.createDataFrame(slices, SLICES_DDL).mapInArrow(take, WRITTEN_DDL).collect()
        self.reached("after-write")
        done: dict[str, tuple[int, int]] = {}
        for table in self.tables:
            if table.name not in targets:
                continue
            self.reached("before-commit")
            count = table.append(
                folders[table.name], after=targets[table.name].after, through=through, query_id=self._query_id(),
                batch_id=batch_id, names=[row.name for row in written if row.table == table.name],
            )  # fmt: skip
            self.reached("after-commit")
            done[table.name] = count, through
        return done

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
        """Have a checkpoint that fits the tables; say so where that is not a matter of course."""
        through = self.through
        if self._has_checkpoint():
            committed = self._committed()
            if committed <= through:
                return
            self.warn(
                f"the checkpoint of the archive says that event {committed} is done, but not every table holds the log "
                f"beyond {through}: the checkpoint is set aside, and reading goes on behind {through}"
            )
        elif through > 0 and any(table.files() for table in self.tables):
            self.warn(
                f"the checkpoint of the archive is lost; its tables hold the log through event {through}, and reading "
                "goes on behind it"
            )
        if self.checkpoint.exists():
            aside = self.checkpoint.with_name(f"{self.checkpoint.name}.aside-{time.time_ns()}")
            self.checkpoint.rename(aside)
        self.checkpoint.mkdir(parents=True)
        (self.checkpoint / _START).write_text(json.dumps({"after": through}), encoding="utf-8")
