"""What the broker counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Metric, Snapshot

if TYPE_CHECKING:
    from pixiu.roles.broker.broker import Broker

__all__ = ["METRICS", "snapshot"]

METRICS = (
    Metric("pixiu_broker_rooms", "gauge", "Rooms with someone in them."),
    Metric("pixiu_broker_sessions", "gauge", "Sessions that are in at least one room."),
    Metric("pixiu_broker_messages_total", "counter", "Messages said in rooms, by class.", ("class",)),
    Metric("pixiu_broker_deliveries_total", "counter", "Messages times the sessions that were there to hear them."),
    Metric("pixiu_broker_frames_total", "counter", "Frames sent to gateways, repeats not counted."),
    Metric("pixiu_broker_resends_total", "counter", "Frames sent again because no ack came."),
    Metric("pixiu_broker_dropped_total", "counter", "Live messages that gave way to newer ones, per gateway."),
    Metric("pixiu_broker_lost_total", "counter", "Reliable messages that a gateway never acked, given up."),
    Metric("pixiu_broker_unsettled", "gauge", "Reliable messages that some gateway has not acked yet."),
)


def snapshot(broker: Broker) -> Snapshot:
    """The present values, by metric name."""
    counters, rooms = broker.counters, broker.rooms
    return {
        "pixiu_broker_rooms": len(rooms),
        "pixiu_broker_sessions": rooms.sessions,
        "pixiu_broker_messages_total": {(name,): count for name, count in counters.messages.items()},
        "pixiu_broker_deliveries_total": counters.deliveries,
        "pixiu_broker_frames_total": counters.frames,
        "pixiu_broker_resends_total": counters.resends,
        "pixiu_broker_dropped_total": rooms.dropped,
        "pixiu_broker_lost_total": counters.lost,
        "pixiu_broker_unsettled": rooms.unsettled,
    }
