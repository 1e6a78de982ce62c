"""The live rooms of groups, for gateways in other processes, and what large groups store, for those who listen.

Messages of a large group are pushed to the members who listen in the group's room. Other members read them by sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import encode

from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.model.ids import NODE_ID_MAX
from pixiu.model.message import message_view
from pixiu.roles.broker.broker import Broker

if TYPE_CHECKING:
    from pixiu.config.rooms import RoomSettings
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.node.messaging import Messaging
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.carrier.apply_rosters import Removed
    from pixiu.roles.carrier.apply_timelines import Said

__all__ = ["GroupRooms", "tell_large_groups"]


class GroupRooms:
    """A broker for the rooms of groups, behind a hub."""

    def __init__(
        self, hub: GatewayHub, messaging: Messaging, clock: Clock, scheduler: Scheduler, settings: RoomSettings,
        shard: int,
    ) -> None:  # fmt: skip
        """``shard`` keeps the ids of room messages apart from those of other shards."""
        names = messaging.proxy.context.directory
        self.broker = hub.broker = Broker(
            MemoryRoutes(), clock, scheduler, settings, hub.push_frames,
            groups=messaging.stores.groups, user_name=names.user_name, gateway_of=hub.gateway_of,
            report=messaging.tracing.room, node_id=NODE_ID_MAX - shard, lists_sessions=True,
        )  # fmt: skip
        tell_large_groups(messaging, self.broker)

    def stop(self) -> None:
        """Send nothing more."""
        self.broker.stop()


def tell_large_groups(messaging: Messaging, broker: Broker) -> None:
    """Push what large groups store to the members in their rooms, and take out of a room who leaves its group."""
    names = messaging.proxy.context.directory

    def said(messages: list[Said]) -> None:
        for each in messages:
            view = message_view(each.body, names)
            view["prev"] = str(each.previous)
            broker.group_said(each.group, each.message_id, encode({"push": "message", "message": view}))

    def removed(members: list[Removed]) -> None:
        for each in members:
            broker.removed(each.group, each.user)

    messaging.when_said.append(said)
    messaging.when_removed.append(removed)
