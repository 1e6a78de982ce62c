"""A lake of an older program: columns that came later are null in its files, and nothing is read twice."""

from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.query import query_duckdb

NEW = ("message_id", "gateway", "waited")


def add(table: LakeTable, **values: object) -> None:
    folder = table.new_folder("made")
    (table.folder / folder).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([values], schema=table.schema), table.folder / folder / "rows.parquet")
    table.append(folder, through=table.through + 1)


def test_columns_that_came_later(data: Path) -> None:
    schema = LAKE_SCHEMAS["deliveries"]
    older = pa.schema([field for field in schema if field.name not in NEW])
    lake = Place(data).lake
    add(LakeTable(lake, "deliveries", older), event_id=1, what="handed")
    query = "SELECT event_id, message_id, gateway, waited FROM deliveries ORDER BY event_id"
    table = LakeTable(lake, "deliveries", schema)
    assert table.missing == list(NEW)
    assert query_duckdb(data, query)[1] == [(1, None, None, None)]
    add(table, event_id=2, what="handed", message_id=7, gateway="local", waited=False)
    assert query_duckdb(data, query)[1] == [(1, None, None, None), (2, 7, "local", False)]
    assert (table.missing, table.through) == ([], 2)
    assert {field.name for field in DeltaTable(str(table.folder)).schema().fields} == set(schema.names)
