"""What went on between two readings of ``/v1/admin/stats``: rates, and latencies of just that time."""

from __future__ import annotations

from typing import Any

from pixiu.model.metric import quantile

__all__ = ["HOPS", "RATES", "Reading", "sample_of"]

Reading = dict[str, Any]

HOPS = ("accept", "apply", "deliver", "ack")
RATES = (
    "accepted", "delivered", "acked", "resent", "room_messages", "room_deliveries", "logins", "refused",
    "written_bytes", "http_answers", "queue_events",
)  # fmt: skip
_KEPT = (
    "version", "at", "uptime_ms", "connections", "connections_max", "sessions", "rooms", "room_sessions", "hot_rooms",
    "lanes", "topics", "stores", "problems",
)  # fmt: skip


def sample_of(before: Reading | None, now: Reading) -> Reading:
    """One sample, ready to be printed. A server that was started anew begins at nothing, as does the first reading."""
    if before is not None and before["started_at"] != now["started_at"]:
        before = None
    passed_ms = now["uptime_ms"] - before["uptime_ms"] if before is not None else now["uptime_ms"]
    seconds = max(passed_ms, 1) / 1000
    rates = {name: round(_grown(before, now, name) / seconds, 3) for name in RATES}
    cpu_before = before["process"]["cpu_seconds"] if before is not None else 0.0
    sample: Reading = {name: now[name] for name in _KEPT}
    sample["seconds"] = round(seconds, 3)
    sample["rates"] = rates
    sample["hops"] = {name: _latency(before, now, name) for name in HOPS}
    sample["process"] = now["process"]
    sample["cpu"] = round((now["process"]["cpu_seconds"] - cpu_before) / seconds, 3)
    sample["journal_bytes"] = now["queue"]["journal_bytes"]
    return sample


def _grown(before: Reading | None, now: Reading, name: str) -> int:
    total = int(now["counters"][name])
    return total - int(before["counters"][name]) if before is not None else total


def _latency(before: Reading | None, now: Reading, hop: str) -> Reading:
    """Milliseconds; none where nothing passed this hop."""
    counts = now["hops"][hop]["counts"]
    if before is not None:
        counts = [count - old for count, old in zip(counts, before["hops"][hop]["counts"], strict=True)]
    bounds = now["hops"]["bounds"]
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    found = {name: quantile(bounds, counts, share) for name, share in shares.items()}
    shown: Reading = {name: None if value is None else round(value * 1000, 3) for name, value in found.items()}
    shown["count"] = sum(counts)
    return shown
