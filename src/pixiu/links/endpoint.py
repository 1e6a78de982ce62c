"""One process's end of all its links: what comes in waits in one box, what goes out is gathered per peer and turn.

The box is the heart of it. Whatever arrives in a turn is handled in one go, in the order in which it came, and a
heartbeat is answered from there, behind the work that came before it. So a process that is alive but does not get on
with its work answers late, and one that does nothing any more does not answer at all (M3).

What goes out leaves at the end of the turn, priorities first. When the system takes no more, messages wait for their
turns by class (``Turns``), and talk that has waited for too long is shed.

Bounds: the box holds ``INBOX_MAX`` messages, beyond which what comes is dropped and counted; everything that may not be
lost is asked for or sent again by its own machine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from pixiu.machines.links.codec import TALK, decode
from pixiu.machines.links.messages import Beat, BeatBack, Talk
from pixiu.machines.probes import Hop, stamped
from pixiu.machines.scheduling import Priority, TurnRules, Turns
from pixiu.machines.view import PeerState
from pixiu.model.errors import PixiuError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.machines.links.packing import Encoded
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler

__all__ = ["INBOX_MAX", "PEERS_MAX", "Endpoint", "EndpointCounters", "Lanes", "Way"]

log = logging.getLogger(__name__)

INBOX_MAX = 100_000
PEERS_MAX = 65_536
"""Processes whose addresses are known; of those that only came by, the ones that came first are forgotten first."""
FULL_BYTES = 64 * 1024
"""What leaves at a time while the way is full again and again."""
MESSAGE_BYTES = 64
"""What a message counts beside its body when turns are given."""


Lanes = tuple[list[Any], list[Any], list[Any], list[Any]]
"""Messages for one process, by their priorities."""


class Way(Protocol):
    """How messages get to another process."""

    when_free: Callable[[], object]
    receive: Callable[[int, str, Sequence[Any]], object]
    """Takes messages that have come: the sender's boot id, its address, and they themselves, read or not."""

    @property
    def is_full(self) -> bool:
        """Does it take no more for now? ``when_free`` is called once when it does."""
        ...

    def send(self, boot: int, address: str, messages: Sequence[Any]) -> None:
        """Send messages, in order. They may get lost."""
        ...


class EndpointCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self.dropped = 0
        self.malformed = 0
        self.unknown_peer = 0
        self.beats = 0


