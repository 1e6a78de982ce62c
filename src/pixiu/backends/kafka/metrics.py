"""What the log on Kafka counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Histogram, Metric

if TYPE_CHECKING:
    from pixiu.backends.kafka.log import KafkaLog

__all__ = ["METRICS", "KafkaCounters", "snapshot"]

METRICS = (
    Metric("pixiu_kafka_committed_event_id", "gauge", "The newest event id that Kafka has acknowledged."),
    Metric("pixiu_kafka_in_flight", "gauge", "Entries of the log that wait for Kafka."),
    Metric("pixiu_kafka_pending_bytes", "gauge", "Their payloads."),
    Metric("pixiu_kafka_lag_events", "gauge", "Events that the log's follower has not read yet."),
    Metric("pixiu_kafka_entries_total", "counter", "Entries written to the log."),
    Metric("pixiu_kafka_batches_total", "counter", "Transactions: one batch each."),
    Metric("pixiu_kafka_commit_seconds", "histogram", "How long a batch took, from giving it to Kafka to its answer."),
    Metric("pixiu_kafka_dropped_total", "counter", "Entries that were refused because Kafka did not take them."),
    Metric("pixiu_kafka_read_back_total", "counter", "Records that were read from Kafka instead of from memory."),
    Metric("pixiu_kafka_scheduled", "gauge", "Records that wait for their time."),
    Metric("pixiu_kafka_is_owner", "gauge", "1 if this node owns the log."),
)


class KafkaCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.entries = 0
        self.batches = 0
        self.commit_seconds = Histogram()
        self.dropped = 0
        self.read_back = 0


def snapshot(log: KafkaLog) -> dict[str, int | float | Histogram]:
    """The present values, by metric name."""
    counters = log.counters
    return {
        "pixiu_kafka_committed_event_id": log.committed,
        "pixiu_kafka_in_flight": log.sending.pending_count,
        "pixiu_kafka_pending_bytes": log.sending.pending_bytes,
        "pixiu_kafka_lag_events": log.lag,
        "pixiu_kafka_entries_total": counters.entries,
        "pixiu_kafka_batches_total": counters.batches,
        "pixiu_kafka_commit_seconds": counters.commit_seconds,
        "pixiu_kafka_dropped_total": counters.dropped,
        "pixiu_kafka_read_back_total": counters.read_back,
        "pixiu_kafka_scheduled": log.waiting,
        "pixiu_kafka_is_owner": int(log.is_owner),
    }
