"""The sending end of rooms: which proxy gets a message, in how many copies, and until when it is sent again.

| class | way | answered when |
|---|---|---|
| live | one message to the room's proxy | a proxy has it |
| copies | three copies with one id over three proxies; fewer proxies: 10 ms apart | a proxy has it |
| acked | one of a sender and room at a time, again over other proxies until it is settled | every gateway has it |

Proxies are all alike. Where order counts, a room keeps its proxy (weighted rendezvous); copies go to the better of two
by round trip, success and what is under way, now and then to any, so that one that was bad is tried again.

Ids are given here, so that all copies and repeats of a message are one message at the gateways.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from pixiu.machines.links.messages import Declined, Settled, Taken, Talk
from pixiu.machines.scheduling import Priority
from pixiu.model.errors import Overloaded, PixiuError, Unavailable
from pixiu.model.ids import Snowflakes
from pixiu.model.partitions import ranked, replica_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.links.directory import Directory
    from pixiu.links.endpoint import Endpoint
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer

__all__ = ["COPIES", "Publishing", "PublishingRules", "TalkMode"]

TalkMode = Literal["live", "copies", "acked"]

COPIES = 3
COPY_PAUSE_MS = 10
PROBE_ONE_IN = 32
"""One choice in so many does not look at the cost."""
RESEND_MS_MAX = 1_000
CHOICES_MAX = 100_000
"""Rooms whose proxy is remembered; then all are looked up again."""
WEIGH_MS = 1_000
"""So often the shares of the proxies are looked at, which change slowly."""


class PublishingRules(NamedTuple):
    """Bounds and times of a publisher."""

    pending_max: int = 10_000
    """Messages without an answer; more are refused as busy."""
    lane_max: int = 1_000
    """Acked messages of one sender to one room that wait for those before them."""
    taken_ms: int = 2_000
    """A live message, or copies, that no proxy has confirmed by then may be lost: the caller is told."""
    resend_ms: int = 200
    """An acked message goes again after this; each later time waits twice as long."""
    reliable_ms: int = 30_000
    """And is given up after this, counted from when those before it were done."""


class _Sent:
    """A message that somebody waits for."""

    __slots__ = ("attempts", "done", "lane", "mode", "proxies", "since_ms", "talk", "timer")

    def __init__(self, talk: Talk, mode: TalkMode, lane: tuple[int, int], done: Callable[..., object]) -> None:
        self.talk = talk
        self.mode = mode
        self.lane = lane
        self.done = done
        self.attempts = 0
        self.since_ms = 0
        self.proxies: list[int] = []
        self.timer: Timer | None = None


class Publishing:
    """All that one process publishes."""

    def __init__(
        self,
        endpoint: Endpoint,
        directory: Directory,
        clock: Clock,
        scheduler: Scheduler,
        rules: PublishingRules,
        *,
        node_id: int,
        pick: Callable[[int], int],
    ) -> None:
        """``node_id`` is inside the ids; ``pick(n)`` is a number from 0 to n - 1, by chance."""
        self.proxies = directory.follow("proxy")
        self.resent = 0
        self.given_up = 0
        self._endpoint = endpoint
        self._clock = clock
        self._scheduler = scheduler
        self._rules = rules
        self._pick = pick
        self._ids = Snowflakes(node_id)
        self._sent: dict[int, _Sent] = {}
        self._in_flight: dict[int, int] = {}
        self._lanes: dict[tuple[int, int], deque[_Sent]] = {}
        self._choices: dict[int, int] = {}
        """The proxy of each room that was talked in, as long as these are usable and have these shares:"""
        self._usable: list[int] = []
        self._weights: dict[int, float] = {}
        self._weighed_ms = 0
        self._is_stopped = False
        endpoint.on(Taken, self._taken)
        endpoint.on(Settled, self._settled)
        endpoint.on(Declined, self._declined)

    @property
    def pending(self) -> int:
        """Messages without an answer."""
        return len(self._sent)

    def stop(self) -> None:
        """No more: whoever still waits is told."""
        self._is_stopped = True
        waiting = list(self._sent.values())
        for known in (self._sent, self._lanes, self._in_flight):
            known.clear()
        for sent in waiting:
            if sent.timer is not None:
                sent.timer.cancel()
            sent.done(Unavailable("the publisher was closed; the message may have arrived"))

    def renumber(self, node_id: int) -> None:
        """Give ids with another node id from now on."""
        self._ids = Snowflakes(node_id, self._ids.next(self._clock.now_ms()))

    def next_id(self) -> int:
        """An id above all earlier ones of this publisher."""
        return self._ids.next(self._clock.now_ms())

    def publish(
        self,
        room: int,
        message_id: int,
        body: bytes,
        mode: TalkMode,
        done: Callable[[PixiuError | None], object],
        *,
        sender: int = 0,
        priority: Priority = Priority.CHAT,
    ) -> None:
        """Send a message to a room. ``done`` is told once: None, or what went wrong."""
        if self._is_stopped:
            done(Unavailable("the publisher is closed"))
            return
        if len(self._sent) >= self._rules.pending_max:
            done(Overloaded(f"{len(self._sent)} messages wait for their answers", retry_after_ms=100))
            return
        talk = Talk(0, room, message_id, self._endpoint.boot, 0, priority, mode != "live", body)
        sent = _Sent(talk, mode, (room, sender), done)
        if mode == "acked":
            self._queue(sent)
        elif not self.proxies.usable():
            done(Unavailable("no proxy can be reached", retry_after_ms=1_000))
        else:
            self._sent[message_id] = sent
            if mode == "live":
                self._give(sent, self._proxy_of(room), 0)
            else:
                self._give_copies(sent)
            sent.timer = self._scheduler.after(self._rules.taken_ms, partial(self._late, message_id))

    def _proxy_of(self, room: int) -> int:
        """The proxy that a room keeps. It is remembered: to choose costs more with every proxy that there is."""
        usable, now_ms = self.proxies.usable(), self._now_ms()
        if usable != self._usable or now_ms - self._weighed_ms >= WEIGH_MS:
            weights = self.proxies.weights()
            if usable != self._usable or weights != self._weights:
                self._choices.clear()
            self._usable, self._weights, self._weighed_ms = usable, weights, now_ms
        chosen = self._choices.get(room)
        if chosen is None:
            if len(self._choices) >= CHOICES_MAX:
                self._choices.clear()
            chosen = self._choices[room] = replica_of(room, usable, self._weights)
        return chosen

    # Copies.

    def _give_copies(self, sent: _Sent) -> None:
        usable = self.proxies.usable()
        first = self._better(usable)
        others = [boot for boot in ranked(sent.talk.message_id, usable) if boot != first]
        for copy in range(COPIES):
            ways = [first, *others]
            boot = ways[copy % len(ways)]
            rounds = copy // len(ways)
            if rounds:
                self._scheduler.after(COPY_PAUSE_MS * rounds, partial(self._give, sent, boot, copy))
            else:
                self._give(sent, boot, copy)

    def _better(self, usable: list[int]) -> int:
        """The better of two, by chance; sometimes just one."""
        one = usable[self._pick(len(usable))]
        other = usable[self._pick(len(usable))]
        if one == other or not self._pick(PROBE_ONE_IN):
            return one
        return self.proxies.cheaper(one, other, self._in_flight)

    def _give(self, sent: _Sent, boot: int, copy: int) -> None:
        if self._sent.get(sent.talk.message_id) is sent:  # a later copy of one that is answered is not waited for
            sent.proxies.append(boot)
            self._in_flight[boot] = self._in_flight.get(boot, 0) + 1
        self._endpoint.send(boot, sent.talk._replace(copy=copy & 0xFF), sent.talk.priority)

    # Acked: one lane per sender and room.

    def _queue(self, sent: _Sent) -> None:
        lane = self._lanes.setdefault(sent.lane, deque())
        if len(lane) >= self._rules.lane_max:
            sent.done(Overloaded(f"{len(lane)} messages to the room wait already", retry_after_ms=100))
            return
        lane.append(sent)
        self._sent[sent.talk.message_id] = sent
        if len(lane) == 1:
            self._begin(sent)

    def _begin(self, sent: _Sent) -> None:
        """It is the first of its lane: its time begins."""
        sent.since_ms = self._now_ms()
        self._attempt(sent)

    def _attempt(self, sent: _Sent) -> None:
        """Send it, again if need be, each time over another proxy."""
        rules, waited_ms = self._rules, self._now_ms() - sent.since_ms
        if self._sent.get(sent.talk.message_id) is not sent:
            return
        if waited_ms >= rules.reliable_ms:
            self.given_up += 1
            self._end(sent, Unavailable(f"not everyone has it after {waited_ms} ms; it may still have arrived"))
            return
        usable = self.proxies.usable()
        if usable:
            ways = [self._proxy_of(sent.talk.room)]
            ways += [boot for boot in ranked(sent.talk.room, usable) if boot != ways[0]]
            self.resent += sent.attempts > 0
            self._release(sent)
            self._give(sent, ways[sent.attempts % len(ways)], sent.attempts)
            sent.attempts += 1
        pause_ms = min(rules.resend_ms << min(max(sent.attempts - 1, 0), 8), RESEND_MS_MAX)
        sent.timer = self._scheduler.after(pause_ms, partial(self._attempt, sent))

    # Answers.

    def _taken(self, boot: int, taken: Taken) -> None:
        for message_id in taken.message_ids:
            sent = self._sent.get(message_id)
            if sent is not None and sent.mode != "acked":
                self._end(sent, None)

    def _settled(self, boot: int, settled: Settled) -> None:
        for message_id in settled.message_ids:
            sent = self._sent.get(message_id)
            if sent is not None:
                self._end(sent, None)

    def _declined(self, boot: int, declined: Declined) -> None:
        sent = self._sent.get(declined.message_id)
        if sent is None:
            return
        if sent.mode == "acked":
            if sent.timer is not None:
                sent.timer.cancel()
            sent.timer = self._scheduler.after(max(declined.retry_after_ms, 10), partial(self._attempt, sent))
        elif sent.mode == "live":
            kind = Overloaded if declined.code == "busy" else Unavailable
            self._end(sent, kind(f"the message was declined: {declined.code}", retry_after_ms=declined.retry_after_ms))

    def _late(self, message_id: int) -> None:
        sent = self._sent.get(message_id)
        if sent is not None:
            self._end(sent, Unavailable("no proxy has confirmed the message; it may have arrived", retry_after_ms=100))

    def _end(self, sent: _Sent, error: PixiuError | None) -> None:
        del self._sent[sent.talk.message_id]
        self._release(sent)
        if sent.timer is not None:
            sent.timer.cancel()
        if sent.mode == "acked":
            lane = self._lanes[sent.lane]
            lane.popleft()
            if lane:
                self._begin(lane[0])
            else:
                del self._lanes[sent.lane]
        sent.done(error)

    def _release(self, sent: _Sent) -> None:
        for boot in sent.proxies:
            left = self._in_flight.get(boot, 1) - 1
            if left > 0:
                self._in_flight[boot] = left
            else:
                self._in_flight.pop(boot, None)
        sent.proxies.clear()

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000
