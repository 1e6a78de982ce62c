"""What is on its way to one client: in order, once, and never more than a bound.

Durable messages come from the relay numbered by ``useq``, each naming the one before it. ``solid`` is the last one up
to which this connection wrote all. A message that the relay sends again because no ack came is written again with the
same cursor. A message that would leave a hole is not written: the client gets ``resync``, and either the relay sends
the missing messages again, or the client fetches them. So an ack covers only messages that the client received.

What a slow client costs, by how much waits in its socket:

    above output_mark_bytes   live events are dropped, the latest of each kind stays; then a ``gap`` says how many;
                              of room messages the latest of each priority stays, urgent ones are written first, and
                              bulk gives way to other kinds;
                              reliable room talk waits, up to output_bytes_max of it: beyond that the client is kicked,
                              and knows that it was away; nothing more is read from the client
    above output_bytes_max    it lags: messages are held back as they are stored, shared with the relay, whose window
                              bounds them, and follow when there is room
    either for too long       it is kicked, and its messages wait; a client that takes a quarter of the mark in that
                              time gets the time again

A message is with the client when the client's system has taken all bytes through that message. Before that no ack can
come: if the relay sends the message again, the gateway reports that it still delivers (``watch_delivery``), and the
relay begins its time for the ack again. A client that takes no bytes for too long is kicked, as above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import decode

from pixiu.machines.room_bodies import body_class
from pixiu.machines.scheduling import Priority
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
CHAT, BULK = Priority.CHAT, Priority.BULK


class Talk:
    """What was said in a room at a time, for many connections: encoded once for each kind of them."""

    __slots__ = ("_bodies", "_frames", "_parts", "count", "is_reliable", "link_class", "room")

    def __init__(
        self, room: str, bodies: list[bytes], *, is_reliable: bool = False, link_class: Priority = Priority.CHAT
    ) -> None:
        """``bodies`` are whole pushes, in JSON. Reliable talk is not dropped for one who stays connected.

        ``link_class`` counts for the parts that ``by_class`` returns.
        """
        self.room = room
        self.link_class = link_class
        self._parts: list[Talk] | None = None
        self.is_reliable = is_reliable
        self.count = len(bodies)
        self._bodies = bodies
        self._frames: dict[tuple[str, int], bytes] = {}

    def by_class(self) -> list[Talk]:
        """The same messages, in one part per class. The parts are shared by all connections that are slow."""
        if self._parts is None:
            classes: dict[Priority, list[bytes]] = {}
            for body in self._bodies:
                classes.setdefault(body_class(body), []).append(body)
            self._parts = [
                Talk(self.room, bodies, is_reliable=self.is_reliable, link_class=link_class)
                for link_class, bodies in classes.items()
            ]
        return self._parts

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

    __slots__ = ("bytes_max", "counters", "progress_bytes", "scheduler", "slow_ms", "tick")

    def __init__(self, settings: GatewaySettings, tick: Tick, scheduler: Scheduler, counters: GatewayCounters) -> None:
        self.bytes_max = settings.output_bytes_max
        self.slow_ms = settings.slow_timeout_ms
        self.progress_bytes = settings.output_mark_bytes // 4
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
        "_goal",
        "_held",
        "_is_blocked",
        "_is_holed",
        "_is_open",
        "_is_told",
        "_messages_end",
        "_out",
        "_out_bytes",
        "_reached",
        "_reliable_bytes",
        "_reliable_count",
        "_rules",
        "_slow",
        "_taken",
        "_timer",
        "_transport",
        "_written",
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
        self._written = 0  # bytes, since the connection began
        self._messages_end = 0  # where among them the last message ends that was written for the first time
        self._taken = 0  # how many the client had taken when the timer was set
        self._goal = 0  # and how many it has to take

    # What is said.

    def push(self, pushes: list[Push], acked: int = 0) -> bool:
        """Write messages that follow, or hold them back. True if some of them had come before.

        A message that the relay sends again is written again, unless the client has acked it or does not keep up.
        """
        reached, solid, repeats, is_whole = self._reached, self.solid, 0, True
        is_repeated = False
        fresh: list[Push] = []
        unacked: list[Push] = []
        for push in pushes:
            useq = push[0]
            if useq <= reached:
                if not useq:
                    self._write_early(push)
                    continue
                is_repeated = True
                if useq <= solid:
                    repeats += 1
                    if push[4] and useq > acked:
                        unacked.append(push)
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
        if unacked:
            self._write_again(unacked)
        self._rules.counters.repeats += repeats
        return is_repeated

    def _write_again(self, pushes: list[Push]) -> None:
        """Repeat messages on this connection, unless they or earlier bytes still wait for the client.

        If a store needed for a name is unavailable, the repeat stops: the relay sends the window again later.
        """
        codec, size = self._codec, 0
        if self.is_behind or self._transport.pending() + self._out_bytes or self.is_delivering:
            return
        for push in pushes:
            try:
                encoded = self._rules.tick.message(codec, push[2], push[3])
            except PixiuError:
                return
            frame = self._envelope.wrap(codec.message(push[0], encoded, push[7], push[5]))
            size += len(frame)
            if size > self._rules.bytes_max:
                return
            self._write(frame)
            self._rules.counters.resends += 1

    def _write_early(self, push: Push) -> None:
        """Write an early copy of an urgent message before what is held back. Without room for it, drop it."""
        codec = self._codec
        try:
            payload = codec.early(self._rules.tick.message(codec, push[2], push[3]))
        except PixiuError:
            return
        if payload and self._transport.pending() + self._out_bytes + len(payload) <= self._rules.bytes_max:
            self._write(self._envelope.wrap(payload))
            self._rules.counters.early += 1

    def _write_messages(self, pushes: list[Push]) -> None:
        """Write what there is room for; hold back the rest."""
        rules, codec, wrap, out = self._rules, self._codec, self._envelope.wrap, self._out
        queued = self._transport.pending() + self._out_bytes
        was_empty, written, encode = not out, 0, rules.tick.message
        for push in pushes:
            try:
                frame = wrap(codec.message(push[0], encode(codec, push[2], push[3]), push[7], push[5]))
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
            self._messages_end = self._written + self._out_bytes
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
            for part in talk.by_class():
                self._defer(part)
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
        self._written += len(data)
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

    @property
    def is_blocked(self) -> bool:
        """Is the socket full? Then nothing is read from the client either."""
        return self._is_blocked

    @property
    def is_delivering(self) -> bool:
        """Is a message that was handed over not yet with the client? Then the client cannot ack it."""
        return bool(self._held) or self._messages_end > self._taken_by_client()

    def watch_delivery(self) -> bool:
        """The same. If it is so, the client has to take bytes from now on, or is kicked as slow."""
        is_delivering = self.is_delivering
        if is_delivering:
            self._watch()
        return is_delivering

    def _taken_by_client(self) -> int:
        return self._written - self._transport.outstanding()

    def _hole(self) -> None:
        self._is_holed = True
        self._watch()
        if not self._is_told:
            self.event(RESYNC)

    def _watch(self) -> None:
        """From now on the client is behind; unless it was before."""
        if self._timer is None:
            self._taken, self._goal = self._taken_by_client(), self._messages_end
            self._timer = self._rules.scheduler.after(self._rules.slow_ms, self._look)

    def _settled(self) -> None:
        """It may have caught up."""
        if self._timer is not None and not self.is_behind and self._taken_by_client() >= self._goal:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        taken = self._taken_by_client()
        is_delivering = taken < self._goal
        if (self._is_blocked or is_delivering) and taken - self._taken >= self._rules.progress_bytes:
            self._watch()
        elif self.is_behind or is_delivering:
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
            bulk = next((each for each in self._deferred if each[0] == BULK), None)
            if bulk is None or key[0] == BULK:
                self._drop(event)
                return
            self._drop(self._deferred.pop(bulk))
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
        for event in sorted((deferred or {}).values(), key=_class_of):
            if isinstance(event, Talk):
                self.talk(event)
            else:
                self.event(event)


def _kind_of(event: Mapping[str, object] | Talk) -> tuple[object, object]:
    """Of events of one kind the latest makes the earlier ones unnecessary."""
    if isinstance(event, Talk):
        return event.link_class, event.room
    message = event.get("message")
    if event.get("push") == "signal" and isinstance(message, dict):
        return "signal", message.get("from")
    return event.get("push"), event.get("group") or event.get("with") or event.get("user")


def _class_of(event: Mapping[str, object] | Talk) -> Priority:
    """Urgent room messages are written first, bulk last. Events without a class are written with normal messages."""
    return event.link_class if isinstance(event, Talk) else CHAT
