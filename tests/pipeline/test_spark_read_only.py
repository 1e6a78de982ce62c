"""Spark answers queries of ``pixiu sql``, and refuses statements that write, run programs or open other files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pixiu.model.errors import RequestError
from pixiu.pipeline.query import query_spark

if TYPE_CHECKING:
    from pathlib import Path

QUERIES = [
    "SELECT count(*) FROM messages",
    "-- how many\nWITH a AS (SELECT 1 AS n) SELECT * FROM a WHERE n IN (SELECT 1) OR EXISTS (SELECT 1 FROM users)",
    "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
    "SELECT id, sum(id) OVER w FROM range(3) WINDOW w AS (ORDER BY id)",
    "FROM range(3) |> WHERE id > 1 |> SELECT id",
    "SELECT 1 UNION SELECT 2 EXCEPT SELECT 3",
    "SELECT '${env:HOME}'",
    "SELECT explode(array(1, 2)) LIMIT 1",
    "VALUES (1)",
    "DESCRIBE messages",
    "DESCRIBE QUERY SELECT 1",
    "SHOW TABLES",
    "SHOW COLUMNS IN users",
    "EXPLAIN EXTENDED SELECT * FROM messages",
]

ATTEMPTS = [
    "",
    " -- nothing",
    "SELECT 1; SELECT 2",
    "BEGIN SELECT 1; END",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "CREATE TABLE taken USING csv LOCATION '{file}' AS SELECT 1",
    "CREATE TEMPORARY VIEW taken USING text OPTIONS (path '/etc/hostname')",
    "CREATE OR REPLACE TEMPORARY VIEW messages AS SELECT 1",
    "CREATE TEMPORARY FUNCTION f AS 'org.example.F' USING JAR '{file}'",
    "EXPLAIN CREATE TABLE taken AS SELECT 1",
    "FROM users INSERT OVERWRITE DIRECTORY '{file}' USING csv SELECT *",
    "INSERT OVERWRITE DIRECTORY '{file}' USING csv SELECT 1",
    "WITH a AS (SELECT 1) INSERT OVERWRITE DIRECTORY '{file}' USING csv SELECT * FROM a",
    "INSERT INTO users SELECT 1",
    "CACHE TABLE taken AS SELECT 1",
    "ADD JAR '{file}'",
    "SET spark.sql.runSQLOnFiles = true",
    "SET VAR a = 1",
    "USE default",
    "DROP VIEW messages",
    "SELECT TRANSFORM(1) USING 'touch {file}'",
    "SELECT * FROM (SELECT TRANSFORM(1) USING 'touch {file}')",
    "SELECT sum(id) OVER w FROM range(1) WINDOW w AS (ORDER BY (SELECT TRANSFORM(1) USING 'touch {file}' AS (a INT)))",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT IDENTIFIER('java_method')('java.lang.System', 'getProperty', 'user.home')",
    "SELECT system.builtin.try_reflect('java.lang.System', 'getProperty', 'user.home')",
    "SELECT sum(id) OVER w FROM range(1) WINDOW w AS (ORDER BY reflect('java.lang.System', 'lineSeparator'))",
    "SELECT from_xml('<a>1</a>', 'a INT', map('rowValidationXSDPath', '/etc/hostname'))",
    "SELECT * FROM text.`/etc/hostname`",
    "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')",
    "SELECT * FROM pixiu.`/etc`",
    "DESCRIBE text.`/etc/hostname`",
]


def test_spark_answers_queries_and_refuses_everything_else(spark: Any, data: Path, tmp_path: Path) -> None:
    (data / "pipeline" / "lake").mkdir(parents=True)
    for query in QUERIES:
        names, rows = query_spark(spark, data, query)
        assert len(rows) >= 1, query
        assert len(names) == len(rows[0])
    assert query_spark(spark, data, "SELECT '${env:HOME}'")[1] == [("${env:HOME}",)]
    before = sorted(tmp_path.rglob("*"))
    for attempt in ATTEMPTS:
        with pytest.raises(RequestError):
            print(query_spark(spark, data, attempt.format(file=tmp_path / "taken")), attempt)
        assert sorted(tmp_path.rglob("*")) == before, attempt
    assert query_spark(spark, data, "SELECT count(*) FROM messages")[1] == [(0,)]
    assert spark.sql("SELECT reflect('java.lang.String', 'valueOf', 1)").collect() == [("1",)]
