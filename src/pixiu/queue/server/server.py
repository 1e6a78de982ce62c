"""All connections of the queue's port: how many there may be, and which are idle or stalled."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.queue.server.connection import TURN_COST_MAX, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Request

log = logging.getLogger(__name__)

SHARE_MIN = 50
"""The cost that a connection may have in its turn, however many wait."""


class QueueServer:
    """All connections of one port."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[int, Callable[[Any, Connection, Request], None]],
        *,
        connections_max: int,
        watch_peer: Callable[[Any], object] = lambda transport: None,
        reset_on_close: Callable[[Any], object] = lambda transport: None,
        end_writing: Callable[[Any], object] = lambda transport: transport.close(),
    ) -> None:
        self._engine = engine
        self.handlers = handlers
        """By command; each is given the engine that they are for."""
        self._connections_max = connections_max
        self._idle_timeout_us = engine.settings.idle_timeout_ms * 1000
        self._write_timeout_us = engine.settings.write_timeout_ms * 1000
        self._request_timeout_us = engine.settings.request_timeout_ms * 1000
        self._now_us = 0
        self.connections: set[Connection] = set()
        self._watch_peer = watch_peer
        self.reset_on_close = reset_on_close
        self.end_writing = end_writing
        """Ends the server's direction of a connection; the client's stays open."""
        self.buffered_bytes = 0
        """Of requests that are incomplete or wait, over all connections."""
        self._partial_bytes_max = engine.settings.partial_bytes_max
        self._turn_cost = 0
        """Of the requests that were handled in this turn of the loop."""
        self._is_turn_due = False
        self._waiting: deque[Callable[[], object]] = deque()
        """Connections, and long answers, that go on in a later turn."""
        self.http_address = ""
        """Where HTTP is, for those who try it here."""

    def connection(self) -> Connection:
        """The protocol object of a new client."""
        return Connection(self._engine, self)

    def start(self) -> None:
        """Begin to look for idle connections."""
        self._look_for_idle()

    def _look_for_idle(self) -> None:
        before_us, self._now_us = self._now_us, self._engine.clock.monotonic_us()
        # After a pause of this process, bytes that came meanwhile are not read yet: look at late requests next time.
        is_on_time = self._now_us - before_us < self._request_timeout_us / 2
        for connection in list(self.connections):
            if connection.is_heard:
                connection.is_heard = False
                connection.last_seen_us = self._now_us
            if connection.is_stalled(self._now_us):
                log.info("client takes no answers, cut off")
                connection.abort()
            elif is_on_time and connection.is_late(self._now_us):
                connection.give_up()
            elif connection.is_idle and self._now_us - connection.last_seen_us > self._idle_timeout_us:
                connection.close()
        pause_ms = min(1000, min(self._idle_timeout_us, self._write_timeout_us, self._request_timeout_us) / 4000)
        self._engine.scheduler.after(pause_ms, self._look_for_idle)

    @property
    def is_full(self) -> bool:
        """Whether incomplete requests have all the memory that they may have."""
        return self.buffered_bytes > self._partial_bytes_max

    # Turns of the loop.

    @property
    def turn_share(self) -> int:
        """The cost that one connection may have now; below 0 in a turn that has been used up."""
        left = TURN_COST_MAX - self._turn_cost
        if left <= 0:
            return -1
        return min(left, max(SHARE_MIN, TURN_COST_MAX // (1 + len(self._waiting))))

    def spend(self, cost: int) -> None:
        """Count the cost of requests that were handled in this turn."""
        self._turn_cost += cost
        self._end_turn()

    def in_turn(self, call: Callable[[], object]) -> None:
        """Call it in a later turn, behind those that wait already."""
        self._waiting.append(call)
        self._end_turn()

    def _end_turn(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._engine.scheduler.soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_turn_due = False
        self._turn_cost = 0
        for _ in range(len(self._waiting)):
            if self._turn_cost > TURN_COST_MAX:
                break
            self._waiting.popleft()()
        if self._waiting:
            self._end_turn()

    def opened(self, connection: Connection) -> None:
        """Count it in, or turn it away."""
        connection.last_seen_us = self._now_us
        if len(self.connections) >= self._connections_max:
            self._engine.counters.connections_refused += 1
            connection.write(encode_refused(f"too many connections, at most {self._connections_max}"))
            connection.close()
            return
        self.connections.add(connection)
        self._watch_peer(connection.transport)

    def closed(self, connection: Connection) -> None:
        """Count it out."""
        self.connections.discard(connection)

    def close_all(self) -> None:
        """Close every connection; what was to be said is still said."""
        for connection in list(self.connections):
            connection.close()
