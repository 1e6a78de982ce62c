"""What a task of the audit does: bring the books of one part of the users through an event.

It reads the narrow columns of new rows, and what the audit before has left for this part; it writes rows of the books,
what does not fit, and what the next audit needs, and gives back names. Nothing of it counts before the driver commits.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pixiu.model.inbox import FIRST
from pixiu.pipeline.books.entries import MESSAGE, Entries, Meant, departures, ints, latest_at, ledger_of
from pixiu.pipeline.books.keys import hashes_of, look_up
from pixiu.pipeline.books.people import CHANGES, People, part_of
from pixiu.pipeline.books.sums import HOUR, Handed, Marks, compare, merged, reordered, sums_of
from pixiu.pipeline.lake.schema import AUDIT_SCHEMAS, LAKE_SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.pipeline.books.entries import Ledger

__all__ = ["DONE_DDL", "STATE", "TASK_DDL", "Task", "audit_part", "audit_parts"]

BATCH_ROWS = 65_536
TASK_DDL = "task STRING"
DONE_DDL = "done STRING"
_DONE = pa.schema([("done", pa.string())])
_MOMENT = pa.timestamp("us", tz="UTC")
_DELIVERY = ["event_id", "part", "noted_at", "what", "user_id", "platform", "first_useq", "through_useq"]

STATE = {
    "changes": CHANGES,
    "waiting": pa.schema(
        [
            ("user_id", pa.int64()),
            ("inbox", pa.string()),
            ("useq", pa.int64()),
            ("event_id", pa.int64()),
            ("message_id", pa.int64()),
            ("accepted_at", _MOMENT),
        ]
    ),
    "inboxes": pa.schema([("user_id", pa.int64()), ("inbox", pa.string()), ("latest", pa.int64())]),
    "handed": pa.schema(
        [("user_id", pa.int64()), ("inbox", pa.string()), ("first", pa.int64()), ("through", pa.int64())]
    ),
}
"""What an audit hands on, for each part: changes in few rows, what waits, places given, ranges handed over."""


class Task(NamedTuple):
    """Everything that a task needs to know. Paths are texts, since it goes through Spark."""

    part: int
    parts: int
    after: int
    through: int
    files: dict[str, list[str]]
    """Of messages, deliveries, changes (those with news) and of the books (all)."""
    state: str | None
    """The folder of what the audit before has left; None: there was none."""
    hands_on: str | None
    """The folder for what the next one needs; None: nothing is new."""
    keys: str
    key_names: list[str]
    cut: str | None
    """A file with what waits in the stores; None: nobody has looked."""
    folders: dict[str, str]
    """For rows that stay (sums), rows of now (now), and findings."""


def audit_parts(batches: Iterator[Any]) -> Iterator[Any]:
    """For ``mapInArrow``: rows with tasks in, rows with what they have done out."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            done = json.dumps(audit_part(Task(**json.loads(text))))
            yield pa.RecordBatch.from_arrays([pa.array([done])], schema=_DONE)


def audit_part(task: Task) -> dict[str, Any]:
    """Do it. Returns names of files, the newest message's time, and what only the whole archive can tell."""
    return _Part(task).run()


