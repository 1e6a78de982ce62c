"""One run of the pipeline: open the lake, feed its tables, fold recalls, make the marts."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError, Unavailable
from pixiu.pipeline.books.run import books_through, run_audit
from pixiu.pipeline.cut import take_cut_of
from pixiu.pipeline.jobs import marts
from pixiu.pipeline.lake.compaction import Compacted, compact, empty_frame, first_ack, kept_from, read_table
from pixiu.pipeline.lake.erasure import blank_lake
from pixiu.pipeline.lake.feed import Feed, Progress
from pixiu.pipeline.lake.lock import LakeLock
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, LAKE_SCHEMAS, MART_SCHEMAS, MARTS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.search.embedded import EmbeddedIndex
from pixiu.pipeline.search.feed import SearchFeed
from pixiu.pipeline.source.slices import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from pixiu.pipeline.lake.table import DataFile
    from pixiu.pipeline.search.steps import Sink
    from pixiu.roles.carrier.cut import Cut

__all__ = ["EVERY_JOBS", "HANDED", "JOBS", "Pipeline"]

log = logging.getLogger(__name__)

JOBS = ("archive", "search", "usage", "heat", "latency", "audit")
"""What ``pixiu pipeline run --once`` runs when nothing is named, in this order."""

EVERY_JOBS = JOBS[:-1]
"""What runs again and again when nothing is named: the audit looks at all that waits, and is asked for by name."""

HANDED = timedelta(minutes=10)
"""Acks are matched with hand-overs so long before: a session that acks nothing is closed after seconds."""

ROUNDED = timedelta(milliseconds=1)
"""How much smaller than its newest time a file's statistics may say that it is."""

ROWS_PER_TRIGGER = 1_000_000

