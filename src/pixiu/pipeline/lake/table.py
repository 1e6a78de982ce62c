"""One table of the lake: Parquet files that Spark writes, made visible by one Delta commit.

Spark writes files into a folder that nobody reads yet; then a single commit by delta-rs adds them, with their smallest
and largest values, and notes through which event the table now holds the log (an app transaction). A crash before the
commit leaves files that no reader sees and that ``vacuum`` removes; a crash behind it leaves nothing undone.

Tables are not partitioned: ``day`` and ``bucket`` are real columns with statistics, so that every reader of plain
Parquet gets them.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from pixiu.model.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

__all__ = ["DataFile", "LakeTable"]

THROUGH = "pixiu.through"
"""The app transaction whose version is the event id through which a table holds the log."""

DATA = "data"
NOW = "now"
"""Folders of files that the next run takes out again: compaction leaves them alone."""
_STATISTICS = (
    "event_id",
    "message_id",
    "accepted_at",
    "noted_at",
    "user_id",
    "day",
    "bucket",
    "conversation",
    "minute",
)
"""Columns with smallest and largest values in the log: what readers and we choose files by."""


class DataFile(NamedTuple):
    """A file that the newest version of a table consists of."""

    path: str
    """Within the table's folder."""
    size: int
    rows: int
    day_min: date | None
    day_max: date | None
    message_min: int | None
    message_max: int | None
    event_max: int | None
    noted_max: datetime | None


