"""Fuzz what the queue and its client read from the network, guided by coverage (atheris).

``make fuzz`` runs it. The first byte of an input picks what is fed, the second how the rest is split: the
server (on a real directory, with time that only moves between inputs), or one of the client's readers.
Whatever comes in, nothing but an error of our own may come out, and whoever makes sense is still answered.
``tests/queue/test_garbage.py`` drives the same thing with hypothesis.
"""

import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.config import JournalSettings, QueueSettings, Settings
from pixiu.machines.queue_wire.follow import FollowReader, SnapshotReader
from pixiu.machines.queue_wire.responses import Kind, ResponseReader
from pixiu.machines.queue_wire.streams import ReplicaReader, SubscribeReader
from pixiu.model.errors import RemoteProtocolError
from pixiu.queue.engine import Engine
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.runtime.files import SystemFiles

ALIVE = b"\x11" + bytes(19)
ALIVE_ANSWER = b"\xc9\x00" + bytes(8)
PAYLOAD_BYTES_MAX = 65536
TURNS_MAX = 10_000
START_MS = 1_800_000_000_000


class Clock:
    """A clock that moves when told to. ``stepped_ms`` is by how much someone has set the wall clock."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms
        self.stepped_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.ms + self.stepped_ms

    def monotonic_us(self) -> int:
        """Microseconds since the start."""
        return (self.ms - START_MS) * 1000


class Timer:
    """A call that waits."""

    def __init__(self, due_ms: float, call: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Make sure that it does not run."""
        self.call = None


class Scheduler:
    """An event loop by hand, in which a call that goes on for ever is noticed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[Callable[[], object]] = deque()
        self._timers: list[Timer] = []

    def soon(self, call: Callable[[], object]) -> None:
        """Run it in this turn."""
        self._ready.append(call)

    def after(self, delay_ms: float, call: Callable[[], object]) -> Timer:
        """Run it when its time has come."""
        timer = Timer(self._clock.ms + delay_ms, call)
        self._timers.append(timer)
        return timer

    def offload(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """There is no other thread: do it now, and tell in this turn."""
        error: BaseException | None = None
        try:
            work()
        except OSError as caught:
            error = caught
        self.soon(lambda: done(error))

    def run(self) -> None:
        """Run until nothing is ready."""
        for _ in range(TURNS_MAX):
            if not self._ready:
                return
            self._ready.popleft()()
        raise AssertionError(f"still busy after {TURNS_MAX} turns")

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and run what falls due."""
        self._clock.ms += milliseconds
        due = [timer for timer in self._timers if timer.due_ms <= self._clock.ms]
        self._timers = [timer for timer in self._timers if timer.due_ms > self._clock.ms and timer.call]
        for timer in sorted(due, key=lambda timer: timer.due_ms):
            if timer.call is not None:
                timer.call()
            self.run()


class Wire:
    """The transport of one connection: keeps what the server says."""

    def __init__(self) -> None:
        self.said = bytearray()
        self.is_closed = False
        self.pauses = 0

    def write(self, data: bytes) -> None:
        """Take an answer."""
        self.said += data

    def close(self) -> None:
        """The server hangs up."""
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        """The server wants no more for now; it gets what is left of the input all the same."""
        self.pauses += 1

    def resume_reading(self) -> None:
        """It wants more again."""

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0


class QueueUnderFuzz:
    """A whole queue without sockets, fed by hand."""

    def __init__(self, folder: Path, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.scheduler = Scheduler(self.clock)
        settings = settings or Settings(
            queue=QueueSettings(payload_bytes_max=PAYLOAD_BYTES_MAX),
            journal=JournalSettings(flush="none", free_bytes_min=0),
        )
        engine = Engine(settings, SystemFiles(folder), MemoryKeyValue(), self.clock, self.scheduler, key="0" * 64)
        engine.recover()
        engine.start()
        self.server = QueueServer(engine, HANDLERS, connections_max=10)
        self.engine = engine

    def feed(self, pieces: list[bytes]) -> bytes:
        """What the server says to these bytes from one connection. Raise for anything it must not do."""
        wire = Wire()
        connection: Any = self.server.connection()
        connection.connection_made(wire)
        for piece in pieces:
            if wire.is_closed:
                break
            connection.data_received(piece)
            self.scheduler.run()
        self.scheduler.advance(40_000)
        connection.connection_lost(None)
        self.scheduler.run()
        return bytes(wire.said)

    def check(self) -> None:
        """The queue still makes sense to others."""
        assert self.feed([ALIVE]) == ALIVE_ANSWER
        assert not self.server.connections


def feed_client(choice: int, pieces: list[bytes]) -> None:
    """Give a reader of the client some bytes from a server that cannot be trusted."""
    reader: Any
    if choice % 5 == 0:
        reader = ResponseReader(body_bytes_max=PAYLOAD_BYTES_MAX)
        for kind in Kind:
            reader.expect(kind)
    else:
        kinds: tuple[Any, ...] = (SubscribeReader, ReplicaReader, FollowReader, SnapshotReader)
        reader = kinds[choice % 5 - 1](bytes_max=PAYLOAD_BYTES_MAX)
    try:
        for piece in pieces:
            reader.receive(piece)
    except RemoteProtocolError:
        pass


def split(data: bytes, size: int) -> list[bytes]:
    """The same bytes in pieces; 0 is one piece."""
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def fuzz(folder: Path) -> None:
    """Feed inputs until something breaks or time is up. The fuzzer then ends the process itself."""
    import atheris

    atheris.instrument_all()
    queue = QueueUnderFuzz(folder)

    def one_input(data: bytes) -> None:
        if len(data) < 2:
            return
        pieces = split(data[2:], data[1] % 32)
        if data[0] % 2:
            feed_client(data[0] // 2, pieces)
        else:
            queue.feed(pieces)
            queue.check()

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


def main() -> int:
    """Fuzz in a child, so that its directory is removed however it ends."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            fuzz(Path(folder))
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
