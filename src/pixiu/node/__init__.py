"""One process: which parts it hosts, on which backends. The only place that names a backend."""

from pixiu.node.serving import Node, Running, run_node
from pixiu.node.stopped import open_store, rebuild, stopped_snapshot

__all__ = ["Node", "Running", "open_store", "rebuild", "run_node", "stopped_snapshot"]
