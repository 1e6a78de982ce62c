"""The hub of a node's gateways on TCP, for gateways on other machines: the same messages, on sealed links.

::

    listener = HubListener(secrets, boot, scheduler, lambda: hub if serves else None)
    address = await listener.start("10.0.0.7", 0)
    …
    call_hub(loop, address, receiver, secrets, boot=own, to=theirs)      # the gateway's side
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from pixiu.links.sealed import SealedDoor, SealedEnd
from pixiu.machines.links.handshake import CHALLENGE_BYTES, SecureStream
from pixiu.model.errors import Unavailable
from pixiu.runtime.local_links import LocalLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.machines.links.sealing import Secrets
    from pixiu.node.gateway_hub import GatewayHub
    from pixiu.ports.scheduler import Scheduler
    from pixiu.ports.transport import WatchedReceiver

__all__ = ["HubListener", "call_hub"]

CONNECT_SECONDS = 2.0


class HubListener:
    """Takes gateways in, as long as there is a hub for them."""

    def __init__(self, secrets: Secrets, boot: int, scheduler: Scheduler, hub: Callable[[], GatewayHub | None]) -> None:
        """``hub``: who takes gateways now. None: nobody, and whoever comes is sent away."""

        def accept() -> WatchedReceiver | None:
            found = hub()
            return None if found is None else found.accept()

        self._door = SealedDoor(secrets, boot, scheduler, lambda: os.urandom(CHALLENGE_BYTES), accept)
        self._server: asyncio.Server | None = None

    async def start(self, bind: str, port: int) -> str:
        """Listen; returns the address. Raises ``Unavailable``."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: LocalLink(self._door.accept()), bind, port)
        except OSError as error:
            raise Unavailable(f"cannot listen on {bind}:{port}: {error.strerror or error}") from error
        found = int(self._server.sockets[0].getsockname()[1])
        return f"[{bind}]:{found}" if ":" in bind else f"{bind}:{found}"

    def change_secrets(self, secrets: Secrets) -> None:
        """For whoever comes from now on."""
        self._door.secrets = secrets

    async def close(self) -> None:
        """Take nobody any more. Links that are there are the hub's."""
        if self._server is not None:
            self._server.close()
        self._door.close()


def call_hub(
    loop: asyncio.AbstractEventLoop, address: str, receiver: WatchedReceiver, secrets: Secrets, *, boot: int, to: int
) -> asyncio.Task[None]:
    """Begin to connect to a hub whose process has this boot id; the receiver is told what becomes of it."""
    stream = SecureStream(secrets, boot, os.urandom(CHALLENGE_BYTES), to=to)
    end = SealedEnd(stream, lambda: receiver)
    end.unproved = receiver.lost
    link = LocalLink(end)

    async def connect() -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(lambda: link, host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError) as error:
            link.failed(str(error) or "timed out")

    return loop.create_task(connect())
