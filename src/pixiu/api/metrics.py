"""What the HTTP door counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Metric

if TYPE_CHECKING:
    from pixiu.model.metric import Snapshot

__all__ = ["METRICS", "HttpCounters"]

METRICS = (
    Metric("pixiu_http_answers_total", "counter", "Answers to HTTP requests, by status.", ("status",)),
    Metric("pixiu_http_timeouts_total", "counter", "Requests that were given up because they took too long."),
    Metric("pixiu_http_in_flight", "gauge", "Requests that are being answered."),
)


class HttpCounters:
    """Plain numbers."""

    def __init__(self) -> None:
        self.by_status: dict[int, int] = {}
        self.timeouts = 0
        self.in_flight = 0

    def answered(self, status: int) -> None:
        """One more answer."""
        self.by_status[status] = self.by_status.get(status, 0) + 1

    def snapshot(self) -> Snapshot:
        """The present values, by metric name."""
        return {
            "pixiu_http_answers_total": {(str(status),): count for status, count in sorted(self.by_status.items())},
            "pixiu_http_timeouts_total": self.timeouts,
            "pixiu_http_in_flight": self.in_flight,
        }
