"""The gateway: holds clients' connections, and nothing else worth keeping.

::

    gateway = Gateway(messaging, authenticate, clock, scheduler, settings.gateway, names=directory)
    client = gateway.open(transport, codec="json", is_websocket=True, token=…, cursor=0, address="10.0.0.7")
    client.received(b'{"id":1,"action":"send","params":{…}}', is_text=True)

Nothing here knows sockets: ``runtime/app_server.py`` carries the bytes, a test may as well.
"""

from pixiu.roles.gateway.cluster import ClusterRooms
from pixiu.roles.gateway.connection import Connection
from pixiu.roles.gateway.gateway import Gateway
from pixiu.roles.gateway.link import NodeLink
from pixiu.roles.gateway.link_names import LinkNames
from pixiu.roles.gateway.live import LiveActions
from pixiu.roles.gateway.metrics import METRICS, GatewayCounters
from pixiu.roles.gateway.needs import Authenticate, LocalAction, Messaging
from pixiu.roles.gateway.rechecks import Rechecks
from pixiu.roles.gateway.room_sessions import RoomSessions
from pixiu.roles.gateway.rooms import RoomListening
from pixiu.roles.gateway.shards import ShardLinks
from pixiu.roles.gateway.watched_presence import WatchedPresence

__all__ = [
    "METRICS",
    "Authenticate",
    "ClusterRooms",
    "Connection",
    "Gateway",
    "GatewayCounters",
    "LinkNames",
    "LiveActions",
    "LocalAction",
    "Messaging",
    "NodeLink",
    "Rechecks",
    "RoomListening",
    "RoomSessions",
    "ShardLinks",
    "WatchedPresence",
]
