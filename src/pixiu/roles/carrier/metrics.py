"""What the carrier counts. Hot paths add to plain numbers; ``/metrics`` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import HOP_SECONDS, Histogram, Metric, Snapshot

if TYPE_CHECKING:
    from pixiu.roles.carrier.consume import Carrier

__all__ = ["METRICS", "CarrierCounters", "snapshot"]

METRICS = (
    Metric("pixiu_carrier_records_total", "counter", "Records of the log that were applied."),
    Metric("pixiu_carrier_behind", "gauge", "Events of the log that the slowest of the stores has before it."),
    Metric("pixiu_carrier_apply_seconds", "histogram", "From a flush of the log to its records being applied."),
    Metric("pixiu_carrier_entries_total", "counter", "Ids that entered inboxes."),
    Metric("pixiu_carrier_evicted_total", "counter", "Ids that were dropped from full inboxes."),
    Metric("pixiu_carrier_commits_total", "counter", "Times the stores were made durable."),
    Metric("pixiu_carrier_lane_failures_total", "counter", "Times a lane stopped because its store was down."),
    Metric("pixiu_carrier_undecodable_total", "counter", "Records that could not be read, or made no sense."),
    Metric("pixiu_carrier_tasks_total", "counter", "Tasks that were done."),
    Metric("pixiu_carrier_task_retries_total", "counter", "Tasks that failed and will be tried again."),
    Metric("pixiu_carrier_dead_letters_total", "counter", "What could not be done, and lies on pixiu.dlq: look at it."),
    Metric("pixiu_carrier_replayed_total", "counter", "Dead letters that were given back."),
    Metric("pixiu_carrier_notifications_total", "counter", "Notification tasks that were made."),
)


def snapshot(carrier: Carrier) -> Snapshot:
    """The present values, by metric name."""
    counted = {
        metric.name: getattr(carrier.counters, metric.name.removeprefix("pixiu_carrier_").removesuffix("_total"))
        for metric in METRICS
        if metric.name != "pixiu_carrier_behind"
    }
    return {**counted, "pixiu_carrier_behind": carrier.behind}


class CarrierCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.records = 0
        self.apply_seconds = Histogram(HOP_SECONDS)
        self.entries = 0
        self.evicted = 0
        self.commits = 0
        self.lane_failures = 0
        self.undecodable = 0
        self.tasks = 0
        self.task_retries = 0
        self.dead_letters = 0
        self.replayed = 0
        self.notifications = 0
