"""One simulated replica: the production queue and its replication driver, on a simulated machine.

The engine, the server, its connections, the driver and the machine are those of ``pixiu queue serve``; the disk, the
store, the clocks, the loop, the sockets and the registry are simulated (``host``). Mutants of the driver are switches
(``Faults``), and each must be caught.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.machines import replication as r
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message
from pixiu.queue.engine import Engine
from pixiu.queue.replication.driver import Replication
from pixiu.queue.replication.status import log_state_of
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.server import QueueServer
from pixiu.queue.storage.snapshot import COMPLETE, DUMP_FOLDER, INCOMING, load_dump
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Publisher, Request, Wire
from pixiu.testing.replication.host import ProcessClock, ProcessScheduler, RegistryLink, Sockets
from pixiu.testing.replication.journals import JournalView
from pixiu.testing.simulated_registry import RegistryAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.replication.journals import Record
    from pixiu.testing.replication.world import World

__all__ = ["Faults", "SimulatedProcess"]

KEY = "0" * 64
TOPIC = b"t"


@dataclass(frozen=True, slots=True)
class Faults:
    """A driver's literal errors, each off unless a mutant switches it on."""

    durable_before_flush: bool = False
    lookup_by_record_start: bool = False  # QE1
    append_error_advances: bool = False  # QE2
    snapshot_without_epochs: bool = False
    clock_stops_in_suspend: bool = False


class _Driver(Replication):
    """The production driver, watched by the judge."""

    process: SimulatedProcess

    def _feed(self, event: r.Event) -> None:
        process = self.process
        before = self._replica.state
        super()._feed(event)
        if self._replica.state is not before or not isinstance(event, r.Ticked):
            state, commit = self._replica.state.value, self._replica.commit_event_id
            process.world.note(process.name, type(event).__name__, state, commit)

    def _perform(self, command: r.Command) -> None:
        process = self.process
        faults = process.world.faults
        match command:
            case r.Follow():
                process.follow_count += 1
            case r.Alarm(text):
                process.alarms.append(text)
            case r.PromoteRefused(reason):
                process.refusal = reason
            case r.FetchSnapshot(_, leader):
                process.snapshot_source = leader
            case r.StreamAfter(_, event_id) if faults.lookup_by_record_start and event_id:
                if not any(record.first_event_id == event_id for record in process.log.records):
                    return
            case _:
                pass
        super()._perform(command)

    def _committed(self, through: int) -> None:
        process = self.process
        process.world.oracle.shown(process, through)
        if self._replica.leadership is not None:
            for record in process.log.after(self._engine.commit_event_id, limit=1 << 30, through=through):
                if record.is_message and record.epoch == self._replica.epoch:
                    process.world.oracle.acknowledged(process, record)
        super()._committed(through)

    def _truncate(self, through: int) -> None:
        super()._truncate(through)
        self.process.log.reread()

    def _append(self) -> None:
        process = self.process
        if process.world.rng.random() < process.world.environment.append_error:
            if not process.world.faults.append_error_advances:
                self._events.append(r.AppendFailed(log_state_of(self._engine)))
            return
        super()._append()


class _ClientWire(Wire):
    """A client on the same machine."""

    process: SimulatedProcess | None = None

    def write(self, data: bytes) -> None:
        """The server's answer."""
        super().write(data)
        if self.process is not None:
            self._scheduler.soon(self.process.take_answers)


