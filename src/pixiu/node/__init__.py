"""One process: which parts it hosts, on which backends. The only place that names a backend."""

from pixiu.node.embedded import Device, EmbeddedNode
from pixiu.node.serving import Node, Running, run_node
from pixiu.node.stopped import audit_stopped, open_store, rebuild, rebuild_stores, stopped_snapshot

__all__ = [
    "Device",
    "EmbeddedNode",
    "Node",
    "Running",
    "audit_stopped",
    "open_store",
    "rebuild",
    "rebuild_stores",
    "run_node",
    "stopped_snapshot",
]
