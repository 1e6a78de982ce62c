"""One run of the pipeline: open the lake, feed its tables, fold recalls, make the marts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError, Unavailable
from pixiu.pipeline.cut import rows_of_cut, take_cut_of
from pixiu.pipeline.jobs import audit, marts
from pixiu.pipeline.lake.compaction import Compacted, compact, gather, read_table
from pixiu.pipeline.lake.feed import Feed, Progress
from pixiu.pipeline.lake.lock import LakeLock
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import THROUGH, LakeTable
from pixiu.pipeline.source.journal import JournalFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.roles.carrier.audit import Cut

__all__ = ["EVERY_JOBS", "HANDED_DAYS", "JOBS", "Pipeline", "mart_rows"]

log = logging.getLogger(__name__)

JOBS = ("archive", "usage", "heat", "latency", "audit")
"""What ``pixiu pipeline run --once`` runs when nothing is named, in this order."""

EVERY_JOBS = JOBS[:-1]
"""What runs again and again when nothing is named: the audit reads everything, and is asked for by name."""

HANDED_DAYS = 2
"""Acks are matched with hand-overs of this many days."""

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
        take_cut: Callable[[Path], Cut] = take_cut_of,
    ) -> None:
        """``spark`` is called once, when it is first needed: a lake that is in use is refused before Spark starts.

        ``take_cut`` says what waits in the stores of a data directory.
        """
        # Spark's own processes need not share our working directory.
        self.place = Place(data.resolve())
        self.log = JournalFolder(self.place.data, index_folder=self.place.index)
        self._lock = LakeLock(self.place.folder)
        self._open_spark = spark
        self._spark: SparkSession | None = None
        self._tell = tell
        self._warn = warn
        self._reached = reached
        self._rows_per_trigger = rows_per_trigger
        self._take_cut = take_cut

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
            if job == "archive":
                added |= self._archive(end)
            elif job == "audit":
                added |= self._audit()
            else:
                added[job] = self._mart(job)
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

    # Marts.

    def _new_rows(self, name: str, after: int, through: int) -> DataFrame:
        """The rows of a table of the archive that came behind ``after``, from the files that have any."""
        table = self.table(name)
        files = [file for file in table.files() if file.event_max is None or file.event_max > after]
        return read_table(self.spark, table, files).where(f"event_id > {after} AND event_id <= {through}")

    def mart(self, name: str) -> LakeTable:
        """A mart, created if it is new."""
        return LakeTable(self.place.lake, name, MART_SCHEMAS[name], begins_after=self.log.first_event_id() - 1)

    def _mart(self, name: str) -> int:
        """Append what the new events add to a mart."""
        table = self.mart(name)
        after, through = table.through, self.held_through()
        if after >= through:
            return 0
        days = f"noted_at >= (SELECT max(noted_at) FROM {{rows}}) - INTERVAL {HANDED_DAYS} DAYS"
        whole = read_table(self.spark, self.table("deliveries"))
        handed = self.spark.sql(f"SELECT * FROM {{rows}} WHERE {days}", rows=whole)
        messages, deliveries, changes = (self._new_rows(each, after, through) for each in LAKE_SCHEMAS)
        rows = mart_rows(name, messages, deliveries, changes, handed)
        folder = table.new_folder(f"{through:020d}")
        rows.coalesce(1).write.parquet(str(table.folder / folder))
        self._reached("mart-written")
        return table.append(folder, after=after, through=through)

    # The audit.

    def _audit(self) -> dict[str, int]:
        """Make the books again, at a cut through the stores if nobody runs on them."""
        cut = None
        try:
            cut = self._take_cut(self.place.data)
        except Unavailable as error:
            self._warn(f"the audit counts what should wait, and not what does: {error}")
        through = self.held_through() if cut is None else cut.event_id
        if cut is not None and self.held_through() < through:
            self._archive(through)
        messages, deliveries, changes = (
            read_table(self.spark, self.table(name)).where(f"event_id <= {through}") for name in LAKE_SCHEMAS
        )
        inboxes = audit.inboxes_of(changes).persist()
        meant = audit.entries_of(messages, changes, inboxes).persist()
        entries = audit.departures(meant, deliveries, changes, inboxes).persist()
        held = found = None
        if cut is not None:
            held = self.spark.createDataFrame(rows_of_cut(cut)).persist()
            found = audit.findings(entries, held, inboxes)
        twice = audit.accepted_twice(messages)
        made = {
            "audit": audit.books(entries, deliveries, inboxes, held, found),
            "findings": twice if found is None else found.unionByName(twice),
        }
        rows: dict[str, int] = {}
        for name, frame in made.items():
            table = LakeTable(self.place.lake, name, AUDIT_SCHEMAS[name])
            folder = table.new_folder(f"{through:020d}")
            frame.coalesce(1).write.parquet(str(table.folder / folder))
            table.replace(table.files(), folder, why="audit", positions={THROUGH: through})
            rows[name] = sum(file.rows for file in table.files())
        for frame in (entries, meant, inboxes):
            frame.unpersist()
        return rows

    def compact(self, *, vacuum_hours: int = 168) -> list[Compacted]:
        """Make small files into large ones, fold receipts in, and remove files that nobody needs any more."""
        done = []
        for name in LAKE_SCHEMAS:
            table = self.table(name)
            done.append(compact(lambda: self.spark, table, self.table("changes"), reached=self._reached))
            table.vacuum(vacuum_hours)
        for name in MART_SCHEMAS:
            mart = self.mart(name)
            done.append(gather(lambda: self.spark, mart))
            mart.vacuum(vacuum_hours)
        return done

    def files_max(self) -> int:
        """Of the table with the most files, how many."""
        tables = [*(self.table(name) for name in LAKE_SCHEMAS), *(self.mart(name) for name in MART_SCHEMAS)]
        return max(len(table.files()) for table in tables)


def mart_rows(
    name: str, messages: DataFrame, deliveries: DataFrame, changes: DataFrame, handed: DataFrame
) -> DataFrame:
    """What rows of the archive add to a mart. ``handed``: rows of the ledger in which hand-overs are looked for."""
    if name == "usage":
        return marts.usage(messages, deliveries, changes)
    if name == "heat":
        return marts.heat(messages)
    return marts.latency(messages, deliveries, handed)
