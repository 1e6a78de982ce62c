"""One audit of the lake: what is new is added to the books, and what is open is kept for the next.

Tasks do the work, each for a part of the users. One Delta commit to the table ``audit`` counts: it adds the rows by
which the books have changed, puts what waits now in the place of what waited before, and says through which event they
hold the log. What the next audit needs is written before that commit into a folder named by that event, and the folder
before it removed behind it. So a run that is killed leaves the books, and what belongs to them, as they were or as they
should be. Books whose folder is lost are made again from the whole archive.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pixiu.pipeline.books.task import DONE_DDL, TASK_DDL, Task, audit_parts, write
from pixiu.pipeline.cut import rows_of_cut
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS
from pixiu.pipeline.lake.table import NOW, THROUGH, LakeTable

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.pipeline.runner import Pipeline
    from pixiu.roles.carrier.cut import Cut

__all__ = ["books_through", "run_audit"]

ROWS_PER_PART = 1_000_000
"""Messages of one task of a first audit. Later ones keep the parts that it has made."""

_NOTE = "state.json"
_ARCHIVE = ("messages", "deliveries", "changes")


_TWICE = """
WITH alike AS (
    SELECT message_id, event_id, sender_id, send_id, lag(message_id) OVER same AS first_id,
        lag(event_id) OVER same AS first_event
    FROM read_parquet(?) SEMI JOIN pairs USING (sender_id, send_id) WHERE event_id <= ?
    WINDOW same AS (PARTITION BY sender_id, send_id ORDER BY event_id)
), forgot AS (
    SELECT user_id, name, event_id, about FROM read_parquet(?) WHERE what = 'forgot'
)
SELECT message_id FROM alike WHERE first_event IS NOT NULL AND event_id > ? AND NOT EXISTS (
    SELECT 1 FROM forgot WHERE forgot.user_id = alike.sender_id AND forgot.name = alike.send_id
    AND forgot.event_id > alike.first_event AND forgot.event_id < alike.event_id AND forgot.about >= alike.first_id
) ORDER BY event_id
"""
"""What has the sender and the send id of a message before it; unless that one was trimmed, and with it its send id."""


class Held(NamedTuple):
    """What the audit before has left."""

    after: int
    parts: int
    newest: int | None
    """When the newest message was accepted, in microseconds."""
    keys: dict[int, list[str]]
    """Names of files with send ids, by part."""
    folder: Path | None
    """None: there was none."""


_NOTHING = Held(0, 0, None, {}, None)


def books_through(pipeline: Pipeline) -> int:
    """The event through which the books hold the log, with all that the next audit needs; 0 if there are none."""
    return _held(pipeline, _table(pipeline)).after


def run_audit(pipeline: Pipeline, cut: Cut | None, through: int) -> dict[str, int]:
    """Bring the books through an event, and compare them with a cut of the stores at that event, if there is one."""
    table = _table(pipeline)
    held = _held(pipeline, table)
    if held.after > through:
        pipeline.warn(f"the books are at event {held.after}, and the stores at {through}: they are made again")
        held = _NOTHING
    cut_file = None
    if cut is not None:
        pipeline.place.books.mkdir(parents=True, exist_ok=True)
        cut_file = pipeline.place.books / "cut.parquet"
        pq.write_table(rows_of_cut(cut), cut_file)
    run = _Run(pipeline, table, held, through, cut_file)
    if any(each["is_unsure"] for each in run.work()):
        pipeline.warn("rows speak of entries of which the books do not tell the hour: they are made again")
        run = _Run(pipeline, table, _NOTHING, through, cut_file)
        run.work()
    return run.commit()


def _table(pipeline: Pipeline) -> LakeTable:
    """The books, made anew if an older program has made them with other columns."""
    table = LakeTable(pipeline.place.lake, "audit", AUDIT_SCHEMAS["audit"])
    if table.missing:
        shutil.rmtree(table.folder)
        table = LakeTable(pipeline.place.lake, "audit", AUDIT_SCHEMAS["audit"])
    return table


def _held(pipeline: Pipeline, table: LakeTable) -> Held:
    if not table.files():
        return _NOTHING
    place = pipeline.place.books
    folder = place / f"{table.through:020d}"
    try:
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        held = Held(table.through, int(note["parts"]), note["newest"], {}, folder)
        for part, names in note["keys"].items():
            held.keys[int(part)] = list(names)
            for name in names:
                (place / "keys" / name).stat()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        pipeline.warn(f"what belongs to the books is lost, and they are made again from the archive: {error}")
        return _NOTHING
    return held


class _Run:
    """One stretch of the log on top of what is held."""

    def __init__(self, pipeline: Pipeline, table: LakeTable, held: Held, through: int, cut: Path | None) -> None:
        self._pipeline, self._table, self._held, self._through, self._cut = pipeline, table, held, through, cut
        self._found = LakeTable(pipeline.place.lake, "findings", AUDIT_SCHEMAS["findings"])
        self._next = pipeline.place.books / f"{through:020d}"
        self._has_news = held.folder is None or held.after < through
        self._folders = {
            "sums": table.new_folder(f"{through:020d}"),
            "now": table.new_folder(NOW),
            "findings": self._found.new_folder(f"{through:020d}"),
        }
        self._done: list[dict[str, Any]] = []

    def _folder(self, kind: str) -> Path:
        return (self._found if kind == "findings" else self._table).folder / self._folders[kind]

    def work(self) -> list[dict[str, Any]]:
        """Have the tasks do it. Returns what each has done."""
        pipeline, held = self._pipeline, self._held
        if self._has_news:
            shutil.rmtree(self._next, ignore_errors=True)
        files = {name: pipeline.files_behind(name, held.after) for name in _ARCHIVE}
        rows = sum(file.rows for file in pipeline.table("messages").files())
        parts = held.parts or 1 + rows // ROWS_PER_PART
        texts = []
        for part in range(parts):
            task = Task(
                part, parts, held.after, self._through, {**files, "books": self._table.uris()},
                None if held.folder is None else str(held.folder), str(self._next) if self._has_news else None,
                str(pipeline.place.books / "keys"), held.keys.get(part, []),
                None if self._cut is None else str(self._cut),
                {kind: str(self._folder(kind)) for kind in self._folders},
            )  # fmt: skip
            texts.append((json.dumps(task._asdict()),))
        frame = pipeline.spark.createDataFrame(texts, TASK_DDL).repartition(parts)
        self._done = [json.loads(row.done) for row in frame.mapInArrow(audit_parts, DONE_DDL).collect()]
        return self._done

    def commit(self) -> dict[str, int]:
        """Make what the tasks have written count."""
        pipeline, table = self._pipeline, self._table
        times = [each["newest"] for each in self._done] + [self._held.newest]
        newest = max((each for each in times if each is not None), default=None)
        names = {kind: [each["names"][kind] for each in self._done] for kind in self._folders}
        names["now"].append(self._note_now(newest))
        twice = self._twice()
        names["findings"].append(write(twice, str(self._folder("findings"))))
        if self._has_news:
            pq.write_table(twice, self._next / "twice.parquet")
            note = {
                "parts": len(self._done),
                "newest": newest,
                "keys": {each["part"]: each["keys"] for each in self._done},
            }
            (self._next / _NOTE).write_text(json.dumps(note), encoding="utf-8")
        pipeline.reached("audit-written")
        gone = [file for file in table.files() if self._held.folder is None or file.path.split("/")[1].startswith(NOW)]
        added = {self._folders[kind]: names[kind] for kind in ("sums", "now")}
        table.replace(gone, added, why="audit", positions={THROUGH: self._through})
        pipeline.reached("audit-committed")
        added = {self._folders["findings"]: names["findings"]}
        self._found.replace(self._found.files(), added, why="audit", positions={THROUGH: self._through})
        self._tidy()
        return {each.name: sum(file.rows for file in each.files()) for each in (table, self._found)}

    def _note_now(self, newest: int | None) -> str:
        """A row that says when the newest message came, and whether anybody has looked into the stores."""
        at = None if newest is None else datetime.fromtimestamp(newest / 1e6, UTC)
        row = {"newest_at": at, "waiting": None if self._cut is None else 0}
        return write(pa.Table.from_pylist([row], schema=AUDIT_SCHEMAS["audit"]), str(self._folder("now")))

    def _twice(self) -> Any:
        """What was accepted twice so far: findings. Suspects are looked up in the whole archive."""
        schema = AUDIT_SCHEMAS["findings"]
        known = schema.empty_table()
        if self._held.folder is not None:
            known = pq.read_table(self._held.folder / "twice.parquet", schema=schema)
        suspects = [pair for each in self._done for pair in each["suspects"]]
        if not suspects or not self._has_news:
            return known
        pairs = pa.table({"sender_id": [pair[0] for pair in suspects], "send_id": [pair[1] for pair in suspects]})
        with duckdb.connect() as connection:
            connection.register("pairs", pairs)
            found = connection.execute(
                _TWICE,
                [
                    self._pipeline.table("messages").uris(), self._through,
                    self._pipeline.table("changes").uris(), self._held.after,
                ],
            ).fetchall()  # fmt: skip
        rows = [{"finding": "duplicate", "reason": "accepted twice", "message_id": number} for (number,) in found]
        return pa.concat_tables([known, pa.Table.from_pylist(rows, schema=schema)])

    def _tidy(self) -> None:
        """Remove what belonged to the books before."""
        place = self._pipeline.place.books
        kept = {name for each in self._done for name in each["keys"]}
        for path in place.iterdir():
            if path.name == "keys":
                for file in path.iterdir():
                    if file.name not in kept:
                        file.unlink()
            elif path.is_file():
                path.unlink()
            elif path != self._next:
                shutil.rmtree(path, ignore_errors=True)
