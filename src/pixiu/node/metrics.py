"""Everything that a node exports at ``/metrics``: what each role declares, and where its numbers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.api.metrics import METRICS as API
from pixiu.backends.kafka.metrics import METRICS as KAFKA
from pixiu.backends.kafka.metrics import snapshot as kafka_snapshot
from pixiu.model.metric import Metric
from pixiu.queue.log import EngineLog
from pixiu.queue.metrics import METRICS as QUEUE
from pixiu.roles.broker.metrics import METRICS as BROKER
from pixiu.roles.broker.metrics import snapshot as broker_snapshot
from pixiu.roles.carrier.metrics import METRICS as CARRIER
from pixiu.roles.carrier.metrics import snapshot as carrier_snapshot
from pixiu.roles.gateway.metrics import METRICS as GATEWAY
from pixiu.roles.horn.metrics import METRICS as HORN
from pixiu.roles.proxy.metrics import METRICS as PROXY
from pixiu.roles.proxy.metrics import snapshot as proxy_snapshot
from pixiu.roles.relay.metrics import METRICS as RELAY

if TYPE_CHECKING:
    from pixiu.node.door import Door
    from pixiu.node.logs import NodeLog
    from pixiu.node.messaging import Messaging
    from pixiu.node.surfaces import Surfaces
    from pixiu.runtime.metrics import Metrics

__all__ = ["DECLARED", "DECLARED_BY_ENGINES", "add_door", "add_log", "add_messaging", "add_roles"]

DECLARED = (*QUEUE, *PROXY, *CARRIER, *RELAY, *HORN, *GATEWAY, *BROKER, *API)
"""Of all roles, in the order of a message's way."""


DOOR = (
    Metric("pixiu_door_held", "gauge", "Entries of the stream of actions that were read, and not answered yet."),
    Metric("pixiu_door_done_total", "counter", "Entries whose action was done."),
    Metric("pixiu_door_refused_total", "counter", "Entries whose action was refused."),
    Metric("pixiu_door_malformed_total", "counter", "Entries that could not be read, and were put aside."),
    Metric("pixiu_door_claimed_total", "counter", "Entries that were taken over from other consumers."),
)

DECLARED_BY_ENGINES = (*KAFKA, *DOOR)
"""Exported where that engine is used."""


def add_door(metrics: Metrics, door: Door | None) -> None:
    """Export what the door counts, if there is one."""
    if door is not None:
        metrics.add(
            DOOR,
            lambda: {
                "pixiu_door_held": door.held,
                "pixiu_door_done_total": door.done,
                "pixiu_door_refused_total": door.refused,
                "pixiu_door_malformed_total": door.malformed,
                "pixiu_door_claimed_total": door.claimed,
            },
        )


def add_log(metrics: Metrics, log: NodeLog) -> None:
    """Export what a log that is not the queue's counts."""
    if not isinstance(log, EngineLog):
        from pixiu.backends.kafka.log import KafkaLog

        assert isinstance(log, KafkaLog)
        metrics.add(KAFKA, lambda: kafka_snapshot(log))


def add_messaging(metrics: Metrics, messaging: Messaging) -> None:
    """Export what the roles of messaging count."""
    metrics.add(PROXY, lambda: proxy_snapshot(messaging.proxy))
    metrics.add(CARRIER, lambda: carrier_snapshot(messaging.carrier))
    metrics.add(RELAY, messaging.relay.counters.snapshot)
    metrics.add(HORN, messaging.horn.counters.snapshot)


def add_roles(metrics: Metrics, messaging: Messaging, surfaces: Surfaces) -> None:
    """Export what the roles of messaging and the surfaces of a node count."""
    add_messaging(metrics, messaging)
    metrics.add(GATEWAY, surfaces.gateway_counters.snapshot)
    metrics.add(BROKER, lambda: broker_snapshot(surfaces.broker))
    metrics.add(API, surfaces.api.counters.snapshot)
