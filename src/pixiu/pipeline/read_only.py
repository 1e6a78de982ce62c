"""Which statements ``pixiu sql`` accepts: one query, which may be explained or described.

These checks give a clear error. What makes a write impossible is how the engines are opened: see
``pixiu.pipeline.query`` for DuckDB and ``restrict`` for Spark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import RequestError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_analyzed", "check_duckdb", "check_parsed", "restrict"]

ACCEPTED = "pixiu sql only reads; use SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW or EXPLAIN"

_SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_EXPLAIN = re.compile(rf"{_SPACE}*EXPLAIN(?:{_SPACE}+ANALYZE\b|{_SPACE}*\([^)]*\))?", re.IGNORECASE | re.DOTALL)
_EMPTY = re.compile(rf"(?:{_SPACE}|;)*", re.DOTALL)

_QUERY_NODES = frozenset({
    "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
    "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "OneRowRelation$", "PipeOperator", "Pivot", "Project",
    "Range", "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias",
    "Union", "Unpivot", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable", "UnresolvedRelation",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedTableValuedFunction", "UnresolvedWith",
    "WithWindowDefinition",
})  # fmt: skip
"""Spark's names of the nodes that a parsed query consists of. Any other node is refused."""

_DESCRIBING_NODES = frozenset({
    "CurrentNamespace$", "DescribeColumn", "DescribeFunction", "DescribeRelation", "ShowColumns", "ShowFunctions",
    "ShowTables", "ShowViews", "UnresolvedFunctionName", "UnresolvedNamespace", "UnresolvedTableOrView",
})  # fmt: skip
"""The nodes of DESCRIBE and SHOW."""

_NEVER_ANALYZED = "org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation"

_FUNCTIONS_AWAY = ("reflect", "java_method", "try_reflect", "from_xml", "schema_of_xml")
"""Functions that call any static method of Java, or open a file that their options name."""

_SETTINGS = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
"""No tables such as csv.`/etc/passwd`; no ${env:NAME} in the text of a query."""


def check_duckdb(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raise ``RequestError`` unless the text is one query, or EXPLAIN of one."""
    import duckdb

    explained = _EXPLAIN.match(text)
    # EXPLAIN of several statements is counted over the whole text: EXPLAIN belongs to the first of them.
    statements = connection.extract_statements(text)
    if explained is not None and len(statements) == 1:
        statements = connection.extract_statements(text[explained.end() :])
    if not statements:
        raise RequestError(f"there is no query: {ACCEPTED}")
    if len(statements) > 1:
        raise RequestError(f"one query at a time; these are {len(statements)} statements")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI):  # MULTI: PIVOT
        raise RequestError(f"{statements[0].type.name} is not accepted: {ACCEPTED}")


def restrict(session: SparkSession) -> None:
    """Take from a session what could reach Java, the environment or files outside the lake."""
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    java: Any = session._jvm  # Spark gives Python no other way to its function registry
    registry = session._jsparkSession.sessionState().functionRegistry()
    option = java.scala.Option.apply
    for name in _FUNCTIONS_AWAY:
        identifier = java.org.apache.spark.sql.catalyst.FunctionIdentifier(name, option("builtin"), option("system"))
        if not registry.dropFunction(identifier):
            raise Unavailable(f"cannot remove the function {name} from this Spark; use --engine duckdb")


def check_parsed(session: SparkSession, text: str) -> None:
    """Raise ``RequestError`` unless Spark parses the text as one query, or EXPLAIN or DESCRIBE of one, or SHOW."""
    if _EMPTY.fullmatch(text):
        raise RequestError(f"there is no query: {ACCEPTED}")
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    accepted = _QUERY_NODES | _DESCRIBING_NODES
    if _name(plan) == "ExplainCommand":
        plan, accepted = plan.logicalPlan(), _QUERY_NODES
    elif _name(plan) == "DescribeQueryCommand":
        plan, accepted = plan.plan(), _QUERY_NODES
    for node in _nodes(plan):
        if _name(node) not in accepted:
            raise RequestError(f"{_name(node)} is not accepted: {ACCEPTED}")


def check_analyzed(frame: DataFrame) -> None:
    """Raise ``RequestError`` if a part that the parser hides (a named window) starts a program."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        if node.getClass().getName() == _NEVER_ANALYZED:
            raise RequestError(f"{_name(node)} is not accepted: {ACCEPTED}")


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, those of its subqueries and common table expressions included."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        for below in (node.children(), node.innerChildren()):
            each = below.iterator()
            while each.hasNext():
                waiting.append(each.next())
