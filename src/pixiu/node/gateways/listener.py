"""The hub of a node's gateways on TCP, for gateways on other machines: the same messages, on sealed streams.

::

    listener = HubListener(secrets, boot, lambda: hub if serves else None)
    address = await listener.start("10.0.0.7", 0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.runtime import hub_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.links.sealing import Secrets
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.ports.transport import WatchedReceiver

__all__ = ["HubListener"]


class HubListener:
    """Takes gateways in, as long as there is a hub for them."""

    def __init__(self, secrets: Secrets, boot: int, hub: Callable[[], GatewayHub | None]) -> None:
        """``hub``: who takes gateways now. None: nobody, and whoever comes is sent away."""
        self._secrets = secrets
        self._boot = boot
        self._hub = hub
        self._listener: hub_streams.HubStreams | None = None

    async def start(self, bind: str, port: int) -> str:
        """Listen; returns the address. Raises ``Unavailable``."""
        self._listener = await hub_streams.listen(bind, port, lambda: self._secrets, self._boot, self._accept)
        found = self._listener.port
        return f"[{bind}]:{found}" if ":" in bind else f"{bind}:{found}"

    def change_secrets(self, secrets: Secrets) -> None:
        """For whoever comes from now on."""
        self._secrets = secrets

    async def close(self) -> None:
        """Take nobody any more. Links that are there are the hub's."""
        if self._listener is not None:
            self._listener.close()

    def _accept(self, _peer: int) -> WatchedReceiver | None:
        hub = self._hub()
        return None if hub is None else hub.accept()
