"""What a process counts that serves a log in Kafka: Kafka's part, and of the queue's what its port has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.kafka.metrics import METRICS as KAFKA
from pixiu.backends.kafka.metrics import snapshot as kafka_snapshot
from pixiu.model.metric import Histogram
from pixiu.queue.metrics import METRICS as QUEUE

if TYPE_CHECKING:
    from pixiu.backends.kafka.served.served import ServedLog

__all__ = ["METRICS", "snapshot"]

_OF_THE_PORT = frozenset({
    "pixiu_queue_events_total", "pixiu_queue_refused_total", "pixiu_queue_connections",
    "pixiu_queue_connections_refused_total", "pixiu_queue_followers", "pixiu_queue_commit_event_id",
    "pixiu_queue_epoch", "pixiu_queue_is_leader",
})  # fmt: skip

METRICS = (*(metric for metric in QUEUE if metric.name in _OF_THE_PORT), *KAFKA)


def snapshot(served: ServedLog, connections: int) -> dict[str, int | float | Histogram]:
    """The present values, by metric name. Of a log that others own, Kafka's part is nothing."""
    counters, owned = served.counters, served.log
    if owned is not None:
        owned.followed(served.followed)
    nothing = {metric.name: Histogram() if metric.kind == "histogram" else 0 for metric in KAFKA}
    return {
        "pixiu_queue_events_total": counters.events,
        "pixiu_queue_refused_total": counters.refused,
        "pixiu_queue_connections": connections,
        "pixiu_queue_connections_refused_total": counters.connections_refused,
        "pixiu_queue_followers": counters.followers,
        "pixiu_queue_commit_event_id": served.commit_event_id,
        "pixiu_queue_epoch": served.epoch,
        "pixiu_queue_is_leader": int(served.is_leader),
        **(nothing if owned is None else kafka_snapshot(owned)),
    }
