"""A report as one file: its styles and charts are in it, it runs no script and asks nobody for anything."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from pixiu.model.counted import counted
from pixiu.model.version import __version__
from pixiu.pipeline.report.charts import bars, heat_map, lines
from pixiu.pipeline.report.text import cells_of_link, finished, not_yet, shown_share, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["report_page"]

OLD_AUDIT_MS = 3_600_000
"""A balanced audit that is older is not shown in green."""

_STYLE = """
:root { color-scheme: light; --bg: #f4f5f3; --panel: #fff; --line: #dfe3df; --ink: #17211e; --ink-2: #52605b;
  --good: #17754a; --good-tint: #e0f3e8; --bad: #b3352c; --bad-tint: #fce9e6; --hot: #c2410c; --cold: #eceeeb;
  --chart-1: #0c7566; --chart-2: #b97a14; --chart-3: #4a62c4; --chart-4: #b3352c; }
@media (prefers-color-scheme: dark) { :root { color-scheme: dark; --bg: #0f1312; --panel: #161b1a; --line: #28312e;
  --ink: #e8edea; --ink-2: #aab6b1; --good: #57c98c; --good-tint: #12301f; --bad: #f0847a; --bad-tint: #3a1a17;
  --hot: #fb923c; --cold: #0b0f0e; --chart-1: #35b39d; --chart-2: #e3b45c; --chart-3: #8ea2f5; --chart-4: #f0847a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; display: grid; gap: 20px; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 12px; }
p { margin: 0; color: var(--ink-2); }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 14px; padding: 18px; min-width: 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0; }
.tiles div { background: var(--panel); border: 1px solid var(--line); border-radius: 14px; padding: 14px 16px; }
.tiles dt { color: var(--ink-2); font-size: .8rem; } .tiles dd { margin: 0; font-size: 1.5rem; font-weight: 650; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { text-align: left; padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--ink-2); font-weight: 550; } .r { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .8rem; color: var(--ink-2); }
.key i { display: inline-block; width: 9px; height: 9px; border-radius: 3px; margin-right: 6px; }
.c1 { background: var(--chart-1); } .c2 { background: var(--chart-2); } .c3 { background: var(--chart-3); }
.c4 { background: var(--chart-4); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--ink-2); font-size: 11px; }
.grid { stroke: var(--line); } .cold { fill: var(--cold); }
.verdict { font-weight: 600; } .good { background: var(--good-tint); color: var(--good); border-color: transparent; }
.bad { background: var(--bad-tint); color: var(--bad); border-color: transparent; }
"""


def report_page(found: dict[str, Any]) -> str:
    """The whole file."""
    made = datetime.fromtimestamp(found["at"] / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    lag = found["lag"]
    behind = "everything is in the tables" if not lag else not_yet(lag)
    parts = [
        f"<header><h1>Pixiu pipeline</h1><p>{made} · the log is at event {int(found['log']):,}, {behind}</p></header>",
        _tiles(found),
        _audit(found["audit"], found["at"]),
        _usage(found["usage"]),
        _latency(found["latency"]),
        _heat(found["heat"]),
        _tables(found["tables"]),
        f"<p>Made by Pixiu {escape(__version__)}: pixiu pipeline report --html. Times are UTC.</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Pixiu pipeline, {made}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _tiles(found: dict[str, Any]) -> str:
    usage, days = found["usage"], found["usage"]["days"]
    shown = [
        ("active on the last day", f"{usage['active_day']:,}"),
        ("active in 7 days", f"{usage['active_week']:,}"),
        ("active in 30 days", f"{usage['active_month']:,}"),
        ("messages on the last day", f"{days[-1]['messages']:,}" if days else "–"),
        ("behind the log", "–" if found["lag"] is None else f"{found['lag']:,}"),
    ]
    return (
        '<dl class="tiles">' + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown) + "</dl>"
    )


def _usage(usage: dict[str, Any]) -> str:
    days = usage["days"]
    if not days:
        return _section("Usage", "<p>Nobody has done anything yet.</p>")
    people = _table(
        ("day", "active", "new", "returning", "messages", "acked", "devices"),
        [tuple(day[name] for name in ("day", "active", "new", "returning", "messages", "acked", "devices"))
         for day in reversed(days[-14:])],
    )  # fmt: skip
    shown = {
        "Active people by day": [(day["day"][5:], day["active"]) for day in days],
        "Messages by day": [(day["day"][5:], day["messages"]) for day in days],
        "Messages by kind": [(row["kind"], row["messages"]) for row in usage["kinds"]],
        "People by platform": [(row["platform"] or "–", row["users"]) for row in usage["platforms"]],
        "Active people by month": [(row["month"], row["active"]) for row in usage["months"]],
    }
    cards = [_section(title, bars(title, columns)) for title, columns in shown.items() if columns]
    again = [(str(row["after_days"]), row["share"] * 100) for row in usage["retention"]]
    cards.append(_section("New people who come back, by days since", bars("Retention", again, show="{:.0f} %".format)))
    return f'<div class="two">{"".join(cards)}</div>{_section("Days", people)}'


def _latency(latency: dict[str, Any]) -> str:
    if not latency["links"]:
        return _section("Latency", "<p>Nothing was measured yet.</p>")
    times = latency["minutes"]
    within = latency["within_ms"]
    by_hop = [(each["hop"], each["p99"]) for each in latency["series"]]
    p99 = lines("99th percentile by hop", times, by_hop, show="{:,.0f} ms".format)
    share = lines(
        f"Share within {within} ms", times,
        [(each["hop"], [None if value is None else value * 100 for value in each["share_in_time"]])
         for each in latency["series"]],
        show="{:.0f} %".format,
    )  # fmt: skip
    rows = [cells_of_link(each) for each in latency["links"]]
    table = _table(("hop", "link", "samples", "p50", "p90", "p99", "max", f"≤ {within} ms"), rows)
    charts = _section("Latency, 99th percentile", p99) + _section(f"Share within {within} ms", share)
    return f'<div class="two">{charts}</div>' + _section("Links", table)


def _heat(heat: dict[str, Any]) -> str:
    if not heat["conversations"]:
        return _section("Heat", "<p>No messages yet.</p>")
    over = lines("Messages over time", heat["minutes"], [("messages", heat["messages"])])
    over_time = heat_map(
        "Conversations over time", heat["minutes"], [(row["name"], row["messages"]) for row in heat["map"]]
    )
    parts = bars("Messages by partition", [(str(row["bucket"]), row["messages"]) for row in heat["buckets"]])
    table = _table(
        ("conversation", "kind", "messages", "share", "busiest minute"),
        [
            (each["name"], each["kind"], each["messages"], shown_share(each["share"]), each["peak_per_minute"])
            for each in heat["conversations"]
        ],
    )
    note = f"<p>The busiest partition has {heat['skew']} x the mean.</p>"
    return (
        f'<div class="two">{_section("Messages over time", over)}{_section("Partitions", parts + note)}</div>'
        + _section("Conversations over time", over_time)
        + _section("Busiest conversations", table)
    )


def _audit(audit: dict[str, Any] | None, now_ms: int) -> str:
    if audit is None:
        return _section("Audit", "<p>No audit yet; make one with: pixiu pipeline run audit --once</p>")
    is_old = audit["at"] is None or now_ms - audit["at"] > OLD_AUDIT_MS
    tone = {True: "" if is_old else "good", False: "bad", None: ""}[audit["balanced"]]
    text = f'<div class="verdict">{escape(verdict(audit))}</div>'
    inboxes = counted(audit["inboxes"], "inbox", "inboxes", is_grouped=True)
    text += f"<p>{finished(audit, now_ms)}, through event {int(audit['through']):,}; {inboxes}, "
    text += f"{audit['resent'] or 0:,} sent again, {audit['reordered'] or 0:,} out of order, "
    text += f"{audit['late'] or 0:,} late</p>"
    if audit["findings"]:
        names = ("finding", "message_id", "user_name", "platform", "reason")
        text += _table(names, [tuple(row[name] for name in names) for row in audit["findings"]])
    return f'<section class="{tone}"><h2>Audit</h2>{text}</section>'


def _tables(tables: list[dict[str, Any]]) -> str:
    rows = [
        (each["table"], each["through"], each["lag"], each["rows"], each["files"], f"{each['bytes'] / 2**20:,.2f} MB")
        for each in tables
    ]
    return _section("Tables", _table(("table", "through event", "behind", "rows", "files", "size"), rows))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns of numbers and measures stand at the right."""
    cells = [[(_shown(cell), isinstance(cell, int) or _is_measure(_shown(cell))) for cell in row] for row in rows]
    rights = [any(row[at][1] for row in cells) for at in range(len(columns))]
    head = "".join(_cell("th", name, is_right=right) for name, right in zip(columns, rights, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', text, is_right=right) for (text, _), right in zip(row, rights, strict=True))}</tr>"
        for row in cells
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, text: str, *, is_right: bool) -> str:
    return f"<{tag}{' class=r' if is_right else ''}>{escape(text)}</{tag}>"


def _shown(cell: object) -> str:
    return "–" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def _is_measure(text: str) -> bool:
    return text.endswith((" ms", " %", " MB"))
