"""One process: which parts it hosts, on which backends. The only place that names a backend.

What a command uses is loaded when it is named: a queue alone carries nothing of messaging.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pixiu.node.device import Device
    from pixiu.node.embedded import EmbeddedNode
    from pixiu.node.erasure import erase_stopped, redact_stopped
    from pixiu.node.explain import explain_stopped
    from pixiu.node.serving import Node, Running, run_node
    from pixiu.node.stopped import open_store, rebuild, stopped_snapshot
    from pixiu.node.stores import audit_stopped, cut_stopped, rebuild_stores

__all__ = [
    "Device",
    "EmbeddedNode",
    "Node",
    "Running",
    "audit_stopped",
    "cut_stopped",
    "erase_stopped",
    "explain_stopped",
    "open_store",
    "rebuild",
    "rebuild_stores",
    "redact_stopped",
    "run_node",
    "stopped_snapshot",
]

_HOMES = {
    "Device": "device",
    "EmbeddedNode": "embedded",
    "Node": "serving",
    "Running": "serving",
    "audit_stopped": "stores",
    "cut_stopped": "stores",
    "erase_stopped": "erasure",
    "explain_stopped": "explain",
    "open_store": "stopped",
    "rebuild": "stopped",
    "rebuild_stores": "stores",
    "redact_stopped": "erasure",
    "run_node": "serving",
    "stopped_snapshot": "stopped",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pixiu.node' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pixiu.node.{_HOMES[name]}"), name)
