"""Write ``deploy/grafana/pixiu.json`` and ``deploy/prometheus/alerts.yaml`` from the metrics that exist.

A panel and an alert are a line each, below. An expression that names a metric which nobody exports is an error, so a
renamed metric cannot leave an empty chart or an alarm that never rings.
"""

import json
import re
import sys
from typing import NamedTuple

from pixiu.node.metrics import DECLARED
from pixiu.runtime.metrics import Metrics
from tools.generated import ROOT, write_or_check

DASHBOARD = ROOT / "deploy" / "grafana" / "pixiu.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"

PROCESS_METRICS = frozenset({
    "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_cpu_seconds_total",
})  # fmt: skip
"""What Prometheus' own client tells of every process."""

NAME = re.compile(r"\b(?:pixiu|process)_[a-z_]+\b")
HERE = '{instance=~"$instance"}'


class Panel(NamedTuple):
    """One chart: lines by their names."""

    title: str
    unit: str
    lines: dict[str, str]
    about: str = ""


class Alert(NamedTuple):
    """One alarm, and what to do when it rings."""

    name: str
    when: str
    minutes: int
    severity: str
    summary: str
    what_to_do: str


def rate(metric: str, by: str = "") -> str:
    """How often, per second."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{HERE}[$__rate_interval]))"


def total(metric: str) -> str:
    """A gauge over all nodes."""
    return f"sum ({metric}{HERE})"


def quantile(metric: str, share: float) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{HERE}[$__rate_interval])))"


def hop(metric: str) -> dict[str, str]:
    """The middle and the edge of a latency."""
    return {"p50": quantile(metric, 0.5), "p99": quantile(metric, 0.99)}


PANELS: dict[str, tuple[Panel, ...]] = {
    "Messages": (
        Panel("Accepted, delivered, acked", "ops", {
            "accepted": rate("pixiu_proxy_accepted_total"),
            "pushed": rate("pixiu_relay_pushes_total"),
            "acked": rate("pixiu_relay_acked_total"),
        }, "Accepted counts actions that are in the log; a message goes to several inboxes."),
        Panel("Refused actions, by reason", "ops", {"{{code}}": rate("pixiu_proxy_refused_total", "code")}),
        Panel("Behind", "short", {
            "events before the slowest store": total("pixiu_carrier_behind"),
            "actions that wait to be applied": total("pixiu_proxy_unapplied"),
        }, "How far the stores are behind the log. It falls back to nothing between bursts."),
        Panel("Given up and sent again", "ops", {
            "dead letters": rate("pixiu_carrier_dead_letters_total"),
            "sent again": rate("pixiu_relay_resends_total"),
            "expired": rate("pixiu_relay_expired_total"),
            "task retries": rate("pixiu_carrier_task_retries_total"),
        }),
    ),
    "Latency, hop by hop": (
        Panel("Accept: checked to flushed", "s", hop("pixiu_proxy_accept_seconds")),
        Panel("Apply: flushed to stored", "s", hop("pixiu_carrier_apply_seconds")),
        Panel("Deliver: stored to handed over", "s", hop("pixiu_relay_deliver_seconds")),
        Panel("Ack: handed over to acked", "s", hop("pixiu_relay_ack_seconds"), "The clients' part of the way."),
    ),
    "Clients": (
        Panel("Connections and sessions", "short", {
            "connections": total("pixiu_gateway_connections"),
            "sessions": total("pixiu_relay_sessions"),
            "limit": total("pixiu_gateway_connections_max"),
        }),
        Panel("Logins and ends", "ops", {
            "logged in": rate("pixiu_relay_logins_total"),
            "turned away": rate("pixiu_gateway_refused_total"),
            "closed by the server": rate("pixiu_gateway_closed_total"),
        }),
        Panel("Slow clients", "ops", {
            "too slow for messages": rate("pixiu_gateway_lags_total"),
            "live events dropped": rate("pixiu_gateway_dropped_events_total"),
        }),
        Panel("HTTP answers, by status", "ops", {"{{status}}": rate("pixiu_http_answers_total", "status")}),
    ),
    "Rooms": (
        Panel("Said and heard", "ops", {
            "said": rate("pixiu_broker_messages_total"), "heard": rate("pixiu_broker_deliveries_total"),
        }),
        Panel("Rooms and who is in them", "short", {
            "rooms": total("pixiu_broker_rooms"), "sessions": total("pixiu_broker_sessions"),
        }),
    ),
    "The log": (
        Panel("Written", "ops", {
            "events": rate("pixiu_queue_events_total"), "flushed batches": rate("pixiu_queue_batches_total"),
        }),
        Panel("Flush", "s", hop("pixiu_queue_flush_seconds"), "An answer waits for this when flush is always."),
        Panel("Journal", "bytes", {"journal": total("pixiu_queue_journal_bytes")}),
        Panel("Leaders and members in sync", "short", {
            "leaders": total("pixiu_queue_is_leader"), "in sync": f"max (pixiu_queue_in_sync{HERE})",
        }),
    ),
    "Processes": (
        Panel("Memory", "bytes", {"{{instance}}": f"process_resident_memory_bytes{HERE}"}),
        Panel("Cores in use", "short", {"{{instance}}": rate("process_cpu_seconds_total", "instance")}),
    ),
}  # fmt: skip

ALERTS_WANTED = (
    Alert("PixiuDown", 'up{job="pixiu"} == 0', 1, "page", "{{ $labels.instance }} does not answer",
          "Look at its log; start it again. Nothing that was accepted is lost."),
    Alert("PixiuNobodyLeads", 'sum (pixiu_queue_is_leader{job="pixiu"}) < 1', 1, "page", "nobody accepts writes",
          "pixiu queue status on each node; promote the follower that is furthest."),
    Alert("PixiuJournalDamaged", "pixiu_queue_journal_damaged > 0", 0, "page", "a record of the journal is damaged",
          "/readyz names the place; pixiu queue verify says what can be done, while others may still have the record."),
    Alert("PixiuBodiesLost", "increase(pixiu_relay_bodies_lost_total[10m]) > 0", 0, "page",
          "an inbox names a message whose body is not there", "pixiu audit, then pixiu rebuild from the log."),
    Alert("PixiuStoreDown", "increase(pixiu_carrier_lane_failures_total[5m]) > 0", 5, "page",
          "a store does not take what the log holds", "/readyz names the store. Sends go on being accepted."),
    Alert("PixiuBehind", "pixiu_carrier_behind > 50000", 5, "ticket", "the stores are far behind the log",
          "Delivery is late. Look at CPU and at the disk; nothing is refused on that account."),
    Alert("PixiuDeadLetters", "increase(pixiu_carrier_dead_letters_total[1h]) > 0", 0, "ticket",
          "something could not be done", "pixiu dead-letters list, mend the cause, pixiu dead-letters replay."),
    Alert("PixiuSlowFlush",
          "histogram_quantile(0.99, sum by (le, instance) (rate(pixiu_queue_flush_seconds_bucket[5m]))) > 0.1", 10,
          "ticket", "flushes take more than 100 ms", "Every accepted message waits for one. Look at the disk."),
    Alert("PixiuSlowAccept",
          "histogram_quantile(0.99, sum by (le, instance) (rate(pixiu_proxy_accept_seconds_bucket[5m]))) > 0.5", 10,
          "ticket", "accepting takes more than half a second", "Compare with the flush time, then with CPU."),
    Alert("PixiuFull", "pixiu_gateway_connections > 0.9 * pixiu_gateway_connections_max", 5, "ticket",
          "nine tenths of the connections are taken", "Raise gateway.connections_max, or add gateway processes."),
    Alert("PixiuDescriptors", "process_open_fds > 0.9 * process_max_fds", 5, "ticket",
          "few file descriptors are left", "Raise LimitNOFILE of the unit."),
)  # fmt: skip


def exported() -> set[str]:
    """Every name that may stand in an expression."""
    names: set[str] = set(PROCESS_METRICS)
    for metric in (*Metrics().declared, *DECLARED):
        names.add(metric.name)
        if metric.kind == "histogram":
            names.add(f"{metric.name}_bucket")
    return names


def unknown(asked: list[str]) -> set[str]:
    """Metrics that are named and that nobody exports."""
    return {name for text in asked for name in NAME.findall(text)} - exported()


def expressions() -> list[str]:
    """Everything that is asked of Prometheus."""
    asked = [line for panels in PANELS.values() for panel in panels for line in panel.lines.values()]
    return [*asked, *(alert.when for alert in ALERTS_WANTED)]


def chart(number: int, panel: Panel, x: int, y: int) -> dict[str, object]:
    """A panel as Grafana has it."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number, "type": "timeseries", "title": panel.title, "description": panel.about, "datasource": source,
        "gridPos": {"x": x, "y": y, "w": 6, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + at), "expr": expr, "legendFormat": name, "datasource": source}
            for at, (name, expr) in enumerate(panel.lines.items())
        ],
    }  # fmt: skip


