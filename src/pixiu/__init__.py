"""Pixiu takes in every message, loses none, and can prove it.

Importing this package is cheap: what a program uses is loaded when it is first named::

    import pixiu

    async with pixiu.Node.embedded("data") as node: ...
"""

from typing import TYPE_CHECKING, Any

from pixiu.model.version import __version__

if TYPE_CHECKING:
    from pixiu.node import Device, Node

__all__ = ["Device", "Node", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("Device", "Node"):
        import pixiu.node

        return getattr(pixiu.node, name)
    raise AttributeError(f"module 'pixiu' has no attribute {name!r}")
