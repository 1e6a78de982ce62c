"""What a process counts of its links, as it is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Metric

if TYPE_CHECKING:
    from pixiu.links.directory import Directory
    from pixiu.links.endpoint import Endpoint
    from pixiu.links.wire import WireWay
    from pixiu.model.metric import Snapshot

__all__ = ["METRICS", "snapshot"]

METRICS = (
    Metric("pixiu_links_messages_total", "counter", "Messages between processes.", ("direction",)),
    Metric("pixiu_links_datagrams_total", "counter", "Datagrams, those that were refused not counted.", ("direction",)),
    Metric("pixiu_links_refused_total", "counter", "Datagrams that were not taken, by reason.", ("reason",)),
    Metric("pixiu_links_dropped_total", "counter", "Messages dropped at a bound, shed, or for nobody known."),
    Metric("pixiu_links_waiting", "gauge", "Messages that have come and are not handled yet."),
    Metric("pixiu_links_peers", "gauge", "Processes that are known, by role and standing.", ("role", "standing")),
    Metric("pixiu_links_rtt_seconds", "gauge", "Round trip of heartbeats, smoothed.", ("peer",)),
    Metric("pixiu_links_success", "gauge", "Share of heartbeats that came back in time, smoothed.", ("peer",)),
)


def snapshot(endpoint: Endpoint, way: WireWay, directory: Directory) -> Snapshot:
    """The present values, by metric name."""
    counters, rows = endpoint.counters, directory.rows()
    peers: dict[tuple[str, ...], float] = {}
    for row in rows:
        key = (str(row["role"]), str(row["standing"]))
        peers[key] = peers.get(key, 0) + 1
    return {
        "pixiu_links_messages_total": {("in",): counters.received, ("out",): counters.sent},
        "pixiu_links_datagrams_total": {("in",): way.datagrams_in, ("out",): way.datagrams_out},
        "pixiu_links_refused_total": {(reason,): count for reason, count in way.refused.items()},
        "pixiu_links_dropped_total": counters.dropped + counters.unknown_peer + endpoint.shed + way.lost,
        "pixiu_links_waiting": endpoint.waiting,
        "pixiu_links_peers": peers,
        "pixiu_links_rtt_seconds": {(str(row["name"]),): float(str(row["rtt_ms"])) / 1000 for row in rows},
        "pixiu_links_success": {(str(row["name"]),): float(str(row["success"])) for row in rows},
    }
