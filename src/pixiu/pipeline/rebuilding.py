"""A store made again from the log by Spark, and then kept up with the log by the appliers.

The first run computes every row that messages fill, writes bulk files, and lets RocksDB take them over; users, contacts
and groups, which are few and depend on their order, are applied by the carrier's own code in this process. Later runs
find a store that stands at an event, and apply what came behind it: their cost is that of what is new.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from pixiu.backends.embedded.bulk import high_rows
from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.embedded.layout import LAYOUT, META, number
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.model.counted import counted
from pixiu.model.errors import Conflict
from pixiu.pipeline.bulk import rows_of, write_files
from pixiu.pipeline.jobs.rebuild import Diffusion
from pixiu.pipeline.source.decode import Wanted
from pixiu.pipeline.source.slices import batches_in, log_of
from pixiu.ports.log import MAIN, LogRecord
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.appliers import parse
from pixiu.roles.carrier.apply_inboxes import LIMITS
from pixiu.roles.carrier.apply_rosters import RosterApplier
from pixiu.roles.carrier.apply_trim import note_forgotten, note_last
from pixiu.roles.carrier.reached import Reached
from pixiu.roles.carrier.rebuild import rebuild as apply_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pixiu.model.pixiu_pb2 import HistoryTrimmed
    from pixiu.model.timeline import GroupRow
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.apply_rosters import GroupRows

__all__ = ["STORES", "Rebuilt", "SourceLog", "apply_rosters", "rebuild_store"]

STORES = "stores"
_LAYOUT = META + b"layout"
_ROWS_PER_FILE = 2_000_000
_COMMIT_RECORDS = 50_000


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a run has done."""

    folder: str
    through: int
    is_bulk: bool
    rows: int
    """Of bulk files; of a later run, records that were applied."""
    files: int


class SourceLog:
    """The log as appliers read it, from a data directory whose server may be writing it, or from its Kafka."""

    def __init__(self, data: Path, index_folder: Path | None = None, *, through: int | None = None) -> None:
        """``through`` is where it ends for us; what was committed last, if that is not said."""
        self._folder = log_of(data, index_folder)
        end = self._folder.end().event_id
        self.committed = end if through is None else min(through, end)
        self._wanted = Wanted(True, frozenset({MAIN}))

    def batches(self, after: int) -> Iterator[list[LogRecord]]:
        """Records of ``pixiu.main`` behind an event."""
        for part in self._folder.plan(max(after, self._folder.first_event_id() - 1), self.committed):
            for batch in batches_in(part, self._wanted):
                yield _records(batch)

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """As ``ports.log.Log`` has it; a batch may be longer than the limit."""
        del limit
        return next((batch for batch in self.batches(after) if batch), [])


