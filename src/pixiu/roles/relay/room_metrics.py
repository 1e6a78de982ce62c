"""What a relay of rooms counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Metric

if TYPE_CHECKING:
    from pixiu.model.metric import Snapshot
    from pixiu.roles.relay.rooms import ClusterRelay

__all__ = ["METRICS", "snapshot"]

METRICS = (
    Metric("pixiu_room_relay_sessions", "gauge", "Sessions whose gateway is known."),
    Metric("pixiu_room_relay_messages_total", "counter", "Messages of rooms from brokers."),
    Metric("pixiu_room_relay_frames_total", "counter", "Frames sent to gateways, repeats not counted."),
    Metric("pixiu_room_relay_unknown_total", "counter", "Sessions that something was for and nobody knows."),
    Metric("pixiu_room_relay_lost_total", "counter", "Reliable messages that a gateway never acked, given up."),
    Metric("pixiu_room_relay_waiting", "gauge", "Reliable messages that some gateway has not acked yet."),
)


def snapshot(relay: ClusterRelay) -> Snapshot:
    """The present values, by metric name."""
    return {
        "pixiu_room_relay_sessions": len(relay.table),
        "pixiu_room_relay_messages_total": relay.relay.fans,
        "pixiu_room_relay_frames_total": relay.frames,
        "pixiu_room_relay_unknown_total": relay.relay.unknown,
        "pixiu_room_relay_lost_total": relay.lost,
        "pixiu_room_relay_waiting": relay.relay.waiting,
    }
