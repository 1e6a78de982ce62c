"""Pushing a topic to those who subscribed to it.

One batch is in flight per subscriber; its ack asks for the next. A subscriber is a small object with one timer, not a
task: whoever is slow or dead holds nothing but its own place. ::

    WAITING --message--> PUSHED --ack 0--> PUSHED or WAITING --idle--> 201, WAITING
       |                   |--ack 1--> ended          (ack late, or not 0 or 1: the connection is closed)
    QUEUED (take over) --name is free--> WAITING

A name is held by one live subscription per topic. A second one is refused, or waits in line when it asked to.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import SUBSCRIBER_EXIST_SUFFIX
from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import Conflict, PixiuError
from pixiu.queue.server.answers import ALIVE, ENDED, batch_frame
from pixiu.queue.storage.windows import is_enough

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.queue.metrics import QueueCounters
    from pixiu.queue.positions import Positions
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.storage.topic_log import Window
    from pixiu.queue.storage.topics import Topic, Topics
    from pixiu.queue.storage.windows import Windows

log = logging.getLogger(__name__)

EARLY_ACK_BYTES_MAX = 4
"""An ack may come before its push: one taken, one waiting. More is not the protocol."""

ACKS_AT_ONCE_MAX = 1 + EARLY_ACK_BYTES_MAX // 2

FRAMES_KEPT = 4


class State(Enum):
    """Where a subscription is in its life."""

    QUEUED = auto()
    WAITING = auto()
    PUSHED = auto()
    ENDED = auto()


class Subscriptions:
    """What all subscriptions of one queue share, and who holds which name."""

    def __init__(
        self,
        topics: Topics,
        windows: Windows,
        positions: Positions,
        clock: Clock,
        scheduler: Scheduler,
        counters: QueueCounters,
        *,
        keep_alive_ms: int,
    ) -> None:
        self.topics = topics
        self.windows = windows
        self.positions = positions
        self.clock = clock
        self.scheduler = scheduler
        self.counters = counters
        self.keep_alive_ms = keep_alive_ms
        self._queued: dict[tuple[int, bytes], deque[Subscription]] = {}

    def join(self, subscription: Subscription, *, take_over: bool) -> bool:
        """Give the subscription its name. False if it has to wait for it; raises ``Conflict`` if it may not."""
        topic, name = subscription.topic, subscription.name
        if name not in topic.subscriptions:
            topic.subscriptions[name] = subscription
            self.counters.subscribers += 1
            return True
        if not take_over:
            raise Conflict(name.decode(errors="replace") + SUBSCRIBER_EXIST_SUFFIX)
        self._queued.setdefault((topic.create_event_id, name), deque()).append(subscription)
        return False

    def leave(self, subscription: Subscription) -> None:
        """Free the name at once; the next in line gets it."""
        topic, name = subscription.topic, subscription.name
        place = topic.create_event_id, name
        line = self._queued.get(place)
        if topic.subscriptions.get(name) is not subscription:
            if line is not None and subscription in line:
                line.remove(subscription)
                if not line:
                    del self._queued[place]
            return
        del topic.subscriptions[name]
        self.counters.subscribers -= 1
        if line:
            following = line.popleft()
            if not line:
                del self._queued[place]
            topic.subscriptions[name] = following
            self.counters.subscribers += 1
            self.scheduler.soon(following.took_over)

    def published(self, topic: Topic, window: Window) -> None:
        """New messages: cache them, and push to everyone who waits at the end."""
        if not topic.subscriptions:
            return
        self.windows.add(topic.create_event_id, window)
        if topic.waiting:
            waiting, topic.waiting = topic.waiting, {}
            for subscription in waiting:
                subscription.wake()

    def topic_ended(self, topic: Topic) -> None:
        """Tell those in line for a name as well."""
        self.windows.forget(topic.create_event_id)
        for place in [place for place in self._queued if place[0] == topic.create_event_id]:
            for subscription in self._queued.pop(place):
                subscription.topic_ended()


class Subscription:
    """One subscriber's stream."""

    __slots__ = (
        "_ack_timeout_us",
        "_acks",
        "_batch",
        "_connection",
        "_deadline_us",
        "_find_start",
        "_has_ended",
        "_hub",
        "_in_flight",
        "_item",
        "_number",
        "_position",
        "_remember",
        "_state",
        "_timer",
        "_timer_us",
        "_window",
        "name",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        hub: Subscriptions,
        connection: Connection,
        topic: Topic,
        name: bytes,
        *,
        batch: int,
        ack_timeout_us: int,
        remember: bool,
        find_start: Callable[[], tuple[int, int]],
    ) -> None:
        self._hub = hub
        self._connection = connection
        self.topic = topic
        self.name = name
        self._batch = batch or 1
        self._ack_timeout_us = ack_timeout_us
        self._remember = remember
        self._find_start = find_start
        self._state = State.QUEUED
        self._number = self._position = 0
        self._window: weakref.ref[Window] | None = None
        self._item = 0
        self._acks = b""
        self._has_ended = False
        self._in_flight = 0
        self._deadline_us = self._timer_us = 0
        self._timer: Timer | None = None

    def start(self, *, take_over: bool) -> None:
        """Begin, or wait in line. Raises when the name is taken or the start cannot be found."""
        if self._hub.join(self, take_over=take_over):
            try:
                self._number, self._position = self._find_start()
            except BaseException:
                self._hub.leave(self)
                raise
            self._hub.scheduler.soon(self._begin)
        else:
            self._expect(self._hub.keep_alive_ms * 1000)

    def _begin(self) -> None:
        if self._state is State.QUEUED:
            self._state = State.WAITING
            self.wake()

    def took_over(self) -> None:
        """The name has become free and is ours."""
        if self._state is not State.QUEUED:
            return
        try:
            self._number, self._position = self._find_start()
        except (PixiuError, OSError) as error:
            self._end(encode_refused(str(error)))
            return
        self._hub.scheduler.soon(self._begin)

    def wake(self) -> None:
        """There is something behind our position."""
        if self._state is State.WAITING:
            self._push()
            if self._acks:
                self._take_acks()

    def _push(self) -> None:
        """Send the next batch, or wait at the end of the log."""
        window = self._window() if self._window is not None else None
        item = self._item
        log_file = self._hub.topics.log_of(self.topic)
        if window is None or item >= window.count or not is_enough(window, item, self._batch, log_file):
            number, topic = self._number, self.topic.create_event_id
            try:
                window = self._hub.windows.at(topic, log_file, number, self._position, count=self._batch)
            except (PixiuError, OSError) as error:
                log.error("cannot read topic", extra={"topic": self._label, "reason": str(error)})
                self._end(encode_refused(str(error)))
                return
            if window is None:
                self._window = None
                self._state = State.WAITING
                self.topic.waiting[self] = None
                self._expect(self._hub.keep_alive_ms * 1000)
                return
            self._window = weakref.ref(window)
            item = 0
        count = min(self._batch, window.count - item)
        self._item = following = item + count
        if following < window.count:
            self._number, self._position = window.file_number, window.starts[following]
        else:
            self._number, self._position = window.next_file_number, window.next_position
        self._state = State.PUSHED
        if self._remember:
            self._in_flight = window.event_id(following - 1)
        self._expect(self._ack_timeout_us)
        self._connection.write(_frame(window, item, count))
        counters = self._hub.counters
        counters.pushed_messages += count
        counters.pushed_batches += 1

    def receive(self, data: bytes) -> None:
        """Bytes from the subscriber: acks, and after the last one whatever it wants next."""
        self._acks += data
        self._take_acks()

    def _take_acks(self) -> None:
        taken = 0
        while self._state is State.PUSHED and len(self._acks) >= 2:
            ack, self._acks = self._acks[:2], self._acks[2:]
            taken += 1
            if ack not in (b"\x00\x00", b"\x01\x00") or taken > ACKS_AT_ONCE_MAX:
                self._connection.close()
                return
            if self._remember:
                self._hub.positions.moved[self.topic, self.name] = self._in_flight
            if self._has_ended:
                self._end(ENDED)
            elif ack == b"\x01\x00":
                self._end(b"")
            else:
                self._state = State.WAITING
                self._push()
        if self._state in (State.WAITING, State.QUEUED) and len(self._acks) > EARLY_ACK_BYTES_MAX:
            self._connection.close()

    def topic_ended(self) -> None:
        """The topic was deleted or its lifetime is over. An awaited ack is awaited first."""
        if self._state is State.PUSHED:
            self._has_ended = True
        elif self._state is not State.ENDED:
            self._end(ENDED)

    def _end(self, last_words: bytes) -> None:
        leftover = self._acks
        self.close()
        self._connection.stream_ended(last_words, leftover)

    def close(self) -> None:
        """Leave: the connection is gone, or takes commands again."""
        if self._state is State.ENDED:
            return
        self._state = State.ENDED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.topic.waiting.pop(self, None)
        self._hub.leave(self)

    def _expect(self, timeout_us: int) -> None:
        """Something must happen within this time: an ack, or else a sign of life from us.

        The timer is left to run when it fires early; it then looks at the deadline again. So a push and its ack
        usually touch no timer at all.
        """
        now_us = self._hub.clock.monotonic_us()
        self._deadline_us = deadline_us = now_us + timeout_us
        if self._timer is None or deadline_us < self._timer_us:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_us = deadline_us
            self._timer = self._hub.scheduler.after(timeout_us / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        left_us = self._deadline_us - self._hub.clock.monotonic_us()
        if left_us > 0:
            self._timer_us = self._deadline_us
            self._timer = self._hub.scheduler.after(left_us / 1000, self._on_time)
        elif self._state is State.PUSHED:
            self._hub.counters.ack_timeouts += 1
            log.info("ack timeout", extra={"topic": self._label, "subscriber": self.name.decode(errors="replace")})
            self._connection.close()
        else:
            self._connection.write(ALIVE)
            self._expect(self._hub.keep_alive_ms * 1000)

    @property
    def _label(self) -> str:
        return self.topic.name.decode(errors="replace")


def _frame(window: Window, item: int, count: int) -> bytes:
    """The push of some items: made once per window, whoever reads it."""
    frame = window.frames.get((item, count))
    if frame is None:
        frame = batch_frame(count, window.items(item, count))
        if len(window.frames) >= FRAMES_KEPT:
            window.frames.clear()
        window.frames[item, count] = frame
    return frame
