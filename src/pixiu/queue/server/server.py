"""All connections of the queue's port: how many there may be, and which are idle or stalled."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.queue.server.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Request

log = logging.getLogger(__name__)


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
