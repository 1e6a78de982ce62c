"""What the queue counts. Hot paths add to plain numbers; ``/metrics`` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Histogram, Metric

if TYPE_CHECKING:
    from pixiu.queue.engine import Engine

METRICS = (
    Metric("pixiu_queue_requests_total", "counter", "Requests written to the journal."),
    Metric("pixiu_queue_events_total", "counter", "Event ids given: messages and changes."),
    Metric("pixiu_queue_written_bytes_total", "counter", "Bytes appended to the journal."),
    Metric("pixiu_queue_batches_total", "counter", "Group commits: one write each."),
    Metric("pixiu_queue_flush_seconds", "histogram", "How long the journal's flushes took."),
    Metric("pixiu_queue_refused_total", "counter", "Requests answered with an error."),
    Metric("pixiu_queue_pushed_messages_total", "counter", "Messages pushed to subscribers, repeats included."),
    Metric("pixiu_queue_pushed_batches_total", "counter", "Pushes to subscribers."),
    Metric("pixiu_queue_ack_timeouts_total", "counter", "Subscribers cut because they did not ack in time."),
    Metric("pixiu_queue_delays_fired_total", "counter", "Delayed publishes that came."),
    Metric("pixiu_queue_delay_lateness_seconds", "histogram", "How long after their due time they came."),
    Metric("pixiu_queue_topics_expired_total", "counter", "Topics collected at the end of their lifetime."),
    Metric("pixiu_queue_segments_dropped_total", "counter", "Segment files removed by retention."),
    Metric("pixiu_queue_checkpoints_total", "counter", "Times the derived state was made durable."),
    Metric("pixiu_queue_connections", "gauge", "Open connections."),
    Metric("pixiu_queue_connections_refused_total", "counter", "Connections turned away at the limit."),
    Metric("pixiu_queue_subscribers", "gauge", "Live subscriptions."),
    Metric("pixiu_queue_followers", "gauge", "Replica streams being served."),
    Metric("pixiu_queue_last_event_id", "gauge", "The newest event id in the journal."),
    Metric("pixiu_queue_flushed_event_id", "gauge", "The newest event id that is known to be on disk."),
    Metric("pixiu_queue_commit_event_id", "gauge", "The newest event id that subscribers may see."),
    Metric("pixiu_queue_journal_bytes", "gauge", "Size of the journal's segments."),
    Metric("pixiu_queue_journal_checked_bytes_total", "counter", "Bytes of the journal read through since the start."),
    Metric("pixiu_queue_journal_damaged", "gauge", "1 if that has found a record that is damaged."),
    Metric(
        "pixiu_queue_journal_mended_total", "counter", "Damaged records that were written again with a leader's copy."
    ),
    Metric("pixiu_queue_pending_bytes", "gauge", "Requests that wait for the writer."),
    Metric("pixiu_queue_epoch", "gauge", "The epoch of this node's log."),
    Metric("pixiu_queue_is_leader", "gauge", "1 if this node accepts writes."),
    Metric("pixiu_queue_in_sync", "gauge", "Members of the in-sync set, this node included."),
)


class QueueCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.requests = 0
        self.events = 0
        self.bytes_written = 0
        self.batches = 0
        self.flush_seconds = Histogram()
        self.refused = 0
        self.pushed_messages = 0
        self.pushed_batches = 0
        self.ack_timeouts = 0
        self.delays_fired = 0
        self.delay_lateness_seconds = Histogram()
        self.topics_expired = 0
        self.segments_dropped = 0
        self.checkpoints = 0
        self.connections_refused = 0
        self.subscribers = 0
        self.followers = 0
        self.journal_checked_bytes = 0
        self.journal_damaged = 0
        self.journal_mended = 0


def snapshot(engine: Engine, connections: int, in_sync: int) -> dict[str, int | float | Histogram]:
    """The present values, by metric name."""
    counters, journal = engine.counters, engine.journal
    return {
        "pixiu_queue_requests_total": counters.requests,
        "pixiu_queue_events_total": counters.events,
        "pixiu_queue_written_bytes_total": counters.bytes_written,
        "pixiu_queue_batches_total": counters.batches,
        "pixiu_queue_flush_seconds": counters.flush_seconds,
        "pixiu_queue_refused_total": counters.refused,
        "pixiu_queue_pushed_messages_total": counters.pushed_messages,
        "pixiu_queue_pushed_batches_total": counters.pushed_batches,
        "pixiu_queue_ack_timeouts_total": counters.ack_timeouts,
        "pixiu_queue_delays_fired_total": counters.delays_fired,
        "pixiu_queue_delay_lateness_seconds": counters.delay_lateness_seconds,
        "pixiu_queue_topics_expired_total": counters.topics_expired,
        "pixiu_queue_segments_dropped_total": counters.segments_dropped,
        "pixiu_queue_checkpoints_total": counters.checkpoints,
        "pixiu_queue_connections": connections,
        "pixiu_queue_connections_refused_total": counters.connections_refused,
        "pixiu_queue_subscribers": counters.subscribers,
        "pixiu_queue_followers": counters.followers,
        "pixiu_queue_last_event_id": journal.last_event_id,
        "pixiu_queue_flushed_event_id": journal.flushed_through,
        "pixiu_queue_commit_event_id": engine.commit_event_id,
        "pixiu_queue_journal_bytes": journal.size,
        "pixiu_queue_journal_checked_bytes_total": counters.journal_checked_bytes,
        "pixiu_queue_journal_damaged": counters.journal_damaged,
        "pixiu_queue_journal_mended_total": counters.journal_mended,
        "pixiu_queue_pending_bytes": engine.writer.pending_bytes,
        "pixiu_queue_epoch": engine.state.epoch,
        "pixiu_queue_is_leader": int(engine.is_leader),
        "pixiu_queue_in_sync": in_sync,
    }
