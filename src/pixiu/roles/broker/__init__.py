"""The broker: who listens in which room, and one frame per gateway for what is said there."""

from pixiu.roles.broker.broker import Broker, RoomRow
from pixiu.roles.broker.metrics import METRICS, snapshot
from pixiu.roles.broker.verbs import ROOM_VERBS, RoomVerb

__all__ = ["METRICS", "ROOM_VERBS", "Broker", "RoomRow", "RoomVerb", "snapshot"]
