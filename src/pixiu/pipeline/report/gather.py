"""The numbers of a report, asked of the lake by DuckDB. Every list has a bound, so a report stays small.

Charts over minutes cover the last day before the newest minute of the tables, in steps that give some hundred points; a
lake that nobody has fed for a week still shows its last day.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pixiu.model.errors import NotFound
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS, MART_SCHEMAS
from pixiu.pipeline.query import open_duckdb
from pixiu.pipeline.sketch import quantiles
from pixiu.pipeline.status import audit_of, status_of

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

__all__ = ["gather", "steps_of"]

DAYS_MAX = 90
MONTHS_MAX = 12
RETENTION_DAYS = 30
KINDS_MAX = PLACES_MAX = 12
CONVERSATIONS_MAX = LINKS_MAX = 20
FINDINGS_MAX = 50
SKETCHES_MAX = 20_000
POINTS = 240
WINDOW_MS = 24 * 3_600_000
MINUTE_MS = 60_000
WITHIN_MS = 200

Rows = list[dict[str, Any]]


def gather(data: Path) -> dict[str, Any]:
    """Everything that a report shows. Raises ``NotFound`` with what to do if there is no lake."""
    if not Place(data).lake.is_dir():
        raise NotFound(f"there is no lake in {data} yet; make it with: pixiu pipeline run --once --data {data}")
    status = status_of(data)
    with open_duckdb(data) as connection:
        asked = _Asked(connection)
        found = {
            "at": int(time.time() * 1000),
            "log": str(status["log"]),
            "lag": max((table["lag"] for table in status["tables"] if table["table"] in _FED), default=None),
            "tables": [table | {"through": str(table["through"])} for table in status["tables"]],
            "usage": _usage(asked),
            "latency": _latency(asked),
            "heat": _heat(asked),
        }
        has_audit = any(table["table"] == "audit" and table["version"] > 0 for table in status["tables"])
        found["audit"] = _audit(asked, data, status) if has_audit else None
    return found


_KINDS = {"u": "private", "g": "group"}
_FED = (*LAKE_SCHEMAS, *MART_SCHEMAS)


class _Asked:
    """Questions to the lake, with rows by name."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: object) -> Rows:
        found = self._connection.execute(text, list(values))
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def one(self, text: str, *values: object) -> Any:
        (row,) = self.rows(text, *values)
        return next(iter(row.values()))


# Usage.


def _usage(asked: _Asked) -> dict[str, Any]:
    days = asked.rows(
        f"""
        WITH seen AS (
            SELECT user_id, day, min(day) OVER (PARTITION BY user_id) AS first_day
            FROM (SELECT DISTINCT user_id, day FROM lake_usage WHERE what <> 'came')
        ), turnout AS (
            SELECT day, count(*) FILTER (first_day = day) AS fresh, count(*) FILTER (first_day < day) AS again
            FROM seen GROUP BY day
        )
        SELECT CAST(u.day AS VARCHAR) AS day, active_users AS active, coalesce(fresh, 0) AS "new",
               coalesce(again, 0) AS "returning", senders, CAST(messages AS BIGINT) AS messages,
               CAST(bytes AS BIGINT) AS bytes, CAST(acked_entries AS BIGINT) AS acked, devices, new_users AS registered
        FROM usage u LEFT JOIN turnout t ON t.day = u.day ORDER BY u.day DESC LIMIT {DAYS_MAX}
        """
    )[::-1]
    last = "(SELECT max(day) FROM lake_usage WHERE what <> 'came')"

    def actives(days: int) -> int:
        return int(
            asked.one(
                "SELECT count(DISTINCT user_id) FROM lake_usage "
                f"WHERE what <> 'came' AND day > {last} - INTERVAL {days} DAY"
            )
        )

    months = asked.rows(
        f"""
        SELECT strftime(day, '%Y-%m') AS month, count(DISTINCT user_id) AS active
        FROM lake_usage WHERE what <> 'came' GROUP BY month ORDER BY month DESC LIMIT {MONTHS_MAX}
        """
    )[::-1]
    kinds = asked.rows(
        f"""
        SELECT kind, CAST(sum(messages) AS BIGINT) AS messages FROM lake_usage
        WHERE what = 'sent' AND day > {last} - INTERVAL 30 DAY
        GROUP BY kind ORDER BY messages DESC, kind LIMIT {KINDS_MAX}
        """
    )
    places = asked.rows(
        f"""
        SELECT place AS platform, count(DISTINCT user_id) AS users, CAST(sum(messages) AS BIGINT) AS acked
        FROM lake_usage WHERE what = 'received' AND day > {last} - INTERVAL 30 DAY
        GROUP BY place ORDER BY users DESC, place LIMIT {PLACES_MAX}
        """
    )
    return {
        "active_day": actives(1),
        "active_week": actives(7),
        "active_month": actives(30),
        "users": asked.one("SELECT count(*) FROM users"),
        "days": days,
        "months": months,
        "kinds": kinds,
        "platforms": places,
        "retention": _retention(asked),
    }


