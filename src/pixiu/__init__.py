"""Pixiu takes in every message, loses none, and can prove it.

Importing this package is cheap: what a program uses is loaded when it is first named::

    import pixiu

    async with pixiu.Node.embedded("data") as node: ...
    async with pixiu.connect("ws://127.0.0.1:8400", token) as me: ...
    async with pixiu.Publisher("zk://127.0.0.1:2181/pubsub") as publisher: ...
"""

from typing import TYPE_CHECKING, Any

from pixiu.model.version import __version__

if TYPE_CHECKING:
    from pixiu.node import Device, Node
    from pixiu.node.publisher import Publisher
    from pixiu.sdk import connect, connect_blocking

__all__ = ["Device", "Node", "Publisher", "__version__", "connect", "connect_blocking"]


def __getattr__(name: str) -> Any:
    if name in ("Device", "Node"):
        import pixiu.node

        return getattr(pixiu.node, name)
    if name == "Publisher":
        import pixiu.node.publisher

        return pixiu.node.publisher.Publisher
    if name in ("connect", "connect_blocking"):
        import pixiu.sdk

        return getattr(pixiu.sdk, name)
    raise AttributeError(f"module 'pixiu' has no attribute {name!r}")
