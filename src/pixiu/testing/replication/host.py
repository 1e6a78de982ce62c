"""What one simulated process has for a clock, a loop, a disk's time, sockets and a registry.

All of it belongs to one incarnation of the process: what was put off, and what is on its way, finds nobody after a
crash. A frozen process keeps everything until it is thawed. A flush in the loop blocks the loop, as on a real machine.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING

from pixiu.machines import replication as r
from pixiu.testing.simulated_registry import RegistryRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.transport import Link, Receiver
    from pixiu.queue.server.connection import Connection
    from pixiu.testing.replication.process import SimulatedProcess

__all__ = ["ProcessClock", "ProcessScheduler", "RegistryLink", "Sockets"]

START_MS = 1_760_000_000_000
REFUSED = os.strerror(errno.ECONNREFUSED)


class ProcessClock:
    """The clocks of one machine: they run at their own rate, and the wall clock jumps."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def now_ms(self) -> int:
        """The wall clock."""
        return START_MS + int(self._process.local_time_ms) + self._process.wall_jump_ms

    def monotonic_us(self) -> int:
        """The steady clock."""
        return int(self._process.local_time_ms * 1000)


class _Timer:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class ProcessScheduler:
    """The loop of one incarnation."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._incarnation = process.incarnation

    def soon(self, call: Callable[[], object]) -> None:
        """In the next turn."""
        self._process.world.simulation.after(0.0, self._process.run, self._incarnation, call)

    def after(self, delay_ms: float, call: Callable[[], object]) -> _Timer:
        """Later, by the process's own clock."""
        timer = _Timer(call)
        delay_ms = max(delay_ms, 0.0) / self._process.clock_rate
        self._process.world.simulation.after(delay_ms, self._process.run, self._incarnation, lambda: self._due(timer))
        return timer

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Work in another thread takes as long as one flush, and is lost with the process."""
        process = self._process

        def ended() -> None:
            error: BaseException | None = None
            process.is_offloaded = True
            try:
                work()
            except OSError as failed:
                error = failed
            finally:
                process.is_offloaded = False
            done(error)

        process.world.simulation.after(process.flush_time_ms(), process.run, self._incarnation, ended)

    def _due(self, timer: _Timer) -> None:
        call, timer.call = timer.call, None
        if call is not None:
            call()


class _Client:
    """The end of a connection that this process made."""

    def __init__(self, sockets: Sockets, wire: int, peer: str, receiver: Receiver) -> None:
        self._sockets = sockets
        self.wire = wire
        self.peer = peer
        self._receiver = receiver
        self._is_open = self._is_closed = False

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self._is_closed and data:
            self._sockets.send(self.peer, self.wire, data)

    def close(self) -> None:
        """End it, and tell the peer."""
        if not self._is_closed:
            self._is_closed = True
            self._sockets.forget(self.wire)
            self._sockets.send(self.peer, self.wire, "close")

    def timed_out(self) -> None:
        """No process accepted it in time."""
        if not self._is_open:
            self.ended("timed out")

    def ended(self, reason: str) -> None:
        """The peer is gone, or there never was one."""
        if not self._is_closed:
            self._is_closed = True
            self._sockets.forget(self.wire)
            self._receiver.lost(reason)

    def arrived(self, message: object) -> None:
        """Something from the peer."""
        if self._is_closed:
            return
        if message == "accept":
            self._is_open = True
            self._receiver.opened(self)
        elif isinstance(message, bytes):
            self._receiver.received(message)
        else:
            self.ended(REFUSED if message == "refuse" else "connection reset by peer")


class _Served:
    """The end of a connection that another process made: the transport of the server's ``Connection``."""

    def __init__(self, sockets: Sockets, wire: int, peer: str, connection: Connection) -> None:
        self._sockets = sockets
        self.wire = wire
        self.peer = peer
        self._connection = connection
        self._is_closed = self._is_paused = False
        self._held: deque[bytes] = deque()
        connection.connection_made(self)

    def write(self, data: bytes) -> None:
        """The server's answer."""
        if not self._is_closed and data:
            self._sockets.send(self.peer, self.wire, data)

    def close(self) -> None:
        """Hang up; the loop tells the connection so in the next turn."""
        self._sockets.send(self.peer, self.wire, "close")
        self.ended("")

    abort = close

    def pause_reading(self) -> None:
        """Refuse data for now, as a full socket does."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Take more again."""
        self._is_paused = False
        self._sockets.soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0

    def ended(self, _reason: str) -> None:
        """The peer is gone."""
        if not self._is_closed:
            self._is_closed = True
            self._sockets.forget(self.wire)
            self._sockets.soon(lambda: self._connection.connection_lost(None))

    def arrived(self, message: object) -> None:
        """Something from the peer."""
        if isinstance(message, bytes):
            self._held.append(message)
            self._deliver()
        else:
            self.ended("")

    def _deliver(self) -> None:
        while self._held and not self._is_paused and not self._is_closed:
            self._connection.data_received(self._held.popleft())