def dashboard() -> str:
    """The text of the dashboard."""
    panels: list[dict[str, object]] = []
    y = 0
    for title, row in PANELS.items():
        at = {"x": 0, "y": y, "w": 24, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": at})
        y += 1
        panels += [chart(len(panels) + 1 + n, panel, n * 6, y) for n, panel in enumerate(row)]
        y += 8
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    instance = {
        "name": "instance", "label": "Node", "type": "query", "includeAll": True, "multi": True, "refresh": 2,
        "datasource": {"type": "prometheus", "uid": "${source}"}, "query": "label_values(pixiu_build_info, instance)",
        "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip
    whole = {
        "uid": "pixiu", "title": "Pixiu", "tags": ["pixiu"], "schemaVersion": 39, "refresh": "10s", "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": [source, instance]}, "panels": panels,
    }  # fmt: skip
    return json.dumps(whole, indent=1) + "\n"


def alerts() -> str:
    """The text of the rules; JSON strings are YAML strings."""
    lines = ["# Made by tools/make_dashboards.py.", "groups:", "  - name: pixiu", "    rules:"]
    for alert in ALERTS_WANTED:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.when)}",
            f"        for: {alert.minutes}m",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.what_to_do)}",
        ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write both files, or with ``--check`` say which are out of date."""
    wrong = unknown(expressions())
    if wrong:
        print(f"nobody exports {', '.join(sorted(wrong))}")
        return 1
    return write_or_check({DASHBOARD: dashboard(), ALERTS: alerts()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
