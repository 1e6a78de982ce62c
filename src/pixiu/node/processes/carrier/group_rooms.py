"""The live rooms of groups at a carrier: who of its users listens, and what large groups say to them.

Every carrier knows all groups, and hears all that is stored in them from the log. So each tells its own users, by their
sessions: a gateway has users of others in the same room, who hear it from theirs. What is said live and not stored is
passed on by the gateway of who says it (``roles.gateway.group_talk``).
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

__all__ = ["GroupRooms"]


class GroupRooms:
    """A broker for the rooms of groups, behind a hub."""

    def __init__(
        self, hub: GatewayHub, messaging: Messaging, clock: Clock, scheduler: Scheduler, settings: RoomSettings,
        partition: int,
    ) -> None:  # fmt: skip
        self._names = messaging.proxy.context.directory
        self.broker = hub.broker = Broker(
            MemoryRoutes(), clock, scheduler, settings, hub.push_frames,
            groups=messaging.stores.groups, user_name=self._names.user_name, gateway_of=hub.gateway_of,
            report=messaging.tracing.room, node_id=NODE_ID_MAX - partition, lists_sessions=True,
        )  # fmt: skip
        messaging.when_said = self._said
        messaging.when_removed = self._removed

    def stop(self) -> None:
        """No more."""
        self.broker.stop()

    def _said(self, said: list[Said]) -> None:
        for each in said:
            view = message_view(each.body, self._names)
            view["prev"] = str(each.previous)
            self.broker.group_said(each.group, each.message_id, encode({"push": "message", "message": view}))

    def _removed(self, removed: list[Removed]) -> None:
        for each in removed:
            self.broker.removed(each.group, each.user)