class Sockets:
    """All connections of one incarnation, by their number in the world. ``Links`` for the queue."""

    def __init__(self, process: SimulatedProcess, scheduler: ProcessScheduler) -> None:
        self._process = process
        self._scheduler = scheduler
        self.soon = scheduler.soon
        self._ends: dict[int, _Client | _Served] = {}

    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> Link:
        """Begin to connect to a process by its name."""
        client = _Client(self, self._process.world.next_wire(), address.partition(":")[0], receiver)
        self._ends[client.wire] = client
        self.send(client.peer, client.wire, "connect")
        self._scheduler.after(timeout_ms, client.timed_out)
        return client

    def arrived(self, source: str, wire: int, message: object) -> None:
        """Something came in: a new connection, something on one, or on one of an earlier incarnation."""
        end = self._ends.get(wire)
        if message == "connect":
            self.send(source, wire, "accept")
            self._ends[wire] = _Served(self, wire, source, self._process.server.connection())
        elif end is not None:
            end.arrived(message)
        elif message not in ("close", "refuse"):
            self.send(source, wire, "close")

    def send(self, target: str, wire: int, message: object) -> None:
        """Leave, once what blocks the loop is over."""
        process = self._process
        process.send(target, wire, message)

    def forget(self, wire: int) -> None:
        """This connection is over."""
        self._ends.pop(wire, None)

    def reset(self) -> None:
        """The connections that this process made are reset; the other end learns it later, or never."""
        for end in list(self._ends.values()):
            if isinstance(end, _Client):
                end.ended("connection reset by peer")

    def peers(self) -> list[tuple[str, int]]:
        """Who is at the other ends."""
        return [(end.peer, end.wire) for end in self._ends.values()]


class RegistryLink:
    """``ControlSource`` on the simulated registry. Addresses are known of those that it has named live."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._session = 0
        self._known: set[str] = set()
        self._tell: Callable[[r.Event], object] = lambda _event: None

    def start(self, tell: Callable[[r.Event], object]) -> None:
        """Begin."""
        self._tell = tell

    def read(self, asked_ms: int) -> None:
        """Read the record."""
        self._ask(r.ReadControl(asked_ms))

    def change(self, expected_version: int, control: r.Control, asked_ms: int) -> None:
        """Compare and set."""
        self._ask(r.ChangeControl(expected_version, control, asked_ms))

    def _ask(self, command: r.ReadControl | r.ChangeControl) -> None:
        process = self._process
        process.world.ask_registry(RegistryRequest(process.name, process.incarnation, self._session, command))

    def answered(self, session: int, event: r.ControlSeen | r.ControlRefused | None) -> None:
        """The registry answers. None: the session has expired."""
        if session < self._session:
            return
        if event is None:
            if session == self._session:
                self._session = 0
                self._tell(r.SessionLost())
            return
        self._session = session
        if isinstance(event, r.ControlSeen):
            self._known |= event.live
        self._tell(event)

    def address_of(self, name: str) -> str | None:
        """As far as the registry has named it."""
        return f"{name}:1" if name in self._known else None

    def leads(self, epoch: int) -> None:
        """Clients of this world look for themselves."""

    def stands(self, state: str) -> None:
        """Unused."""

    def shows_damage(self, *, is_damaged: bool) -> None:
        """The world says who is damaged."""

    def stop(self) -> None:
        """Tell nothing more."""
        self._tell = lambda _event: None
