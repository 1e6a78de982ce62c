"""One run of the pipeline: open the lake, feed its tables, fold recalls, make the marts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError
from pixiu.pipeline.lake.compaction import Compacted, compact
from pixiu.pipeline.lake.feed import Feed, Progress
from pixiu.pipeline.lake.lock import LakeLock
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.source.journal import JournalFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession

__all__ = ["JOBS", "Pipeline"]

log = logging.getLogger(__name__)

JOBS = ("archive",)
"""What ``pixiu pipeline run`` runs when nothing is named, in this order."""

ROWS_PER_TRIGGER = 1_000_000


class Pipeline:
    """A lake under its lock, and the jobs that fill it."""

    def __init__(
        self,
        data: Path,
        spark: Callable[[], SparkSession],
        *,
        tell: Callable[[Progress], object] = lambda progress: None,
        warn: Callable[[str], object] = log.warning,
        reached: Callable[[str], object] = lambda point: None,
        rows_per_trigger: int = ROWS_PER_TRIGGER,
    ) -> None:
        """``spark`` is called once, when it is first needed: a lake that is in use is refused before Spark starts."""
        self.place = Place(data)
        self.log = JournalFolder(data, index_folder=self.place.index)
        self._lock = LakeLock(self.place.folder)
        self._open_spark = spark
        self._spark: SparkSession | None = None
        self._tell = tell
        self._warn = warn
        self._reached = reached
        self._rows_per_trigger = rows_per_trigger

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    @property
    def spark(self) -> SparkSession:
        """The session of this run."""
        if self._spark is None:
            self._spark = self._open_spark()
        return self._spark

    def held_through(self) -> int:
        """The event through which every table of the archive holds the log."""
        return min(self.table(name).through for name in LAKE_SCHEMAS)

    def stop(self) -> None:
        """End the session that this run has opened."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def table(self, name: str) -> LakeTable:
        """A table of the archive, created if it is new."""
        return LakeTable(self.place.lake, name, LAKE_SCHEMAS[name], begins_after=self.log.first_event_id() - 1)

    def run(self, jobs: Sequence[str] = ()) -> dict[str, int]:
        """Run these jobs, or all, over what is in the log now. Returns rows added, by table."""
        unknown = sorted(set(jobs) - set(JOBS))
        if unknown:
            raise ConfigError(f"there is no job {unknown[0]!r}; there are: {', '.join(JOBS)}")
        added: dict[str, int] = {}
        end = self.log.end().event_id
        for job in [name for name in JOBS if not jobs or name in jobs]:
            added |= self._archive(end) if job == "archive" else {}
        return added

    def _archive(self, end: int) -> dict[str, int]:
        added: dict[str, int] = {}
        for name in LAKE_SCHEMAS:
            table = self.table(name)
            if table.through >= end:
                added[name] = 0
                continue
            feed = Feed(
                self.spark, table, self.place.checkpoints,
                {"path": str(self.place.data), "indexFolder": str(self.place.index)},
                self._rows_per_trigger, self._tell, self._warn, self._reached,
            )  # fmt: skip
            added[name] = feed.run(end)
        messages, changes = self.table("messages"), self.table("changes")
        compact(lambda: self.spark, messages, changes, only_recalls=True, reached=self._reached)
        return added

    def compact(self, *, vacuum_hours: int = 168) -> list[Compacted]:
        """Make small files into large ones, fold receipts in, and remove files that nobody needs any more."""
        done = []
        for name in LAKE_SCHEMAS:
            table = self.table(name)
            done.append(compact(lambda: self.spark, table, self.table("changes"), reached=self._reached))
            table.vacuum(vacuum_hours)
        return done
