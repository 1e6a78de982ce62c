"""What is on its way to one client: in order, once, and never more than a bound.

Durable messages come from the relay numbered by ``useq``, each naming the one before it. ``solid`` is the last one up
to which this connection wrote all. What comes again is not written again; what would leave a hole is not written at
all: then the client is told to resync, and either the relay sends the missing ones again, or the client fetches them.
So an ack of what was pushed is always true.

What a slow client costs, by how much waits in its socket:

    above output_mark_bytes   live events are dropped, the latest of each kind stays; then a ``gap`` says how many;
                              reliable room talk waits, up to output_bytes_max of it: beyond that the client is kicked,
                              and knows that it was away; nothing more is read from the client
    above output_bytes_max    it lags: messages are held back as they are stored, shared with the relay, whose window
                              bounds them, and follow when there is room
    either for too long       it is kicked, and its messages wait
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import decode

from pixiu.model.errors import Overloaded, PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.config.gateway import GatewaySettings
    from pixiu.machines.delivery import Push
    from pixiu.machines.session import Codec, Envelope, RequestId
    from pixiu.ports.clients import ClientTransport
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.roles.gateway.metrics import GatewayCounters
    from pixiu.roles.gateway.tick import Tick

__all__ = ["CONTROL", "DEFERRED_MAX", "Outlet", "OutletRules", "Talk"]

CONTROL = frozenset({"contacts", "gap", "kick", "ping", "reconnect", "resync"})
"""Pushes that are never dropped. There are few of them."""
DEFERRED_MAX = 64
"""Kinds of live events whose latest is kept for a slow client."""
HELD_MAX = 10_000
"""Messages held back for one client. A relay's window is smaller than that."""
RESYNC = {"push": "resync"}


class Talk:
    """What was said in a room at a time, for many connections: encoded once for each kind of them."""

    __slots__ = ("_bodies", "_frames", "count", "is_reliable", "room")

    def __init__(self, room: str, bodies: list[bytes], *, is_reliable: bool = False) -> None:
        """``bodies`` are whole pushes, in JSON. Reliable talk is not dropped for one who stays connected."""
        self.room = room
        self.is_reliable = is_reliable
        self.count = len(bodies)
        self._bodies = bodies
        self._frames: dict[tuple[str, int], bytes] = {}

    def frames(self, codec: Codec, envelope: Envelope) -> bytes:
        """All of it, ready to be written."""
        key = (codec.name, id(envelope))
        found = self._frames.get(key)
        if found is None:
            payloads = (body if codec.is_text else codec.event(decode(body)) for body in self._bodies)
            found = self._frames[key] = b"".join(map(envelope.wrap, payloads))
        return found


class OutletRules:
    """What the outlets of a gateway share."""

    __slots__ = ("bytes_max", "counters", "scheduler", "slow_ms", "tick")

    def __init__(self, settings: GatewaySettings, tick: Tick, scheduler: Scheduler, counters: GatewayCounters) -> None:
        self.bytes_max = settings.output_bytes_max
        self.slow_ms = settings.slow_timeout_ms
        self.tick = tick
        self.scheduler = scheduler
        self.counters = counters


