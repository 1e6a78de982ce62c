"""What every process of a cluster has: an end of the links, a view of the others, and a place in the registry.

Callbacks on ports: a simulated world runs exactly this. Roles use it, ``pixiu.node`` gives it sockets and ZooKeeper.
"""

from pixiu.links.directory import Directory, DirectoryRules, RoleView
from pixiu.links.endpoint import Endpoint
from pixiu.links.local import LocalNetwork
from pixiu.links.member import Member
from pixiu.links.publishing import Publishing, PublishingRules
from pixiu.links.wire import WireWay

__all__ = [
    "Directory",
    "DirectoryRules",
    "Endpoint",
    "LocalNetwork",
    "Member",
    "Publishing",
    "PublishingRules",
    "RoleView",
    "WireWay",
]
