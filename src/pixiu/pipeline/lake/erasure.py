"""Users who were erased: a table of them, and files written again without what they wrote.

A run looks at every file when someone was erased since the last one, and otherwise only at files that came since. Files
that hold something are written again, row by row as they are, with nothing in the columns that say something; message
ids, times and conversations stay. One commit puts the new files in the place of the old ones, which stay on disk until
``vacuum`` is past its time. No Spark is needed: most runs have nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixiu.pipeline.lake.schema import ERASURE_SCHEMAS, LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.lake.table import THROUGH, LakeTable
from pixiu.pipeline.source.decode import Wanted
from pixiu.pipeline.source.slices import batches_in, log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.pipeline.lake.table import DataFile

__all__ = ["Blanked", "blank_lake", "erased_users_in", "note_erasures"]

BLANKED, ERASED = "pixiu.blanked", "pixiu.erased"
"""Positions of a table: the event through which its files were looked into, and the newest erasure known then."""

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Blanked:
    """What was done to one table."""

    table: str
    files: int
    """That were looked into."""
    rewritten: int
    rows: int
    """That said something of an erased user's."""


def _of_messages(batch: Any, users: Any) -> Any:
    """What users wrote: notices and recalls hold numbers only."""
    is_theirs = pc.is_in(batch.column("sender_id"), users)
    is_written = pc.and_(
        pc.is_null(batch.column("notice")),
        pc.invert(pc.is_in(batch.column("kind"), pa.array(["system", "delete"]))),
    )
    return pc.and_(is_theirs, is_written)


def _of_changes(batch: Any, users: Any) -> Any:
    return pc.and_(pc.equal(batch.column("what"), "user"), pc.is_in(batch.column("user_id"), users))


def _of_usage(batch: Any, users: Any) -> Any:
    return pc.is_in(batch.column("user_id"), users)


_RULES: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "messages": (_of_messages, ("text", "body", "device")),
    "changes": (_of_changes, ("name",)),
    "usage": (_of_usage, ("place",)),
}
"""Which rows of a table are an erased user's, and which of their columns say something."""


def blank_lake(lake: Path) -> list[Blanked]:
    """Note who was erased, and blank what they wrote in every table. The caller holds the lake's lock."""
    if not (lake / "changes").is_dir():
        return []
    changes = LakeTable(lake, "changes", LAKE_SCHEMAS["changes"])
    erasures = LakeTable(lake, "erasures", ERASURE_SCHEMAS["erasures"])
    _note(erasures, changes)
    users = pa.array(sorted(erased_users_in(erasures)), pa.int64())
    if not len(users):
        return []
    newest = max(file.event_max or 0 for file in erasures.files())
    done = []
    for name, (theirs, columns) in _RULES.items():
        if (lake / name).is_dir():
            table = LakeTable(lake, name, (LAKE_SCHEMAS | MART_SCHEMAS)[name])
            done.append(_blank(table, users, newest, theirs, columns))
    return done


def note_erasures(data: Path, lake: Path) -> int:
    """Note erasures that the log has and the archive has not read yet, so that nobody waits for its next run.

    Returns how many. The archive's own run leaves out whom it finds here.
    """
    erasures = LakeTable(lake, "erasures", ERASURE_SCHEMAS["erasures"])
    known = erased_users_in(erasures)
    log = log_of(data)
    wanted = Wanted.rows_of("changes")
    batches = [
        batch for part in log.plan(max(erasures.through, log.first_event_id() - 1), log.end().event_id)
        for batch in batches_in(part, wanted)
    ]  # fmt: skip
    table = pa.Table.from_batches(batches, schema=wanted.schema)
    is_new = pc.and_(
        pc.equal(table.column("what"), "erased"),
        pc.invert(pc.is_in(table.column("user_id"), pa.array(known, pa.int64()))),
    )
    found = table.filter(is_new).select(["user_id", "event_id", "accepted_at"])
    if found.num_rows:
        _append(erasures, found, erasures.through, erasures.through)
    return int(found.num_rows)


def erased_users_in(erasures: LakeTable) -> set[int]:
    """Everyone whom the table names."""
    found: set[int] = set()
    for uri in erasures.uris():
        found.update(pq.read_table(uri, columns=["user"]).column("user").to_pylist())
    return found


