"""Gateways of a simulated cluster, as clients of stored messages see them: the production links to the shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.links.leaders import Leaders
from pixiu.ports.authentication import Identity
from pixiu.queue.replication.control import SHARD
from pixiu.roles.gateway import Gateway, RoomSessions, ShardLinks, WatchedPresence
from pixiu.testing.cluster.shards import ROOT, ShardNode, settings_of
from pixiu.testing.cluster.streams import dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.leaders import KnownLeaders, Leader
    from pixiu.model.errors import PixiuError
    from pixiu.ports.transport import WatchedReceiver
    from pixiu.roles.gateway import NodeLink
    from pixiu.testing.cluster.process import Process
    from pixiu.testing.cluster.world import Cluster, GatewayNode

__all__ = ["GatewayDisk", "MessagingGateway"]


class GatewayDisk:
    """``LeaderMemory`` on the disk of a gateway's machine."""

    def __init__(self) -> None:
        self._known: KnownLeaders | None = None

    def recall(self) -> KnownLeaders | None:
        """What was kept last."""
        return self._known

    def keep(self, known: KnownLeaders) -> None:
        """Replace what is kept."""
        self._known = known


class MessagingGateway:
    """The stored messages of one gateway: its connections with clients, and its links to the shards."""

    def __init__(self, cluster: Cluster, node: GatewayNode, disk: GatewayDisk) -> None:
        self.node = node
        self.disk = disk
        self._cluster = cluster
        self._count = 0
        settings = settings_of().gateway
        self.leaders = Leaders(node.registry, node.scheduler, ROOT, SHARD, memory=disk)
        self.shards = ShardLinks(
            f"gateway-{node.boot:x}", self.leaders, self._dial, node.clock, node.scheduler, settings,
            alone=RoomSessions(node.boot, self._new_session_id),
        )  # fmt: skip
        self.gateway = Gateway(
            self.shards, _authenticate, node.clock, node.scheduler, settings, names=self.shards.names
        )
        WatchedPresence(self.gateway, self.shards.act)
        self.gateway.start()
        self.shards.start(self.gateway)
        self.shards.open()

    def _new_session_id(self) -> int:
        self._count += 1
        return 2**60 + self.node.boot + self._count

    def _dial(self, _shard: int, leader: Leader, link: NodeLink) -> Any:
        return dial(self._cluster, self.node, leader.address, leader.boot, link, _accept)


def _accept(target: Process) -> WatchedReceiver | None:
    return target.accept_gateway() if isinstance(target, ShardNode) else None


def _authenticate(token: str, done: Callable[[Identity | PixiuError], object]) -> None:
    done(Identity(token, "web", token))