class Outlet:
    """One connection's output."""

    __slots__ = (
        "_codec",
        "_deferred",
        "_dropped",
        "_envelope",
        "_held",
        "_is_blocked",
        "_is_holed",
        "_is_open",
        "_is_told",
        "_out",
        "_out_bytes",
        "_reached",
        "_reliable_bytes",
        "_reliable_count",
        "_rules",
        "_slow",
        "_timer",
        "_transport",
        "solid",
    )

    def __init__(
        self,
        rules: OutletRules,
        transport: ClientTransport,
        codec: Codec,
        envelope: Envelope,
        slow: Callable[[], object],
    ) -> None:
        """``slow`` is told when the client was too slow for too long."""
        self._rules = rules
        self._transport = transport
        self._codec = codec
        self._envelope = envelope
        self._slow = slow
        self.solid = 0
        """Everything through this useq was written here, or was with the client before."""
        self._reached = 0  # the same, with what is held back
        self._held: list[Push] = []
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_open = False  # live events may be written: the first push is out
        self._is_blocked = False  # the socket is full
        self._is_holed = False  # something behind ``solid`` was not written
        self._is_told = False  # the client knows that it must resync
        self._deferred: dict[tuple[object, object], Mapping[str, object] | Talk] | None = None
        self._reliable_count = self._reliable_bytes = 0  # of reliable talk among them
        self._dropped: dict[str, int] | None = None  # by room; what is no room's is under ""
        self._timer: Timer | None = None

    # What is said.

    def push(self, pushes: list[Push]) -> bool:
        """Write messages that follow, or hold them back. True if some of them had been written before."""
        reached, solid, repeats, is_whole = self._reached, self.solid, 0, True
        fresh: list[Push] = []
        for push in pushes:
            useq = push[0]
            if useq <= reached:
                repeats += useq <= solid
            elif push[1] > reached or len(self._held) + len(fresh) >= HELD_MAX:
                is_whole = False
                break
            else:
                fresh.append(push)
                reached = useq
        self._reached = reached
        if not is_whole:
            self._hole()
        elif fresh and self._is_told:
            self._is_holed = self._is_told = False
            self._settled()
        if self._held:
            self._held += fresh
            self._go_on()
        elif fresh:
            self._write_messages(fresh)
        self._rules.counters.repeats += repeats
        return repeats > 0

    def _write_messages(self, pushes: list[Push]) -> None:
        """Write what there is room for; hold back the rest."""
        rules, codec, wrap, out = self._rules, self._codec, self._envelope.wrap, self._out
        queued = self._transport.pending() + self._out_bytes
        was_empty, written, encode = not out, 0, rules.tick.message
        for push in pushes:
            try:
                frame = wrap(codec.message(push[0], encode(codec, push[2], push[3])))
            except PixiuError:  # a store that knows the names is down; the relay will ask again
                break
            if queued and queued + len(frame) > rules.bytes_max:
                break
            queued += len(frame)
            self._out_bytes += len(frame)
            out.append(frame)
            written += 1
        if written:
            self.solid = pushes[written - 1][0]
            rules.counters.pushes += written
            if was_empty:
                rules.tick.will_write(self)
        if written < len(pushes):
            if not self._held:
                rules.counters.lags += 1
            self._held = pushes[written:]
            self._watch()
        else:
            self._held = []
            self._settled()

    def _go_on(self) -> None:
        """With what was held back."""
        solid = self.solid
        self._write_messages(self._held)
        if self.solid > solid and self._timer is not None:  # it gets on: give it time again
            self._timer.cancel()
            self._timer = None
            self._watch()

    def event(self, event: Mapping[str, object]) -> None:
        """Say something live, or something about the connection."""
        name = event.get("push")
        if name in CONTROL:
            if name == "resync":
                self._is_told = True
        elif self._is_full():
            self._defer(event)
            return
        else:
            self._rules.counters.events += 1
        self._write(self._rules.tick.event_frame(self._codec, self._envelope, event))

    def talk(self, talk: Talk) -> None:
        """Say what was said in a room."""
        if self._is_full():
            self._defer(talk)
        else:
            self._rules.counters.events += talk.count
            self._write(talk.frames(self._codec, self._envelope))

    def answer(self, request_id: RequestId, answer: Mapping[str, object] | PixiuError) -> bool:
        """Answer a request. False: too much waits already, so what was asked for is not sent."""
        is_sent = True
        if isinstance(answer, PixiuError):
            payload = self._codec.error(request_id, answer)
        else:
            payload = self._codec.answer(request_id, answer)
            queued = self._transport.pending() + self._out_bytes
            if queued and queued + len(payload) > self._rules.bytes_max:
                is_sent = False
                payload = self._codec.error(request_id, Overloaded("you do not read your answers", retry_after_ms=1000))
        self._write(self._envelope.wrap(payload))
        return is_sent

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._write(self._envelope.ping or self._envelope.wrap(self._codec.event({"push": "ping"})))

    def open(self) -> None:
        """What comes first has been said: events may follow."""
        self._is_open = True
        self._undefer()

    def held(self, through: int) -> None:
        """The client has everything through here from elsewhere: what it had before, or an answer to a sync."""
        if through > self.solid:
            self.solid = through
            self._reached = max(self._reached, through)
            self._held = [push for push in self._held if push[0] > through]
        self._is_holed = self._is_told = False
        self._settled()

    def flush(self) -> None:
        """Write what has collected, at once."""
        out = self._out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        counters = self._rules.counters
        counters.writes += 1
        counters.written_bytes += len(data)
        self._transport.write(data)
        if self._held and not self._is_blocked:  # the socket took it all
            self._go_on()

    def close(self, code: int, reason: str) -> None:
        """Write what is left, and end the connection."""
        self.flush()
        self._transport.close(code, reason)
        self.drop()

    def drop(self) -> None:
        """The connection is gone."""
        self._out.clear()
        self._held = []
        self._deferred = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self, frame: bytes) -> None:
        out = self._out
        if not out:
            self._rules.tick.will_write(self)
        out.append(frame)
        self._out_bytes += len(frame)

    # How the client keeps up.

    def pause_writing(self) -> None:
        """The socket is full. What the client asks next has to wait until it takes its answers."""
        self._is_blocked = True
        self._transport.pause_reading()
        self._watch()

    def resume_writing(self) -> None:
        """The socket has room again."""
        self._is_blocked = False
        self._transport.resume_reading()
        if self._held:
            self._go_on()
        if self._is_open:
            self._undefer()
        self._settled()

    def _is_full(self) -> bool:
        """May nothing live be written now? What is more than one write may have does not wait for the turn's end."""
        if self._out_bytes > self._rules.bytes_max and not self._is_blocked:
            self.flush()
        return self._is_blocked or not self._is_open

    @property
    def is_behind(self) -> bool:
        """Does the client not keep up?"""
        return self._is_blocked or self._is_holed or bool(self._held)

    def _hole(self) -> None:
        self._is_holed = True
        self._watch()
        if not self._is_told:
            self.event(RESYNC)

    def _watch(self) -> None:
        """From now on the client is behind; unless it was before."""
        if self._timer is None:
            self._timer = self._rules.scheduler.after(self._rules.slow_ms, self._look)

    def _settled(self) -> None:
        """It may have caught up."""
        if self._timer is not None and not self.is_behind:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.is_behind:
            self._slow()

    def _defer(self, event: Mapping[str, object] | Talk) -> None:
        """Keep the latest of each kind, and all reliable talk; what is replaced is dropped. In the order of saying."""
        if self._deferred is None:
            self._deferred = {}
        if isinstance(event, Talk) and event.is_reliable:
            self._reliable_count += 1
            self._reliable_bytes += len(event.frames(self._codec, self._envelope))
            if self._reliable_bytes > self._rules.bytes_max:
                self._slow()
            else:
                self._deferred["reliable", self._reliable_count] = event
            return
        key = _kind_of(event)
        before = self._deferred.pop(key, None)
        if before is not None:
            self._drop(before)
        elif len(self._deferred) - self._reliable_count >= DEFERRED_MAX:
            self._drop(event)
            return
        self._deferred[key] = event

    def _drop(self, event: Mapping[str, object] | Talk) -> None:
        room, count = (event.room, event.count) if isinstance(event, Talk) else ("", 1)
        if self._dropped is None:
            self._dropped = {}
        if room not in self._dropped and len(self._dropped) >= DEFERRED_MAX:
            room = ""
        self._dropped[room] = self._dropped.get(room, 0) + count
        self._rules.counters.dropped_events += count

    def _undefer(self) -> None:
        deferred, self._deferred = self._deferred, None
        dropped, self._dropped = self._dropped, None
        self._reliable_count = self._reliable_bytes = 0
        for room, missed in (dropped or {}).items():
            self.event({"push": "gap", "room": room, "missed": missed} if room else {"push": "gap", "missed": missed})
        for event in (deferred or {}).values():
            if isinstance(event, Talk):
                self.talk(event)
            else:
                self.event(event)


def _kind_of(event: Mapping[str, object] | Talk) -> tuple[object, object]:
    """Of events of one kind the latest makes the earlier ones unnecessary."""
    if isinstance(event, Talk):
        return "talk", event.room
    return event.get("push"), event.get("group") or event.get("with") or event.get("user")