class Endpoint:
    """Sends to boot ids, receives from boot ids. ``state`` is what heartbeats are answered with."""

    def __init__(self, boot: int, way: Way, clock: Clock, scheduler: Scheduler) -> None:
        self.boot = boot
        self.state = PeerState.INIT
        self.counters = EndpointCounters()
        self.came_us = 0
        """When the first of the messages came that are handled in this turn."""
        self._way = way
        self._clock = clock
        self._scheduler = scheduler
        self._handlers: dict[type, Callable[[int, Any], object]] = {Beat: self._beat}
        self._talks: Callable[[list[tuple[int, Encoded | Talk]]], object] | None = None
        self._addresses: dict[int, str] = {}
        self._known: dict[int, str] = {}
        self._inbox: list[tuple[int, Any]] = []
        self._is_working = False
        self._out: dict[int, Lanes] = {}
        self._is_near = False
        self._turns: Turns[tuple[int, Any]] = Turns(TurnRules())
        self._is_stopped = False
        self.when_free: list[Callable[[], object]] = []
        """Called each time when messages have waited for the system and all of them have left."""
        way.receive = self.received
        way.when_free = self._free

    # What others set.

    def on(self, kind: type, handle: Callable[[int, Any], object]) -> None:
        """Handle messages of a kind: the sender's boot id, and the message."""
        self._handlers[kind] = handle

    def on_talks(self, handle: Callable[[list[tuple[int, Encoded | Talk]]], object]) -> None:
        """Handle what is said in rooms, all of a turn at once, without reading it first."""
        self._talks = handle

    def know(self, boot: int, address: str) -> None:
        """The registry says where a process is."""
        self._known[boot] = address

    def forget(self, boot: int) -> None:
        """The registry does not list it any more. What it sends is still answered."""
        self._known.pop(boot, None)

    def stop(self) -> None:
        """Send what has gathered, and nothing more."""
        self.flush()
        self._is_stopped = True

    # Out.

    def send(self, boot: int, message: Any, priority: Priority = Priority.CONTROL) -> None:
        """Send to a process, at the end of this turn."""
        out = self._out.get(boot)
        if out is None:
            out = self._out[boot] = ([], [], [], [])
        out[priority].append(message)
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self.flush)

    def send_all(self, boot: int, lanes: Lanes) -> None:
        """The same for many messages at once, by their priorities. They are taken over: do not add to them."""
        out = self._out.get(boot)
        if out is None:
            self._out[boot] = lanes
        else:
            for lane, messages in zip(out, lanes, strict=True):
                lane += messages
        if not self._is_near:
            self._is_near = True
            self._scheduler.soon(self.flush)

    def flush(self) -> None:
        """Send what has gathered."""
        self._is_near = False
        if self._is_stopped:
            return
        out, self._out = self._out, {}
        way, turns, counters = self._way, self._turns, self.counters
        now_ms = self._clock.monotonic_us() // 1000
        is_waiting = len(turns) > 0
        for boot, lanes in out.items():
            address = self._address(boot)
            if address is None:
                counters.unknown_peer += sum(map(len, lanes))
                continue
            if is_waiting or way.is_full:
                is_waiting = True
                for priority in Priority:
                    for message in lanes[priority]:
                        if not turns.put(priority, (boot, message), _size(message), now_ms):
                            counters.dropped += 1
                continue
            control, command, chat, bulk = lanes
            gathered = [*control, *command, *chat, *bulk]  # first things first; order inside a class is kept
            counters.sent += len(gathered)
            way.send(boot, address, gathered)
        if is_waiting and not way.is_full:
            self._free()

    def _address(self, boot: int) -> str | None:
        """Where a process is; empty if it can only be reached over the stream that it has made."""
        return self._known.get(boot) or self._addresses.get(boot)

    @property
    def is_full(self) -> bool:
        """True while the socket's send buffer is full. New messages are queued, in order within each class.

        A role that drops messages by their content keeps them itself until ``when_free``.
        """
        return self._way.is_full or len(self._turns) > 0

    @property
    def shed(self) -> int:
        """Messages that waited too long and were dropped."""
        return sum(self._turns.shed)

    def _free(self) -> None:
        """The way takes more: those who wait, by their turns."""
        while len(self._turns) and not self._way.is_full:
            taken = self._turns.take(FULL_BYTES, self._clock.monotonic_us() // 1000)
            if not taken:
                return
            by_peer: dict[int, list[Any]] = {}
            for boot, message in taken:
                by_peer.setdefault(boot, []).append(message)
            for boot, messages in by_peer.items():
                address = self._address(boot)
                if address is not None:
                    self.counters.sent += len(messages)
                    self._way.send(boot, address, messages)
        if not self.is_full and not self._is_stopped:
            for call in self.when_free:
                call()

    # In.

    def received(self, boot: int, address: str, messages: Sequence[Any]) -> None:
        """Messages have come; they are handled in this turn, behind those that came before."""
        if self._addresses.get(boot) != address and (address or boot not in self._addresses):
            self._addresses.pop(boot, None)
            self._addresses[boot] = address
            if len(self._addresses) > PEERS_MAX:
                del self._addresses[next(iter(self._addresses))]
        if self._is_stopped:
            return
        if len(self._inbox) + len(messages) > INBOX_MAX:
            self.counters.dropped += len(messages)
            return
        self._inbox += [(boot, message) for message in messages]
        if not self._is_working:
            self._is_working = True
            self.came_us = self._clock.monotonic_us()
            self._scheduler.soon(self._work)

    @property
    def waiting(self) -> int:
        """Messages that have come and are not handled yet."""
        return len(self._inbox)

    def _work(self) -> None:
        """Handle all that has come: first what is said in rooms as one batch, where one role does only that."""
        self._is_working = False
        inbox, self._inbox = self._inbox, []
        self.counters.received += len(inbox)
        if self._talks is not None:
            talks: list[tuple[int, Any]] = []
            others: list[tuple[int, Any]] = []
            for item in inbox:
                message = item[1]
                is_talk = message[0] == TALK if type(message) is tuple else type(message) is Talk
                (talks if is_talk else others).append(item)
            if talks:
                self._handle(self._talks, talks)
                inbox = others
        for boot, item in inbox:
            try:
                message = decode(*item) if type(item) is tuple else item
            except RemoteProtocolError as error:
                self.counters.malformed += 1
                log.warning("a message makes no sense", extra={"reason": str(error), "from": f"{boot:x}"})
                continue
            handle = self._handlers.get(type(message))
            if handle is not None:
                self._handle(handle, boot, message)

    def _handle(self, call: Callable[..., object], *arguments: object) -> None:
        """One message's trouble is not the others'."""
        try:
            call(*arguments)
        except PixiuError as error:
            log.warning("a message was refused", extra={"reason": str(error)})
        except Exception:
            log.exception("a message could not be handled")

    def stamp(self, role: str, body: bytes) -> bytes:
        """Write into a probe that it was here."""
        hop = Hop(role, self.boot, self.came_us, self._clock.monotonic_us(), min(len(self._inbox), 2**32 - 1))
        return stamped(body, hop)

    def _beat(self, boot: int, beat: Beat) -> None:
        self.counters.beats += 1
        self.send(boot, BeatBack(beat.number, self.state, min(len(self._inbox), 2**32 - 1)))


def _size(message: Any) -> int:
    body = message[1] if type(message) is tuple else getattr(message, "body", b"")
    return MESSAGE_BYTES + len(body)