class _Part:
    def __init__(self, task: Task) -> None:
        self._task = task
        people = self.people = People(task.part, task.parts)
        for batch in self._kept("changes"):
            people.take(batch)
        for batch in self._news("changes", CHANGES.names):
            people.take(batch)
        self._inboxes = people.inboxes()
        self._number = {
            (user, name): at
            for at, (user, name) in enumerate(zip(self._inboxes.user.tolist(), self._inboxes.name, strict=True))
        }

    # Reading.

    def _news(self, table: str, columns: list[str]) -> Iterator[Any]:
        """New rows of a table of the archive."""
        paths = self._task.files[table]
        if not paths or self._task.after >= self._task.through:
            return
        wanted = (ds.field("event_id") > self._task.after) & (ds.field("event_id") <= self._task.through)
        schema = pa.schema([LAKE_SCHEMAS[table].field(name) for name in columns])
        yield from ds.dataset(paths, format="parquet", schema=schema).to_batches(
            columns=columns, filter=wanted, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1,
            use_threads=False,
        )  # fmt: skip

    def _kept(self, name: str) -> list[Any]:
        """What the audit before has left."""
        if self._task.state is None:
            return []
        path = Path(self._task.state) / f"{self._task.part:04d}-{name}.parquet"
        return list(pq.read_table(path, schema=STATE[name]).to_batches())

    def _numbers(self, batch: Any) -> Any:
        """The inboxes that rows of ``STATE`` speak of."""
        users, names = batch.column("user_id").to_pylist(), batch.column("inbox").to_pylist()
        return np.array([self._number[key] for key in zip(users, names, strict=True)], np.int64)

    def _carried(self) -> tuple[Any, Entries, Handed]:
        """The latest place of each inbox, what waited, and what was handed over."""
        latest = np.zeros(len(self._inboxes.user), np.int64)
        for batch in self._kept("inboxes"):
            latest[self._numbers(batch)] = ints(batch.column("latest"))
        none = np.zeros(0, np.int64)
        fields = ("useq", "event_id", "message_id", "accepted_at")
        waited: list[tuple[Any, ...]] = [
            (none,) * 5,
            *(
                (self._numbers(batch), *(ints(batch.column(name)) for name in fields))
                for batch in self._kept("waiting")
            ),
        ]
        ranges = [
            (none,) * 3,
            *(
                (self._numbers(batch), ints(batch.column("first")), ints(batch.column("through")))
                for batch in self._kept("handed")
            ),
        ]
        inbox, useq, event, message, accepted = (np.concatenate(column) for column in zip(*waited, strict=True))
        entries = Entries(inbox, useq, event, message, accepted, np.zeros(len(inbox), np.bool_))
        return latest, entries, Handed(*(np.concatenate(column) for column in zip(*ranges, strict=True)))

    # The audit.

    def run(self) -> dict[str, Any]:
        """Bring the books of this part up."""
        task, inboxes = self._task, self._inboxes
        latest, waited, handed = self._carried()
        meant = Meant(self.people, inboxes, task.part, task.parts)
        hashes = [np.zeros(0, np.int64)]
        for batch in self._news("messages", [*MESSAGE, "send_id"]):
            meant.take(batch)
            hashes.append(self._sent(batch)[1])
        entries = meant.entries(latest, waited)
        del meant, waited
        ledger = ledger_of(self._news("deliveries", _DELIVERY), inboxes, task.part, task.parts)
        # Nobody can hand over, ack or remove what is not there yet.
        ledger = ledger._replace(through=np.minimum(ledger.through, latest_at(ledger, entries, latest)))
        left = departures(entries, ledger, inboxes, self.people.limits())
        marks = Marks()
        for inbox, first, through in zip(*(column.tolist() for column in _ranges(ledger.of("resent"))), strict=True):
            for useq in range(first, through + 1):
                marks.add(inbox, useq, "resent")
        for inbox, useq in reordered(handed, ledger.of("handed")):
            marks.add(inbox, useq, "reordered")
        is_waiting = left.how == 0
        found = [] if task.cut is None else list(self._compared(entries, is_waiting, marks))
        hours = self._hours(marks, entries, latest)
        if hours is None:
            return {"part": task.part, "is_unsure": True}
        names = self._write_books(entries, left, marks, hours, found)
        keys, suspects = self._repeats(np.concatenate(hashes))
        if task.hands_on is not None:
            last = np.zeros(len(latest), np.int64)
            np.maximum.at(last, entries.inbox[entries.is_new], entries.useq[entries.is_new])
            waiting = Entries(*(column[is_waiting] for column in entries))
            self._hand_on(np.maximum(latest, last), waiting, merged(handed, ledger.of("handed")))
        newest = int(entries.accepted.max()) if len(entries.accepted) else None
        return {
            "part": task.part, "is_unsure": False, "newest": newest, "names": names, "keys": keys, "suspects": suspects
        }  # fmt: skip

    def _compared(self, entries: Entries, is_waiting: Any, marks: Marks) -> Iterator[tuple[Any, ...]]:
        waiting: dict[int, dict[int, int]] = {}
        columns = (entries.inbox[is_waiting], entries.useq[is_waiting], entries.message[is_waiting])
        for inbox, useq, message in zip(*(column.tolist() for column in columns), strict=True):
            waiting.setdefault(inbox, {})[useq] = message
        table = pq.read_table(self._task.cut, columns=["user_id", "platform", "useq", "message_id", "has_body"])
        ours = part_of(ints(table.column("user_id").combine_chunks()), self._task.parts) == self._task.part
        cut: dict[tuple[int, str], list[tuple[int, int, bool]]] = {}
        for user, platform, useq, message, has_body in zip(
            *(column.to_pylist() for column in table.filter(pa.array(ours)).columns), strict=True
        ):
            cut.setdefault((user, platform), []).append((useq, message, has_body))
        return compare(waiting, cut, self._inboxes, marks)

    def _hours(self, marks: Marks, entries: Entries, latest: Any) -> dict[tuple[int, int], int] | None:
        """The hours of the places that are marked; None if the books do not tell one for certain."""
        places = list(marks.rows)
        inbox, useq = (np.array([place[at] for place in places], np.int64) for at in (0, 1))
        step = int(max(entries.useq.max(initial=0), useq.max(initial=0))) + 2
        keys = entries.inbox * step + entries.useq
        at = np.searchsorted(keys, inbox * step + useq)
        is_here = at < len(keys)
        is_here[is_here] = keys[at[is_here]] == (inbox * step + useq)[is_here]
        hours = {
            place: int(entries.accepted[at[number]] // HOUR) for number, place in enumerate(places) if is_here[number]
        }
        gone = [places[number] for number in np.flatnonzero(~is_here & (useq >= 1) & (useq <= latest[inbox]))]
        if gone:
            found = self._hours_of_old(gone)
            if found is None:
                return None
            hours |= found
        return hours

    def _hours_of_old(self, places: list[tuple[int, int]]) -> dict[tuple[int, int], int] | None:
        """Of entries that left before: from the ranges of the books."""
        users = pa.array(sorted({int(self._inboxes.user[inbox]) for inbox, _ in places}), pa.int64())
        columns = ["user_id", "inbox", "window_start", "first_useq", "through_useq", "intended"]
        wanted = ds.field("user_id").isin(users) & ds.field("first_useq").is_valid()
        files = ds.dataset(self._task.files["books"], format="parquet", schema=AUDIT_SCHEMAS["audit"])
        ranges: dict[int, list[tuple[int, int, int | None]]] = {}
        for row in files.to_table(columns=columns, filter=wanted).to_pylist():
            first, through = row["first_useq"], row["through_useq"]
            hour = int(row["window_start"].timestamp()) // 3600 if through - first + 1 == row["intended"] else None
            ranges.setdefault(self._number[row["user_id"], row["inbox"]], []).append((first, through, hour))
        hours: dict[tuple[int, int], int] = {}
        for inbox, useq in places:
            met = [hour for first, through, hour in ranges.get(inbox, ()) if first <= useq <= through]
            if len(met) != 1 or met[0] is None:
                return None
            hours[inbox, useq] = met[0]
        return hours

    # Send ids.

    def _sent(self, batch: Any) -> tuple[Any, Any]:
        """The rows of a batch whose sender is ours and has given a send id, and the hashes of these."""
        has_id = pc.greater(pc.fill_null(pc.binary_length(batch.column("send_id")), 0), 0)
        senders = ints(batch.column("sender_id"))
        chosen = has_id.to_numpy(zero_copy_only=False) & (part_of(senders, self._task.parts) == self._task.part)
        rows = batch.select(["sender_id", "send_id"]).filter(pa.array(chosen))
        return rows, hashes_of(senders[chosen], rows.column("send_id"))

    def _repeats(self, hashes: Any) -> tuple[list[str], list[tuple[int, str]]]:
        """The files of send ids, and who has sent what perhaps twice."""
        names, suspects = look_up(hashes, Path(self._task.keys), self._task.key_names)
        found: set[tuple[int, str]] = set()
        if len(suspects):
            for batch in self._news("messages", ["event_id", "sender_id", "send_id"]):
                rows, own = self._sent(batch)
                alike = rows.filter(pa.array(np.isin(own, suspects)))
                found.update(zip(*(column.to_pylist() for column in alike.columns), strict=True))
        return names, sorted(found)

    # Writing.

    def _write_books(
        self, entries: Entries, left: Any, marks: Marks, hours: dict[tuple[int, int], int],
        found: list[tuple[Any, ...]],
    ) -> dict[str, str]:  # fmt: skip
        keys, counts = sums_of(entries, left)
        changed = self._rows(keys[:, 0], keys[:, 1], counts)
        said: dict[str, dict[tuple[int, int], dict[str, int]]] = {"sums": {}, "now": {}}
        for (inbox, useq), each in marks.rows.items():
            if (inbox, useq) in hours:
                for mark, count in each.items():
                    kind = "sums" if mark in ("resent", "reordered") else "now"
                    sums = said[kind].setdefault((inbox, hours[inbox, useq]), {})
                    sums[mark] = sums.get(mark, 0) + count
        tables = {}
        for kind, rows in said.items():
            places = np.array(list(rows), np.int64).reshape(-1, 2)
            marked = ("resent", "reordered") if kind == "sums" else ("waiting", "lost", "duplicates")
            values = {mark: np.array([row.get(mark, 0) for row in rows.values()], np.int64) for mark in marked}
            tables[kind] = self._rows(places[:, 0], places[:, 1], values)
        taken = [at for at, name in enumerate(self._inboxes.name) if name == FIRST != self._inboxes.platform[at]]
        called = pa.Table.from_pylist(
            [
                {"user_id": int(self._inboxes.user[at]), "inbox": FIRST, "platform": self._inboxes.platform[at]}
                for at in taken
            ],
            schema=AUDIT_SCHEMAS["audit"],
        )
        findings = [dict(zip(AUDIT_SCHEMAS["findings"].names, row, strict=True)) for row in found]
        written = {
            "sums": pa.concat_tables([changed, tables["sums"]]),
            "now": pa.concat_tables([called, tables["now"]]),
            "findings": pa.Table.from_pylist(findings, schema=AUDIT_SCHEMAS["findings"]),
        }
        return {kind: write(rows, self._task.folders[kind]) for kind, rows in written.items()}

    def _rows(self, inbox: Any, hour: Any, counts: dict[str, Any]) -> Any:
        """Rows of the books."""
        names = pa.array(self._inboxes.name, pa.string()).take(pa.array(inbox, pa.int64()))
        columns = {
            "window_start": pa.array(hour * HOUR, pa.int64()).cast(_MOMENT),
            "user_id": pa.array(self._inboxes.user[inbox], pa.int64()),
            "inbox": names,
        }
        for name, values in counts.items():
            is_place = name in ("first_useq", "through_useq")
            columns[name] = pa.array(values, pa.int64(), mask=values == 0 if is_place else None)
        schema = AUDIT_SCHEMAS["audit"]
        return pa.table(
            [columns[field.name] if field.name in columns else pa.nulls(len(inbox), field.type) for field in schema],
            schema=schema,
        )

    def _hand_on(self, latest: Any, waiting: Entries, handed: Handed) -> None:
        user, name = self._inboxes.user, pa.array(self._inboxes.name, pa.string())
        every = np.arange(len(user))

        def rows(kind: str, inbox: Any, *columns: Any) -> None:
            named = [pa.array(user[inbox], pa.int64()), name.take(pa.array(inbox, pa.int64()))]
            fields = list(STATE[kind])[2:]
            values = [
                pa.array(column, pa.int64()).cast(field.type) for column, field in zip(columns, fields, strict=True)
            ]
            self._keep(kind, pa.table(named + values, schema=STATE[kind]))

        self._keep("changes", self.people.folded())
        rows("waiting", waiting.inbox, waiting.useq, waiting.event, waiting.message, waiting.accepted)
        rows("inboxes", every, latest)
        rows("handed", *handed)

    def _keep(self, kind: str, rows: Any) -> None:
        assert self._task.hands_on is not None
        folder = Path(self._task.hands_on)
        folder.mkdir(parents=True, exist_ok=True)
        # A task that is run twice writes the same: whoever ends last puts a whole file there.
        aside = folder / f"{secrets.token_hex(6)}.aside"
        pq.write_table(rows, aside, compression="zstd")
        aside.rename(folder / f"{self._task.part:04d}-{kind}.parquet")


def write(rows: Any, folder: str) -> str:
    """A new file of the lake; returns its name."""
    name = f"{secrets.token_hex(8)}.parquet"
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, Path(folder) / name, compression="zstd", store_schema=False)
    return name


def _ranges(ledger: Ledger) -> tuple[Any, Any, Any]:
    return ledger.inbox, ledger.first, ledger.through