RETAINED = ("messages", "deliveries")
"""What ``pixiu pipeline compact --keep-days`` lets go by age. Changes say how things are now, and marts are small."""


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
        open_sink: Callable[[], Sink] | None = None,
        take_cut: Callable[[Path], Cut] = take_cut_of,
    ) -> None:
        """``spark`` is called once, when it is first needed: a lake that is in use is refused before Spark starts.

        ``take_cut`` says what waits in the stores of a data directory.
        """
        # Spark's own processes need not share our working directory.
        self.place = Place(data.resolve())
        self.log = log_of(self.place.data, self.place.index)
        self._lock = LakeLock(self.place.folder)
        try:
            self.place.bind(self.log.identity())
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        self._open_spark = spark
        self._spark: SparkSession | None = None
        self._tell = tell
        self.warn = warn
        self.reached = reached
        self._rows_per_trigger = rows_per_trigger
        self._open_sink = open_sink
        self._sums: tuple[tuple[int, int], DataFrame] | None = None
        """What both tables of latency are made of, for the events between two."""
        self._take_cut = take_cut
        self.files_read: Counter[str] = Counter()
        self.rows_read: Counter[str] = Counter()
        """What marts and books were made of, by table of the archive: it follows what is new, not what was."""

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

    def run(self, jobs: Sequence[str] = (), *, through: int | None = None) -> dict[str, int]:
        """Run these jobs, or all, over what is in the log now, or through an event. Returns rows added, by table."""
        unknown = sorted(set(jobs) - set(JOBS))
        if unknown:
            raise ConfigError(f"there is no job {unknown[0]!r}; there are: {', '.join(JOBS)}")
        added: dict[str, int] = {}
        end = self.log.end().event_id if through is None else min(through, self.log.end().event_id)
        for job in [name for name in JOBS if not jobs or name in jobs]:
            if job == "archive":
                added |= self._archive(end)
            elif job == "audit":
                added |= self._audit()
            elif job == "search":
                added[job] = self._search()
            else:
                added |= {name: self._mart(name) for name in MARTS[job]}
        self._forget_sums()
        return added

    def _archive(self, end: int) -> dict[str, int]:
        added = dict.fromkeys(LAKE_SCHEMAS, 0)
        if self.held_through() < end:
            feed = Feed(
                self.spark, [self.table(name) for name in LAKE_SCHEMAS], self.place.checkpoints,
                {"path": str(self.place.data), "indexFolder": str(self.place.index)},
                self._rows_per_trigger, self._tell, self.warn, self.reached,
            )  # fmt: skip
            added = feed.run(end)
        messages, changes = self.table("messages"), self.table("changes")
        compact(lambda: self.spark, messages, changes, only_recalls=True, reached=self.reached)
        blank_lake(self.place.lake)
        return added

    def _search(self) -> int:
        """Bring the index of messages up to the archive, without Spark."""
        if self._open_sink is not None:
            sink = self._open_sink()
        else:
            sink = EmbeddedIndex(self.place.data, reached=self.reached)
        try:
            feed = SearchFeed(
                self.place.lake, self.table("messages"), self.table("changes"), sink,
                tell=lambda *told: self._tell(Progress("search", *told)), reached=self.reached,
            )  # fmt: skip
            return feed.run()
        finally:
            sink.close()

    # Marts.

    def _new_rows(self, name: str, after: int, through: int) -> DataFrame:
        """The rows of a table of the archive that came behind ``after``, from the files that have any."""
        table = self.table(name)
        files = [file for file in table.files() if file.event_max is None or file.event_max > after]
        return self._read(table, files).where(f"event_id > {after} AND event_id <= {through}")

    def files_behind(self, name: str, after: int) -> list[str]:
        """The files of a table of the archive that have events behind ``after``."""
        table = self.table(name)
        files = [file for file in table.files() if file.event_max is None or file.event_max > after]
        self._note(table, files)
        return [str(table.folder / file.path) for file in files]

    def _read(self, table: LakeTable, files: list[DataFile]) -> DataFrame:
        self._note(table, files)
        return read_table(self.spark, table, files)

    def _note(self, table: LakeTable, files: list[DataFile]) -> None:
        self.files_read[table.name] += len(files)
        self.rows_read[table.name] += sum(file.rows for file in files)

    def mart(self, name: str) -> LakeTable:
        """A mart, created if it is new, and made anew if an older program made it with other columns."""
        begins_after = self.log.first_event_id() - 1
        table = LakeTable(self.place.lake, name, MART_SCHEMAS[name], begins_after=begins_after)
        if table.missing:
            self.warn(f"the table {name} lacks {', '.join(table.missing)}: it is made again from the archive")
            shutil.rmtree(table.folder)
            table = LakeTable(self.place.lake, name, MART_SCHEMAS[name])  # from the beginning of the archive
        return table

    def _mart(self, name: str) -> int:
        """Append what the new events add to a mart."""
        table = self.mart(name)
        after, through = table.through, self.held_through()
        if after >= through:
            return 0
        rows = self._mart_rows(name, after, through)
        folder = table.new_folder(f"{through:020d}")
        rows.coalesce(1).write.parquet(str(table.folder / folder))
        self.reached("mart-written")
        return table.append(folder, after=after, through=through)

    def _mart_rows(self, name: str, after: int, through: int) -> DataFrame:
        """What the events behind ``after`` add to a mart."""
        new = marts.New(*(self._new_rows(each, after, through) for each in marts.New._fields))
        if name not in marts.OF_SUMS:
            return marts.rows_of(name, new, read_table(self.spark, self.mart("first_days")))
        if self._sums is None or self._sums[0] != (after, through):
            self._forget_sums()
            sums = marts.hop_sums(marts.hops(*new[:2], self._handed(after, through), new.traces))
            self._sums = (after, through), sums.persist()
        return marts.OF_SUMS[name](self._sums[1])

    def _forget_sums(self) -> None:
        if self._sums is not None:
            self._sums[1].unpersist()
            self._sums = None

    def _handed(self, after: int, through: int) -> DataFrame:
        """The rows of the ledger that acks behind ``after`` speak of: from ``HANDED`` before the first of them."""
        table = self.table("deliveries")
        first = first_ack(table, after, through)
        if first is None:
            return empty_frame(self.spark, table.schema)
        since = first - HANDED
        files = [file for file in table.files() if file.noted_max is None or file.noted_max >= since - ROUNDED]
        return self._read(table, files).where(f"event_id <= {through} AND noted_at >= TIMESTAMP '{since.isoformat()}'")

    # The audit.

    def _audit(self) -> dict[str, int]:
        """Bring the books up to the archive, at a cut through the stores if they can be asked."""
        oldest = kept_from(self.table("messages"))
        if oldest is not None and not books_through(self):
            self.warn(
                f"no audit: retention let messages go from before {oldest.isoformat()}, and places in inboxes are "
                "counted from the first one on; `pixiu audit` reads the log instead"
            )
            return {}
        cut = None
        try:
            cut = self._take_cut(self.place.data)
        except Unavailable as error:
            self.warn(f"the audit counts what should wait, and not what does: {error}")
        through = self.held_through() if cut is None else cut.event_id
        if cut is not None and self.held_through() < through:
            self._archive(through)
        return run_audit(self, cut, through)

    def compact(self, *, vacuum_hours: int = 168, keep_days: int | None = None) -> list[Compacted]:
        """Make small files into large ones, fold receipts in, and remove files that nobody needs any more.

        With ``keep_days``, messages and rows of the ledger that are older leave, once the marts have seen them.
        """
        oldest = None
        if keep_days is not None:
            oldest = datetime.now(UTC).date() - timedelta(days=keep_days)
            for name in MART_SCHEMAS:
                self._mart(name)
            self._audit()
        done = []
        for name, schema in (LAKE_SCHEMAS | MART_SCHEMAS | AUDIT_SCHEMAS).items():
            table = LakeTable.for_reading(self.place.lake, name, schema)
            if table is None:
                continue
            if name != "findings":  # one file, and each audit replaces it
                until = oldest if name in RETAINED else None
                changes = self.table("changes")
                done.append(compact(lambda: self.spark, table, changes, oldest=until, reached=self.reached))
            table.vacuum(vacuum_hours)
        return done

    def files_max(self) -> int:
        """Of the table with the most files, how many."""
        tables = [*(self.table(name) for name in LAKE_SCHEMAS), *(self.mart(name) for name in MART_SCHEMAS)]
        return max(len(table.files()) for table in tables)
