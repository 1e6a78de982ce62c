"""Erasures in the lake: who was erased is a table, and what they wrote is in no file any more."""

import asyncio
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pixiu.model.errors import CorruptData, Unavailable
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.erasure import erase_stopped
from pixiu.node.stores import audit_stopped
from pixiu.pipeline.checker import check_audit
from pixiu.pipeline.lake.erasure import blank_lake, note_erasures
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import MART_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.query import query_duckdb, tables_of
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.queue.storage.redact import INTENT
from pixiu.runtime.datadir import DataDirectory
from tests.node.test_erasure import MARK, found, talk


def answer(data: Path, text: str) -> list[tuple[Any, ...]]:
    return query_duckdb(data, text)[1]


@pytest.mark.feature("R20")
def test_files_are_written_again_without_what_an_erased_user_wrote(data: Path) -> None:
    asyncio.run(talk(data))
    fill_lake(data)
    before = answer(data, "SELECT message_id, sender_id, kind, notice, send_id FROM lake_messages ORDER BY 1")
    assert blank_lake(Place(data).lake) == []  # nobody was erased
    erase_stopped(data, "alice")
    assert [path for path in found(data) if not path.startswith("pipeline/lake/")] == []
    fill_lake(data)
    alice = answer(data, "SELECT user_id FROM users WHERE public_id = 'alice'")[0][0]
    done = {each.table: (each.rewritten, each.rows) for each in blank_lake(Place(data).lake)}
    assert done["messages"] == (1, 62) and done["changes"][0] == 1
    assert answer(data, 'SELECT "user" FROM lake_erasures') == [(alice,)]
    says = f"SELECT count(*) FROM lake_messages WHERE sender_id = {alice} AND notice IS NULL AND kind != 'system'"
    assert answer(data, f"{says} AND (text IS NOT NULL OR body IS NOT NULL)") == [(0,)]
    assert answer(data, "SELECT count(*) FROM lake_messages WHERE text LIKE 'plain%'") == [(60,)]
    assert answer(data, f"SELECT count(*) FROM lake_messages WHERE text LIKE '%{MARK}%'") == [(0,)]
    after = answer(data, "SELECT message_id, sender_id, kind, notice, send_id FROM lake_messages ORDER BY 1")
    assert after[: len(before)] == before  # ids, kinds and notices are what they were
    for table in tables_of(data).values():
        table.vacuum(0)
    assert found(data) == []
    for path in Place(data).lake.rglob("*.parquet"):
        assert MARK not in str(pq.read_table(path).to_pylist()), path
    assert [each.rows for each in blank_lake(Place(data).lake)] == [0, 0]
    with DataDirectory.open(data):
        books = audit_stopped(data)
    assert books.balanced
    checked = check_audit(data, books.cut)
    assert checked["intended"] == books.intended and checked["dead"] == books.dead
    assert checked["expected_waiting"] == books.waiting


def test_a_column_that_spark_called_required_is_blanked_all_the_same(data: Path) -> None:
    asyncio.run(talk(data))
    erased, _ = erase_stopped(data, "alice")
    fill_lake(data)
    usage = LakeTable(Place(data).lake, "usage", MART_SCHEMAS["usage"])
    row = {
        "day": date(2026, 11, 16), "user_id": int(erased["number"]), "what": "sent", "place": "phone", "kind": "text",
        "messages": 1, "bytes": 2,
    }  # fmt: skip
    folder = usage.new_folder("new")
    (usage.folder / folder).mkdir(parents=True)
    required = pa.schema([field.with_nullable(False) for field in MART_SCHEMAS["usage"]])
    rows = pa.Table.from_pylist([row, row | {"user_id": 7}], schema=required)
    pq.write_table(rows, usage.folder / folder / "usage.parquet")
    usage.append(folder, after=0, through=1)
    assert {each.table: each.rows for each in blank_lake(Place(data).lake)}["usage"] == 1
    assert answer(data, "SELECT user_id, place FROM lake_usage ORDER BY user_id") == [
        (7, "phone"), (row["user_id"], None),
    ]  # fmt: skip


def test_what_comes_later_from_a_log_that_was_not_redacted_is_blanked_too(data: Path) -> None:
    async def erase() -> None:
        async with EmbeddedNode(data) as node:
            await node.act(None, "erase_user", user="alice")

    asyncio.run(talk(data))
    asyncio.run(erase())
    fill_lake(data)
    assert answer(data, f"SELECT count(*) FROM lake_messages WHERE text LIKE '{MARK}%'") != [(0,)]
    blank_lake(Place(data).lake)
    assert answer(data, f"SELECT count(*) FROM lake_messages WHERE text LIKE '{MARK}%'") == [(0,)]


def test_an_erasure_that_the_archive_has_not_read_yet_is_noted_once_and_holds_for_what_comes(data: Path) -> None:
    asyncio.run(talk(data))
    fill_lake(data, through=60)
    erased, _ = erase_stopped(data, "alice")
    lake = Place(data).lake
    assert note_erasures(data, lake) == 1 and note_erasures(data, lake) == 0
    blank_lake(lake)
    fill_lake(data)
    assert answer(data, "SELECT count(*) FROM lake_messages WHERE text LIKE '%' || chr(0) || '%'") != [(0,)]
    blank_lake(lake)
    assert answer(data, "SELECT count(*) FROM lake_messages WHERE text LIKE '%' || chr(0) || '%'") == [(0,)]
    assert answer(data, 'SELECT "user", event_id FROM lake_erasures') == [
        (int(erased["number"]), int(erased["event_id"]))
    ]


def test_a_frame_that_is_being_redacted_is_waited_for_and_damage_is_not(data: Path) -> None:
    asyncio.run(talk(data))
    journal = next((data / "queue/journal").glob("*.log"))
    whole = journal.read_bytes()
    with journal.open("r+b") as file:
        file.seek(whole.index(b"plain answer 3"))
        file.write(b"\0" * 7)
    folder = JournalFolder(data)
    parts = folder.plan(0, folder.end().event_id)
    wanted = Wanted.rows_of("messages")
    with pytest.raises(CorruptData, match="checksum"):
        list(decode(parts[0], wanted))
    (data / INTENT).write_bytes(b"")

    def finish() -> None:
        with journal.open("r+b") as file:  # in place, as a redaction does
            file.write(whole)
        (data / INTENT).unlink()

    timer = threading.Timer(0.2, finish)
    timer.start()
    assert sum(batch.num_rows for batch in decode(parts[0], wanted)) > 100
    timer.join()
    (data / INTENT).write_bytes(b"")
    with pytest.raises(Unavailable, match="pixiu queue redact"):
        folder.end()