class SimulatedProcess:
    """A machine with a disk that outlives the process, which can crash, freeze and be slow."""

    def __init__(self, world: World, index: int, name: str) -> None:
        self.world = world
        self.index = index
        self.name = name
        self.clock = ProcessClock(self)
        self.disk = SimulatedDisk(world.rng, now_ms=self.clock.now_ms)
        self.disk.disk_time = self._disk_time
        self.content = StoreContent()
        self.log = JournalView(self.disk)
        self.incarnation = 0
        self.is_up = self.is_frozen = self.is_offloaded = False
        self.slow_ms = 0.0
        self.flush_factor = 1.0
        self.follow_count = 0
        self.clock_rate = 1.0
        self.clock_offset_ms = 0.0
        self.wall_jump_ms = 0
        self.alarms: list[str] = []
        self.refusal = ""  # the last answer to a promotion
        self.snapshot_source = ""
        self.driver: _Driver
        self.server: QueueServer
        self._busy_until_ms = 0.0
        self._mailbox: deque[tuple[int, Callable[[], object]]] = deque()
        self._due_ms: dict[int, float] = {}

    # --- Life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process on whatever the disk holds, as ``pixiu queue serve`` does."""
        world = self.world
        self.incarnation += 1
        self.is_up, self.is_frozen = True, False
        self._busy_until_ms = world.simulation.now_ms
        self._mailbox.clear()
        self._due_ms.clear()
        self.refusal = ""
        is_new_copy = self._install()
        store = SimulatedKeyValue(self.content, None, self._disk_time)
        scheduler = ProcessScheduler(self)
        engine = Engine(world.environment.queue_settings, self.disk, store, self.clock, scheduler, key=KEY)
        engine.follower_keys = (KEY,)
        follow = world.leader_to_follow(self.name)
        engine.recover(is_follower=not world.is_manual or follow is not None)
        if is_new_copy and world.faults.snapshot_without_epochs:
            engine.state.epochs.clear()
        if world.faults.durable_before_flush:
            engine.writer.copied = lambda: None  # type: ignore[method-assign]
        self.server = QueueServer(engine, HANDLERS, connections_max=1_000)
        self.sockets = Sockets(self, scheduler)
        self.registry = None if world.is_manual else RegistryLink(self)
        self.driver = driver = _Driver(
            engine, name=self.name, follow=follow, links=self.sockets, restart=self._restart, control=self.registry
        )
        driver.process = self
        driver._replica = world.make_replica(self.name, log_state_of(engine))
        driver._tick_ms = world.environment.tick_ms
        driver.when_leading = lambda epoch: world.oracle.leads(self, epoch)
        engine.replication = driver
        self.engine = self.log.engine = engine
        self.log.reread(before=self._before_snapshot() if is_new_copy else None)
        self._publisher: Publisher | None = None
        world.note(self.name, "start", self.log.tail_event_id)
        if is_new_copy:
            world.oracle.replaced(self)
        engine.start()
        self.server.start()
        driver.start()

    def _before_snapshot(self) -> list[Record]:
        return list(self.world.nodes[self.snapshot_source].log.records)

    def _install(self) -> bool:
        """Put a snapshot that arrived whole in place of everything, as ``pixiu.node.stopped`` does."""
        disk = self.disk
        is_whole = COMPLETE in disk.files()
        if is_whole:
            for path in disk.files("queue"):
                disk.remove(path)
            self.content = StoreContent()
            store = SimulatedKeyValue(self.content)
            for path in disk.files(INCOMING):
                target, data = path.removeprefix(f"{INCOMING}/"), disk.content(path)
                if target.startswith(DUMP_FOLDER):
                    load_dump(data, store)
                elif path != COMPLETE:
                    disk.make_folder(target.rpartition("/")[0])
                    disk.replace(target, data)
            store.flush()
        disk.remove_folder(INCOMING)
        return is_whole

    def _restart(self) -> None:
        """A snapshot has arrived: start again from it."""
        self._end()
        self.world.simulation.after(5.0, self.start_again, self.incarnation)

    def start_again(self, incarnation: int) -> None:
        """Start, unless somebody else has."""
        if not self.is_up and self.incarnation == incarnation:
            self.start()

    def _end(self) -> None:
        world = self.world
        self.is_up = False
        self.driver._is_stopped = True
        self.log.engine = None
        for peer, number in self.sockets.peers():
            if world.rng.random() < 0.5:  # the other end may learn of it, or not
                world.network.send(self.name, peer, number, "close")

    def crash(self) -> None:
        """Lose the machine, its memory and what the disk had not flushed."""
        self._end()
        self.disk.crash()
        self.content.crash(self.world.rng)
        self.log.reread()
        self.world.note(self.name, "crash", self.log.tail_event_id)

    def freeze(self) -> None:
        """Stop running without dying: messages pile up."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Run on, as if nothing had happened."""
        self.is_frozen = False
        while self._mailbox and self.is_up and not self.is_frozen:
            self.run(*self._mailbox.popleft())

    def wake(self, slept_ms: float) -> None:
        """The machine was suspended for so long."""
        if self.world.faults.clock_stops_in_suspend and self.is_frozen:
            self.clock_offset_ms -= slept_ms * self.clock_rate
        self.thaw()

    def leave(self) -> None:
        """End in order."""
        if self.is_up and not self.is_frozen:
            self.driver.leave(lambda: None)

    def reset_streams(self) -> None:
        """The connections that this process made are reset."""
        self._post(self.sockets.reset)

    def trim(self) -> None:
        """Retention runs."""
        if self.is_up and not self.is_frozen:
            engine = self.engine
            _ = self.log.records  # read before they go
            engine.journal.drop_through(min(engine.retained_from() - 1, engine.commit_event_id))

    # --- Time ----------------------------------------------------------------------------------------------

    @property
    def local_time_ms(self) -> float:
        """This machine's steady clock. A flush in the loop takes its time."""
        return max(self.world.simulation.now_ms, self._busy_until_ms) * self.clock_rate + self.clock_offset_ms

    @property
    def local_ms(self) -> int:
        """The same, as the machine's event."""
        return int(self.local_time_ms)

    def set_clock_rate(self, rate: float) -> None:
        """Run faster or slower from now on."""
        self.clock_offset_ms += self.world.simulation.now_ms * (self.clock_rate - rate)
        self.clock_rate = rate

    def flush_time_ms(self) -> float:
        """How long a flush takes now."""
        low, high = self.world.environment.flush_ms
        return (low + (high - low) * self.world.rng.random()) * self.flush_factor

    def _disk_time(self) -> None:
        if not self.is_offloaded:
            self._busy_until_ms = max(self._busy_until_ms, self.world.simulation.now_ms) + self.flush_time_ms()

    def run(self, incarnation: int, call: Callable[[], object]) -> None:
        """Something is due for this incarnation: do it, or keep it while the process is frozen or blocked."""
        if not self.is_up or self.incarnation != incarnation:
            return
        simulation = self.world.simulation
        if self.is_frozen:
            self._mailbox.append((incarnation, call))
        elif self._busy_until_ms > simulation.now_ms:
            simulation.after(self._busy_until_ms - simulation.now_ms, self.run, incarnation, call)
        else:
            call()

    def _post(self, call: Callable[[], object]) -> None:
        self.run(self.incarnation, call)

    # --- The network ---------------------------------------------------------------------------------------

    def send(self, target: str, number: int, message: object) -> None:
        """Send on a connection, once what blocks the loop is over."""
        simulation = self.world.simulation
        simulation.after(
            max(0.0, self._busy_until_ms - simulation.now_ms), self._send_now, self.incarnation, target, number, message
        )

    def _send_now(self, incarnation: int, target: str, number: int, message: object) -> None:
        if self.is_up and self.incarnation == incarnation:
            self.world.network.send(self.name, target, number, message)

    def deliver(self, source: str, number: int, message: object) -> None:
        """A message arrives from another process, or from the registry."""
        world = self.world
        if not self.is_up:
            if message == "connect":
                world.network.send(self.name, source, number, "refuse")
            return
        if self.slow_ms or number in self._due_ms:
            # Each connection lags on its own, in order: what an old one held back comes out after a new one's.
            now_ms = world.simulation.now_ms
            due_ms = max(self._due_ms.get(number, 0.0), now_ms + self.slow_ms * world.rng.random() ** 3)
            self._due_ms[number] = due_ms
            call = lambda: self._arrived(source, number, message)  # noqa: E731 - kept in the mailbox as it is
            world.simulation.after(due_ms - now_ms, self.run, self.incarnation, call)
        else:
            self._post(lambda: self._arrived(source, number, message))

    def _arrived(self, source: str, number: int, message: object) -> None:
        if isinstance(message, RegistryAnswer):
            if self.registry is not None and message.incarnation == self.incarnation:
                self.registry.answered(message.registry_session, message.event)
        else:
            self.sockets.arrived(source, number, message)

    # --- Clients and operators -----------------------------------------------------------------------------

    @property
    def replica(self) -> r.Replica:
        """The machine inside."""
        return self.driver._replica

    @property
    def kept_version(self) -> int:
        """How often this process has changed its own control record; under a registry it has none."""
        return self.replica._version if self.world.is_manual else 0

    def feed(self, event: r.Event) -> None:
        """The operator says something."""
        if self.is_up:
            self._post(lambda: self.driver._feed(event))

    def submit(self, content: str) -> bool:
        """A client appends. Return whether it was sent (not: acknowledged)."""
        if not self.is_up or self.is_frozen or not self.replica.accepts_writes:
            return False
        publisher = self._publisher
        if publisher is None or publisher.wire.is_closed:
            client = _ClientWire(self.server, ProcessScheduler(self))  # type: ignore[arg-type]
            client.process = self
            publisher = self._publisher = Publisher(client, self.world.rng, self.clock.monotonic_us)
        asked = [(Request("append", TOPIC, (content.encode(),)), _append(content))]
        if self.engine.topics.get(TOPIC) is None:
            asked.insert(0, (Request("create", TOPIC, asks=True), wire.encode_create_topic(TOPIC, want_event_id=True)))
        self._post(lambda: publisher.send(asked))
        return True

    def take_answers(self) -> None:
        """The client reads what it was answered."""
        publisher = self._publisher
        for request in [] if publisher is None else publisher.take_answers():
            if request.kind == "append" and request.outcome == "ok":
                found = self.log.after(request.event_id - 1, limit=1, through=self.log.tail_event_id)
                self.world.oracle.answered(self, found[0] if found else None, request.event_id)


def _append(content: str) -> bytes:
    return wire.encode_append(TOPIC, Message(content.encode()).encode())