def _note(erasures: LakeTable, changes: LakeTable) -> None:
    """Rows for the erasures that the archive has got since the last time."""
    after, through = erasures.through, changes.through
    if after >= through:
        return
    rows: list[Any] = []
    for file in changes.files():
        if file.event_max is not None and file.event_max <= after:
            continue
        table = pq.read_table(changes.folder / file.path, columns=["what", "user_id", "event_id", "accepted_at"])
        is_new = pc.and_(pc.equal(table.column("what"), "erased"), pc.greater(table.column("event_id"), after))
        rows.append(table.filter(is_new).select(["user_id", "event_id", "accepted_at"]))
    found = pa.concat_tables(rows) if rows else None
    if found is not None:
        known = pa.array(erased_users_in(erasures), pa.int64())
        found = found.filter(pc.invert(pc.is_in(found.column("user_id"), known)))
    if found is None or not found.num_rows:
        erasures.replace([], None, why="nobody was erased", positions={THROUGH: through})
        return
    _append(erasures, found, after, through)


def _append(erasures: LakeTable, found: Any, after: int, through: int) -> None:
    folder = erasures.new_folder(f"{through:020d}")
    (erasures.folder / folder).mkdir(parents=True)
    rows = found.rename_columns(["user", "event_id", "at"]).cast(erasures.schema)
    pq.write_table(rows, erasures.folder / folder / "erasures.parquet")
    erasures.append(folder, after=after, through=through)


def _blank(
    table: LakeTable,
    users: Any,
    newest: int,
    theirs: Callable[[Any, Any], Any],
    columns: tuple[str, ...],
) -> Blanked:
    looked, known, through = table.position(BLANKED), table.position(ERASED), table.through
    files = [file for file in table.files() if known < newest or file.event_max is None or file.event_max > looked]
    if not files:
        return Blanked(table.name, 0, 0, 0)
    folder = table.new_folder("erased")
    gone: list[DataFile] = []
    rows = 0
    for file in files:
        count = sum(_count(batch, users, theirs, columns) for batch in _batches(table, file))
        if count:
            (table.folder / folder).mkdir(parents=True, exist_ok=True)
            _rewrite(table, file, table.folder / folder / f"{len(gone):05d}.parquet", users, theirs, columns)
            gone.append(file)
            rows += count
    if gone or through > looked or newest > known:
        positions = {BLANKED: through, ERASED: newest}
        table.replace(gone, folder if gone else None, why="erasure", positions=positions)
    return Blanked(table.name, len(files), len(gone), rows)


def _batches(table: LakeTable, file: DataFile) -> Iterator[Any]:
    with pq.ParquetFile(table.folder / file.path) as source:
        yield from source.iter_batches(batch_size=_BATCH_ROWS)


def _count(batch: Any, users: Any, theirs: Callable[[Any, Any], Any], columns: tuple[str, ...]) -> int:
    says = pc.is_valid(batch.column(columns[0]))
    for name in columns[1:]:
        says = pc.or_(says, pc.is_valid(batch.column(name)))
    return int(pc.sum(pc.and_(pc.fill_null(theirs(batch, users), False), says)).as_py() or 0)


def _rewrite(
    table: LakeTable,
    file: DataFile,
    target: Path,
    users: Any,
    theirs: Callable[[Any, Any], Any],
    columns: tuple[str, ...],
) -> None:
    """The same rows in the same order, with nothing in some columns of some of them.

    Spark calls a column required if the rows at hand cannot lack it: a run without deliveries has a place in every row
    of usage. Here it may be lacking.
    """
    schema = pq.read_schema(table.folder / file.path)
    for name in columns:
        place = schema.get_field_index(name)
        schema = schema.set(place, schema.field(place).with_nullable(True))
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in _batches(table, file):
            mask = pc.fill_null(theirs(batch, users), False)
            for name in columns:
                place = schema.get_field_index(name)
                blank = pc.if_else(mask, pa.scalar(None, schema.field(place).type), batch.column(name))
                batch = batch.set_column(place, schema.field(place), blank)
            writer.write_batch(batch)
