"""A report for a terminal: short tables, small bars, and what to do where something is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from pixiu.model.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["cells_of_link", "finished", "not_yet", "report_text", "shown_share", "verdict"]

BAR = 24
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_POINTS = 60
DAYS = 14
ROWS = 10


def report_text(found: dict[str, Any]) -> str:
    """All of it."""
    parts = [_head(found), _usage(found["usage"]), _latency(found["latency"]), _heat(found["heat"])]
    parts.append(_audit(found["audit"], found["at"]))
    return "\n\n".join("\n".join(part) for part in parts)


def not_yet(lag: int) -> str:
    """What the tables lack of the log."""
    return f"{counted(lag, 'event', is_grouped=True)} {'is' if lag == 1 else 'are'} not in the tables yet"


def _head(found: dict[str, Any]) -> list[str]:
    lag = found["lag"]
    behind = "nothing is missing" if not lag else not_yet(lag)
    rows = sum(table["rows"] for table in found["tables"])
    size = sum(table["bytes"] for table in found["tables"])
    return [
        f"Pixiu pipeline, {_moment(found['at'])}",
        f"the log is at event {int(found['log']):,}; {behind}",
        f"{counted(len(found['tables']), 'table')}, {counted(rows, 'row', is_grouped=True)}, {size / 2**20:,.1f} MB",
    ]


def _usage(usage: dict[str, Any]) -> list[str]:
    lines = ["USAGE"]
    if not usage["days"]:
        return [*lines, "nobody has done anything yet"]
    lines.append(
        f"active people: {usage['active_day']:,} on the last day, {usage['active_week']:,} in 7 days, "
        f"{usage['active_month']:,} in 30 days; {counted(usage['users'], 'user', is_grouped=True)} in all"
    )
    days = usage["days"][-DAYS:]
    lines += _table(
        ("day", "active", "new", "returning", "messages", "acked", "devices", ""),
        [
            (each["day"], each["active"], each["new"], each["returning"], each["messages"], each["acked"],
             each["devices"], _bar(each["messages"], max(day["messages"] for day in days)))
            for each in days
        ],
    )  # fmt: skip
    if usage["kinds"]:
        lines.append(
            "messages by kind: " + ", ".join(f"{each['kind']} {each['messages']:,}" for each in usage["kinds"])
        )
    if usage["platforms"]:
        shown = ", ".join(f"{each['platform'] or '–'} {each['users']:,}" for each in usage["platforms"])
        lines.append(f"people by platform: {shown}")
    later = [each for each in usage["retention"] if each["after_days"] in (1, 3, 7, 14, 30)]
    if later:
        shown = ", ".join(f"day {each['after_days']}: {shown_share(each['share'])}" for each in later)
        lines.append(f"of new people came back, {shown}")
    return lines


def _latency(latency: dict[str, Any]) -> list[str]:
    lines = [f"LATENCY of the last day, share within {latency['within_ms']} ms"]
    if not latency["links"]:
        return [*lines, "nothing was measured yet"]
    return lines + _table(
        ("hop", "link", "samples", "p50", "p90", "p99", "max", f"≤ {latency['within_ms']} ms"),
        [cells_of_link(each) for each in latency["links"]],
    )  # fmt: skip


def _heat(heat: dict[str, Any]) -> list[str]:
    lines = ["HEAT of the last day"]
    if not heat["conversations"]:
        return [*lines, "no messages yet"]
    lines.append(f"messages  {_spark(heat['messages'])}")
    lines += _table(
        ("conversation", "kind", "messages", "share", "busiest minute", "over time"),
        [
            (
                each["name"],
                each["kind"],
                each["messages"],
                shown_share(each["share"]),
                each["peak_per_minute"],
                _spark(row["messages"]),
            )
            for each, row in zip(heat["conversations"][:ROWS], heat["map"][:ROWS], strict=True)
        ],
    )
    lines.append(f"the busiest of {counted(len(heat['buckets']), 'partition')} has {heat['skew']} x the mean")
    return lines


def _audit(audit: dict[str, Any] | None, now_ms: int) -> list[str]:
    lines = ["AUDIT"]
    if audit is None:
        return [*lines, "no audit yet; make one with: pixiu pipeline run audit --once"]
    inboxes = counted(audit["inboxes"], "inbox", "inboxes", is_grouped=True)
    lines += [verdict(audit), f"{finished(audit, now_ms)}, through event {int(audit['through']):,}, {inboxes}"]
    for each in audit["findings"][:ROWS]:
        where = each["user_name"] or each["user_id"] or "–"
        lines.append(
            f"  {each['finding']}: message {each['message_id']}, {where} on {each['platform']}: {each['reason']}"
        )
    return lines


def finished(audit: dict[str, Any], now_ms: int) -> str:
    """How old the audit is."""
    if audit["at"] is None:
        return "finished at an unknown time"
    minutes = max(now_ms - audit["at"], 0) // 60_000
    return f"finished {minutes // 60} h {minutes % 60} min ago" if minutes >= 60 else f"finished {minutes} min ago"


def verdict(audit: dict[str, Any]) -> str:
    """The audit in one line."""
    if audit["intended"] is None:
        return "there is nothing to balance yet"
    if audit["balanced"] is None:
        counts = "intended {intended:,}, acked {acked:,}, should wait {expected_waiting:,}"
        counts += ", expired {expired:,}, dead {dead:,}; the stores were not compared"
        return counts.format_map(audit)
    counts = "intended {intended:,} = acked {acked:,} + waiting {waiting:,} + expired {expired:,} + dead {dead:,}"
    told = "balanced" if audit["balanced"] else "NOT balanced ({lost:,} lost, {duplicates:,} twice)".format_map(audit)
    return f"{told}: {counts.format_map(audit)}"


# Parts.


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    numbers = [all(_is_number(row[at]) for row in cells) for at in range(len(columns))]
    widths = [max(_width(row[at]) for row in [columns, *cells]) for at in range(len(columns))]
    lines = []
    for row in [list(columns), *cells]:
        parts = [
            " " * (width - _width(text)) + text if right else text + " " * (width - _width(text))
            for text, width, right in zip(row, widths, numbers, strict=True)
        ]
        lines.append("  " + "  ".join(parts).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns of a terminal: Chinese takes two each."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _is_number(text: str) -> bool:
    return (text[:1].isdigit() and "-" not in text) or text == "–"


def _bar(value: float, most: float) -> str:
    return "█" * round(BAR * value / most) if most else ""


def _spark(values: list[int]) -> str:
    """A line of small bars; many values are added up."""
    each = max(1, -(-len(values) // SPARK_POINTS))
    sums = [sum(values[at : at + each]) for at in range(0, len(values), each)]
    most = max(sums, default=0)
    return "".join(SPARKS[round(value / most * (len(SPARKS) - 1))] if most and value else " " for value in sums)


def cells_of_link(link: dict[str, Any]) -> tuple[object, ...]:
    """A row of the table of links."""
    times = (_shown_ms(link[key]) for key in ("p50", "p90", "p99", "max_ms"))
    return (link["hop"], link["link"], link["messages"], *times, shown_share(link["share_in_time"]))


def shown_share(share: float | None) -> str:
    """A share for people."""
    return "–" if share is None else f"{share * 100:.1f} %"


def _shown_ms(value: float | None) -> str:
    """A time for people."""
    if value is None:
        return "–"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