def _retention(asked: _Asked) -> Rows:
    """Of those who were seen first some days ago: the share that was seen again N days later."""
    return asked.rows(
        f"""
        WITH newest AS (SELECT max(day) AS day FROM retention),
        cohorts AS (SELECT first_day, users FROM retention WHERE day = first_day),
        steps AS (SELECT unnest(range(0, {RETENTION_DAYS} + 1)) AS after_days),
        could AS (
            SELECT after_days, sum(users) AS users FROM steps, cohorts, newest
            WHERE date_diff('day', first_day, newest.day) >= after_days GROUP BY after_days
        ), came AS (
            SELECT date_diff('day', first_day, day) AS after_days, sum(users) AS users FROM retention GROUP BY 1
        )
        SELECT could.after_days, CAST(could.users AS BIGINT) AS users,
               round(coalesce(came.users, 0) / could.users, 4) AS share
        FROM could LEFT JOIN came USING (after_days) ORDER BY after_days
        """
    )


# Minutes.


def steps_of(first_ms: int | None, last_ms: int | None) -> tuple[int, int, int] | None:
    """Where a chart begins, its step, and how many there are; None if there is nothing to draw."""
    if first_ms is None or last_ms is None:
        return None
    begin = max(first_ms, last_ms - WINDOW_MS + MINUTE_MS)
    minutes = (last_ms - begin) // MINUTE_MS + 1
    step = MINUTE_MS * max(1, -(-minutes // POINTS))
    begin -= begin % step
    return begin, step, (last_ms - begin) // step + 1


def _latency(asked: _Asked) -> dict[str, Any]:
    bounds = asked.rows("SELECT epoch_ms(min(minute)) AS first, epoch_ms(max(minute)) AS last FROM lake_latency")[0]
    steps = steps_of(bounds["first"], bounds["last"])
    if steps is None:
        return {"within_ms": WITHIN_MS, "links": [], "hops": [], "minutes": [], "step_ms": MINUTE_MS, "series": []}
    begin, step, count = steps
    rows = asked.rows(
        f"""
        SELECT hop, link, epoch_ms(minute) AS at, messages, in_time, sum_us, max_us, sketch FROM lake_latency
        WHERE epoch_ms(minute) >= {begin} ORDER BY minute DESC LIMIT {SKETCHES_MAX}
        """
    )
    by_link, by_hop, by_time = defaultdict(list), defaultdict(list), defaultdict(list)
    for row in rows:
        by_link[row["hop"], row["link"]].append(row)
        by_hop[row["hop"]].append(row)
        by_time[row["hop"], (row["at"] - begin) // step].append(row)
    series = []
    for hop in sorted(by_hop):
        points = [_told(by_time[hop, number]) if (hop, number) in by_time else None for number in range(count)]
        series.append(
            {
                "hop": hop,
                "p50": [None if point is None else point["p50"] for point in points],
                "p99": [None if point is None else point["p99"] for point in points],
                "share_in_time": [None if point is None else point["share_in_time"] for point in points],
            }
        )
    links = [{"hop": hop, "link": link} | _told(found) for (hop, link), found in sorted(by_link.items())]
    return {
        "within_ms": WITHIN_MS,
        "minutes": [begin + number * step for number in range(count)],
        "step_ms": step,
        "hops": [{"hop": hop} | _told(found) for hop, found in sorted(by_hop.items())],
        "links": sorted(links, key=lambda each: -each["messages"])[:LINKS_MAX],
        "series": series,
    }


def _told(rows: Rows) -> dict[str, Any]:
    """Some rows of latency as one."""
    messages = sum(row["messages"] for row in rows)
    found = quantiles((row["sketch"] for row in rows if row["sketch"]), (0.5, 0.9, 0.99))
    percentiles: list[float | None] = [*(us / 1000 for us in found)] or [None, None, None]
    return {
        "messages": messages,
        "share_in_time": round(sum(row["in_time"] for row in rows) / messages, 6) if messages else None,
        "mean_ms": round(sum(row["sum_us"] for row in rows) / messages / 1000, 3) if messages else None,
        "p50": percentiles[0],
        "p90": percentiles[1],
        "p99": percentiles[2],
        "max_ms": max(row["max_us"] for row in rows) / 1000,
    }


def _heat(asked: _Asked) -> dict[str, Any]:
    bounds = asked.rows("SELECT epoch_ms(min(minute)) AS first, epoch_ms(max(minute)) AS last FROM lake_heat")[0]
    steps = steps_of(bounds["first"], bounds["last"])
    if steps is None:
        return {
            "conversations": [],
            "minutes": [],
            "step_ms": MINUTE_MS,
            "messages": [],
            "map": [],
            "buckets": [],
            "skew": None,
        }
    begin, step, count = steps
    since = f"epoch_ms(minute) >= {begin}"
    busiest = asked.rows(
        f"""
        WITH minutes AS (
            SELECT conversation, minute, sum(messages) AS messages, sum(bytes) AS bytes FROM lake_heat
            WHERE {since} GROUP BY conversation, minute
        ), sums AS (
            SELECT conversation, sum(messages) AS messages, sum(bytes) AS bytes, max(messages) AS peak
            FROM minutes GROUP BY conversation
        )
        SELECT conversation, CAST(messages AS BIGINT) AS messages, CAST(bytes AS BIGINT) AS bytes,
               CAST(peak AS BIGINT) AS peak_per_minute, messages / sum(messages) OVER () AS share
        FROM sums ORDER BY messages DESC, conversation LIMIT {CONVERSATIONS_MAX}
        """
    )
    names = _names(asked, [row["conversation"] for row in busiest])
    for row in busiest:
        row["kind"] = _KINDS.get(row["conversation"].partition(":")[0], "room")
        row["share"] = round(row["share"], 4)
        row["name"] = names.get(row["conversation"], row["conversation"])
    cells = asked.rows(
        f"""
        SELECT conversation, (epoch_ms(minute) - {begin}) // {step} AS step, CAST(sum(messages) AS BIGINT) AS messages
        FROM lake_heat WHERE {since} AND list_contains(?, conversation) GROUP BY 1, 2
        """,
        [row["conversation"] for row in busiest],
    )
    lines: dict[str, list[int]] = {row["conversation"]: [0] * count for row in busiest}
    for cell in cells:
        lines[cell["conversation"]][cell["step"]] = cell["messages"]
    total = [0] * count
    for row in asked.rows(
        f"""
        SELECT (epoch_ms(minute) - {begin}) // {step} AS step, CAST(sum(messages) AS BIGINT) AS messages
        FROM lake_heat WHERE {since} GROUP BY 1
        """
    ):
        total[row["step"]] = row["messages"]
    buckets = asked.rows(
        f"""
        SELECT bucket, CAST(sum(messages) AS BIGINT) AS messages FROM lake_heat WHERE {since}
        GROUP BY bucket ORDER BY bucket
        """
    )
    return {
        "minutes": [begin + number * step for number in range(count)],
        "step_ms": step,
        "messages": total,
        "conversations": busiest,
        "map": [{"name": names.get(each, each), "messages": values} for each, values in lines.items()],
        "buckets": buckets,
        "skew": _skew([row["messages"] for row in buckets]),
    }


def _skew(loads: list[int]) -> float | None:
    """How many times as busy the busiest partition is as the mean of those that are in use."""
    return round(max(loads) * len(loads) / sum(loads), 2) if loads and sum(loads) else None


def _names(asked: _Asked, conversations: list[str]) -> dict[str, str]:
    """Conversations as people call them: two users, or a group."""
    users: dict[str, list[int]] = {}
    groups: dict[str, int] = {}
    for each in conversations:
        kind, *numbers = each.split(":")
        if kind == "u":
            users[each] = [int(number) for number in numbers]
        elif kind == "g":
            groups[each] = int(numbers[0])
    people = {
        row["user_id"]: row["public_id"]
        for row in asked.rows(
            "SELECT user_id, public_id FROM users WHERE list_contains(?, user_id)",
            [number for pair in users.values() for number in pair],
        )
    }
    called = {
        row["group_id"]: row["name"] or row["public_id"]
        for row in asked.rows(
            "SELECT group_id, public_id, name FROM chat_groups WHERE list_contains(?, group_id)",
            list(groups.values()),
        )
    }
    found = {each: called.get(number) or each for each, number in groups.items()}
    for each, pair in users.items():
        named = [people.get(number) or ("system" if number == 0 else str(number)) for number in dict.fromkeys(pair)]
        found[each] = " ↔ ".join(named)
    return found


# The audit.


def _audit(asked: _Asked, data: Path, status: dict[str, Any]) -> dict[str, Any]:
    through = next(table["through"] for table in status["tables"] if table["table"] == "audit")
    sums = audit_of(data)
    more = asked.rows(
        "SELECT CAST(sum(reordered) AS BIGINT) AS reordered, CAST(sum(late) AS BIGINT) AS late, "
        "count(DISTINCT (user_id, platform)) AS inboxes, count(DISTINCT window_start) AS windows FROM audit"
    )[0]
    findings = asked.rows(f"SELECT * FROM findings ORDER BY message_id LIMIT {FINDINGS_MAX}")
    for row in findings:
        row |= {name: str(row[name]) for name in ("user_id", "message_id", "useq") if row[name] is not None}
    return sums | more | {"through": str(through), "at": _written_at(data), "findings": findings}


def _written_at(data: Path) -> int | None:
    """When the newest audit was written, in milliseconds since 1970."""
    commits = [path.stat().st_mtime_ns for path in (Place(data).lake / "audit" / "_delta_log").glob("*.json")]
    return max(commits) // 1_000_000 if commits else None
