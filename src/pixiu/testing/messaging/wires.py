"""What lies between devices and the node: lines that fare as the weather says, or that only wait.

Requests, pushes and acks are at the weather's mercy. That a connection was made or ended is told surely, if late, as
TCP would: a client that can never learn that it was thrown out would prove nothing about the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.testing.network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.messaging.virtual_time import Outside
    from pixiu.testing.network import Links

__all__ = ["HTTP", "NODE", "Wires"]

NODE = "node"
HTTP = "http"
"""Whoever asks over HTTP: every request is a connection of its own."""

RETRY_MS = 40.0


class Wires:
    """Carries messages between devices and the node."""

    def __init__(self, outside: Outside, links: Links, hand_over: Callable[[str, str, int, object], None]) -> None:
        self._outside = outside
        self.network = SimulatedNetwork(outside, links, hand_over)
        self._hand_over = hand_over
        self._arrival: dict[tuple[str, str, int], float] = {}
        self._waiting: set[tuple[str, str, int]] = set()

    def send(self, source: str, target: str, connection: int, message: object) -> None:
        """As the weather says."""
        key = (source, target, connection)
        wait_ms = RETRY_MS if key in self._waiting else self._arrival.get(key, 0.0) - self._outside.now_ms
        if wait_ms > 0:  # never before what was told surely: that opens the connection
            self._outside.after(max(wait_ms, 0.01), self.send, source, target, connection, message)
            return
        self.network.send(source, target, connection, message)

    def send_surely(self, source: str, target: str, connection: int, message: object) -> None:
        """Late, if need be, and in any case."""
        key = (source, target, connection)
        if (source, target) in self.network.cuts:
            self._waiting.add(key)
            self._outside.after(RETRY_MS, self.send_surely, source, target, connection, message)
            return
        self._waiting.discard(key)
        arrival_ms = max(self._outside.now_ms + self.network.delay_ms(), self._arrival.get(key, 0.0))
        self._arrival[key] = arrival_ms
        self._outside.after(arrival_ms - self._outside.now_ms, self._hand_over, source, target, connection, message)