def _records(batch: Any) -> list[LogRecord]:
    columns = [batch.column(name).to_pylist() for name in ("event_id", "message_id", "payload", "key")]
    times = batch.column("written_at").cast("int64").to_pylist()
    return [
        LogRecord(event_id, message_id, MAIN, payload, key, at // 1000)
        for event_id, message_id, payload, key, at in zip(*columns, times, strict=True)
    ]


def rebuild_store(
    spark: Callable[[], SparkSession],
    data: Path,
    folder: Path,
    *,
    index_folder: Path | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> Rebuilt:
    """Make the stores below ``folder`` what the log says: in bulk if there are none, otherwise from where they are."""
    log = SourceLog(data, index_folder)
    root = folder / STORES
    if root.is_dir():
        store = RocksKeyValue(root, options=LARGE)
        found = store.get(_LAYOUT)
        if found == number.pack(LAYOUT):
            return _go_on(log, store, folder)
        store.close()
        if found is not None:
            raise Conflict(f"the stores in {root} have another layout than this program; choose another folder")
        shutil.rmtree(root)  # a run that did not end
    files = folder / f"bulk-{secrets.token_hex(4)}"
    files.mkdir(parents=True)
    try:
        made = _write(spark(), data, files, log.committed, index_folder)
        tell(f"{counted(sum(rows for _, rows in made), 'row')} in {counted(len(made), 'file')}")
        _load(log, root, [path for path, _ in made])
    finally:
        shutil.rmtree(files, ignore_errors=True)
    return Rebuilt(str(folder), log.committed, True, sum(rows for _, rows in made), len(made))


def _write(
    spark: SparkSession, data: Path, files: Path, through: int, index_folder: Path | None
) -> list[tuple[str, int]]:
    def source(columns: str) -> Any:
        reader = spark.read.format("pixiu").option("columns", columns).option("endingEventId", str(through))
        if index_folder is not None:
            reader = reader.option("indexFolder", str(index_folder))
        if columns == "full":
            reader = reader.option("topics", MAIN)
        return reader.load(str(data))

    tables = [source(name).persist() for name in ("messages", "deliveries", "changes")]
    made = Diffusion(*tables)
    try:
        count = max(1, -(-tables[0].count() // _ROWS_PER_FILE))
        return write_files(rows_of(made, source("full")), str(files), count)
    finally:
        made.unpersist()
        for table in tables:
            table.unpersist()


def _load(log: SourceLog, root: Path, paths: list[str]) -> None:
    """Take the files over; then apply users, contacts and groups. The layout comes last: a half-made store has none."""
    store = RocksKeyValue(root, options=LARGE)
    stores = EmbeddedStores(store)
    try:
        if paths:
            store.ingest(paths)
        stores.close()
        store = RocksKeyValue(root, options=LARGE)
        stores = EmbeddedStores(store)
        newest, cuts = apply_rosters(log, stores)
        for group, through in cuts.items():
            note_last(stores, group, through)
            stores.timelines.drop_group(group, through=through)
        stores.commit(dict.fromkeys(Lane, log.committed))
        store.write([*high_rows(newest), (_LAYOUT, number.pack(LAYOUT))])
        stores.flush()
    finally:
        stores.close()


class Applied(NamedTuple):
    """What was met on the way through the log."""

    newest: int
    """The highest message id."""
    cuts: dict[int, int]
    """Groups, and the message ids through which they were trimmed."""


class _AsOfThen:
    """Rows of groups without those that were trimmed before the record that is applied."""

    def __init__(self, timelines: GroupRows) -> None:
        self._timelines = timelines
        self.cuts: dict[int, int] = {}

    def cut(self, change: HistoryTrimmed) -> None:
        for group in change.groups:
            self.cuts[group] = max(change.through, self.cuts.get(group, 0))

    def group_forward(self, group: int, *, after: int = 0, limit: int = 100) -> list[GroupRow]:
        return self._timelines.group_forward(group, after=max(after, self.cuts.get(group, 0)), limit=limit)


def apply_rosters(log: SourceLog, stores: Stores) -> Applied:
    """Users, contacts and groups, and the limits that hold; the stores have all that was ever said in groups."""
    reached = Reached(stores)
    reached.timelines = log.committed
    rows = _AsOfThen(stores.timelines)
    rosters = RosterApplier(stores, reached, rows)
    newest = since = 0
    for records in log.batches(0):
        for record in records:
            newest = max(newest, record.message_id)
            try:
                parsed = parse(record)
                if parsed.HasField("limits"):
                    stores.notes.put(LIMITS, parsed.limits.SerializeToString())
                rows.cut(parsed.trimmed)
                note_forgotten(stores, parsed.trimmed)
                rosters.apply(record, parsed)
            except (DecodeError, ValueError):
                reached.rosters = (
                    record.event_id
                )  # the same rule as the carrier's: it makes no sense, and is passed over
        rosters.take_removed()
        rosters.take_gone()
        since += len(records)
        if since >= _COMMIT_RECORDS:
            stores.commit({})
            since = 0
    return Applied(newest, rows.cuts)


def _go_on(log: SourceLog, store: RocksKeyValue, folder: Path) -> Rebuilt:
    stores = EmbeddedStores(store)
    try:
        before = min(stores.applied(lane) for lane in Lane)
        apply_log(log, stores)  # type: ignore[arg-type]
        stores.commit({Lane.TASKS: log.committed})
        stores.flush()
    finally:
        stores.close()
    return Rebuilt(str(folder), log.committed, False, max(log.committed - before, 0), 0)