class LakeTable:
    """A table in a folder of its own."""

    def __init__(self, folder: Path, name: str, schema: Any, *, begins_after: int = 0) -> None:
        """Open it, or create it empty; a new one holds the log from behind ``begins_after``."""
        self.name = name
        self.folder = folder / name
        self.schema = schema
        if not DeltaTable.is_deltatable(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(self.folder), schema, mode="ignore", name=name)
        self._table = DeltaTable(str(self.folder))
        if self._table.transaction_version(THROUGH) is None:
            self._commit([], [Transaction(THROUGH, begins_after)], {"pixiu.begins_after": str(begins_after)})

    @classmethod
    def for_reading(cls, folder: Path, name: str, schema: Any) -> LakeTable | None:
        """The table if somebody has made it. Writes nothing: readers hold no lock."""
        path = str(folder / name)
        if not DeltaTable.is_deltatable(path) or DeltaTable(path).transaction_version(THROUGH) is None:
            return None
        return cls(folder, name, schema)

    @property
    def through(self) -> int:
        """The event through which the table holds the log."""
        found = self._table.transaction_version(THROUGH)
        if found is None:
            raise CorruptData(f"the table {self.name} in {self.folder} does not say how far it is")
        return int(found)

    def position(self, name: str) -> int:
        """Another number that commits carry on, 0 if none has."""
        return int(self._table.transaction_version(name) or 0)

    @property
    def version(self) -> int:
        """The number of its newest commit."""
        return int(self._table.version())

    def refresh(self) -> None:
        """See what others have committed."""
        self._table.update_incremental()

    def files(self) -> list[DataFile]:
        """What it consists of now."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [
            DataFile(
                row["path"],
                row["size_bytes"],
                row["num_records"],
                row.get("min.day"),
                row.get("max.day"),
                row.get("min.message_id"),
                row.get("max.message_id"),
                row.get("max.event_id"),
                row.get("max.noted_at"),
            )
            for row in actions
        ]

    def uris(self) -> list[str]:
        """The same, as paths that any reader of Parquet takes."""
        return [str(self.folder / file.path) for file in self.files()]

    # Writing.

    def new_folder(self, label: str) -> str:
        """A folder for files to come, within the table's folder, that nobody has used before."""
        return f"{DATA}/{label}-{secrets.token_hex(6)}"

    def append(
        self,
        folder: str,
        *,
        through: int,
        query_id: str = "",
        batch_id: int = 0,
        after: int = 0,
        names: Collection[str] | None = None,
    ) -> int:
        """Make the files of a folder part of the table, with how far it now holds the log. Returns their rows.

        With ``names``, these files alone: tasks that were run twice may have left others.
        """
        added = self._add_actions(folder, names)
        transactions = [Transaction(THROUGH, through)]
        if query_id:
            transactions.append(Transaction(_query(query_id), batch_id))
        note = {"pixiu.after": str(after), "pixiu.through": str(through), "pixiu.query": query_id}
        self._commit([action for action, _ in added], transactions, note)
        return sum(rows for _, rows in added)

    def replace(
        self,
        gone: Iterable[DataFile],
        folder: str | Mapping[str, Collection[str]] | None,
        *,
        why: str,
        positions: Mapping[str, int] | None = None,
    ) -> None:
        """Put the files of a folder in the place of others, at once; or some files of several folders, by name."""
        now = int(time.time() * 1000)
        actions: list[Any] = [RemoveAction(file.path, True, now, file.size) for file in gone]
        added: Mapping[str, Collection[str] | None] = (
            {} if folder is None else folder if not isinstance(folder, str) else {folder: None}
        )
        for each, names in added.items():
            actions += [action for action, _ in self._add_actions(each, names)]
        transactions = [Transaction(name, number) for name, number in (positions or {}).items()]
        self._commit(actions, transactions, {"pixiu.why": why})

    @property
    def missing(self) -> list[str]:
        """Columns that it has only since this program: older files do not have them, and readers get null."""
        known = {field.name for field in self._table.schema().fields}
        return [name for name in self.schema.names if name not in known]

    def _commit(self, actions: list[Any], transactions: list[Transaction], note: dict[str, str]) -> None:
        if self.missing:
            wanted = pa.schema([self.schema.field(name) for name in self.missing])
            self._table.alter.add_columns(Schema.from_arrow(wanted).fields)
            self._table.update_incremental()
        self._table.create_write_transaction(
            actions,
            mode="append",
            schema=self.schema,
            commit_properties=CommitProperties(custom_metadata=note, app_transactions=transactions),
        )
        self._table.update_incremental()

    def _add_actions(self, folder: str, names: Collection[str] | None = None) -> list[tuple[AddAction, int]]:
        added = []
        here = self.folder / folder
        for path in sorted(here.glob("*.parquet") if names is None else (here / name for name in names)):
            metadata = pq.read_metadata(path)
            if not metadata.num_rows:
                continue
            action = AddAction(
                path=f"{folder}/{path.name}",
                size=path.stat().st_size,
                partition_values={},
                modification_time=int(path.stat().st_mtime * 1000),
                data_change=True,
                stats=json.dumps(_statistics(metadata)),
            )
            added.append((action, metadata.num_rows))
        return added

    # Housekeeping.

    def vacuum(self, hours: int) -> list[str]:
        """Remove files that no version of the last ``hours`` needs, also those of writes that never ended."""
        kept = {file.path.split("/")[1] for file in self.files()}
        removed: list[str] = self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        horizon = time.time() - hours * 3600
        for path in (self.folder / DATA).glob("*"):
            is_old = path.name not in kept and path.is_dir() and path.stat().st_mtime <= horizon
            if is_old and not any(path.glob("*.parquet")):
                shutil.rmtree(path)
        return removed


def _query(query_id: str) -> str:
    return f"pixiu.query.{query_id}"


def _statistics(metadata: Any) -> dict[str, Any]:
    """What Delta wants to know of a file, from its own footer."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name, found = column.path_in_schema, column.statistics
            if name not in _STATISTICS or found is None or not found.has_min_max:
                continue
            low[name] = min(low.get(name, found.min), found.min)
            high[name] = max(high.get(name, found.max), found.max)
            nulls[name] = nulls.get(name, 0) + found.null_count
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _plain(value) for name, value in low.items()},
        "maxValues": {name: _plain(value) for name, value in high.items()},
        "nullCount": nulls,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value
