"""The way of room messages from one broker to one gateway: both ends, over a link that may lose, repeat and reorder.

::

    Outgoing.seal(fans)  ──Frame──▶  Incoming.receive   in order, each reliable fan once
    Outgoing.acked       ◀───Ack──   "everything through this number is here"
    Outgoing.due         ──Frame──▶  the reliable part of what was not acked, again

A frame that holds reliable fans has a number, is kept until it is acked, and goes again until it is, or until its time
is over. The gateway takes numbers in order: one that came too early is held until those before it are there, or until
a frame's ``base`` says that they will never come. Live fans are never waited for: those in a frame that was overtaken
are dropped, so that live talk stays in order and comes at most once.

``life`` tells one life of a broker from the next, which begins to count anew.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.machines.rooms import Fan

__all__ = ["HELD_MAX", "RESENDS_MAX", "SOURCES_MAX", "Ack", "Frame", "Incoming", "Outgoing", "state_of"]

Name = TypeVar("Name")
State = TypeVar("State")

RESENDS_MAX = 64
"""Frames sent again at a time: the oldest. The ack of these says what else is missing."""

HELD_MAX = 10_000
"""Frames that a gateway holds because an earlier one is missing; more are left to be sent again."""

SOURCES_MAX = 16_384
"""Senders whose frames are followed. Each life of a broker is one: beyond that, who was silent longest is forgotten."""

DOUBLINGS_MAX = 5
"""The time between two repeats doubles this often."""


class Frame(NamedTuple):
    """What goes to a gateway at a time."""

    life: int
    serial: int
    """Rises with each frame that is sent for the first time; 0: a repeat."""
    number: int
    """Rises by one with each frame that wants an ack; 0: it wants none."""
    base: int
    """No frame with a number below this will come any more."""
    fans: Sequence[Fan]


class Ack(NamedTuple):
    """A gateway has everything through this number."""

    life: int
    through: int


class _Sent:
    """A frame that was not acked yet: its reliable fans."""

    __slots__ = ("due_ms", "fans", "first_ms", "number", "tries")

    def __init__(self, number: int, fans: list[Fan], now_ms: int, due_ms: int) -> None:
        self.number = number
        self.fans = fans
        self.first_ms = now_ms
        self.due_ms = due_ms
        self.tries = 0


class Outgoing:
    """A broker's end."""

    __slots__ = ("_life", "_next", "_reliable_ms", "_resend_ms", "_serial", "_unacked")

    def __init__(self, life: int, *, resend_ms: int, reliable_ms: int) -> None:
        self._life = life
        self._resend_ms = resend_ms
        self._reliable_ms = reliable_ms
        self._serial = 0
        self._next = 1
        self._unacked: deque[_Sent] = deque()

    @property
    def unacked(self) -> int:
        """Frames on their way."""
        return len(self._unacked)

    def seal(self, fans: list[Fan], now_ms: int) -> Frame:
        """Make a frame of a batch; what is reliable in it is kept."""
        self._serial += 1
        number = 0
        reliable = [fan for fan in fans if fan.is_reliable]
        if reliable:
            number = self._next
            self._next += 1
            self._unacked.append(_Sent(number, reliable, now_ms, now_ms + self._resend_ms))
        return Frame(self._life, self._serial, number, self._base(), fans)

    def acked(self, ack: Ack) -> list[Fan]:
        """The gateway has these frames. Returns the fans that have arrived by that."""
        arrived: list[Fan] = []
        unacked = self._unacked
        while ack.life == self._life and unacked and unacked[0].number <= ack.through:
            arrived += unacked.popleft().fans
        return arrived

    def due(self, now_ms: int) -> tuple[list[Frame], list[Fan]]:
        """What to send again now, and what has waited too long and is given up."""
        unacked = self._unacked
        lost: list[Fan] = []
        while unacked and now_ms - unacked[0].first_ms >= self._reliable_ms:
            lost += unacked.popleft().fans
        frames: list[Frame] = []
        base = self._base()
        for sent in islice(unacked, RESENDS_MAX):
            if sent.due_ms <= now_ms:
                sent.tries += 1
                sent.due_ms = now_ms + (self._resend_ms << min(sent.tries, DOUBLINGS_MAX))
                frames.append(Frame(self._life, 0, sent.number, base, sent.fans))
        return frames, lost

    def close(self) -> list[Fan]:
        """The gateway is gone. Returns the fans that will not arrive."""
        lost = [fan for sent in self._unacked for fan in sent.fans]
        self._unacked.clear()
        return lost

    def _base(self) -> int:
        return self._unacked[0].number if self._unacked else self._next


class Incoming:
    """A gateway's end."""

    __slots__ = ("_expected", "_held", "_held_max", "_life", "_serial", "late")

    def __init__(self, held_max: int = HELD_MAX) -> None:
        self._held_max = held_max
        self._life = 0
        self._serial = 0
        self._expected = 0
        self._held: dict[int, Sequence[Fan]] = {}
        self.late = 0
        """Live fans that were overtaken, or came twice."""

    def receive(self, frame: Frame) -> list[Fan]:
        """The fans that are to be delivered now, in order."""
        if frame.life < self._life:
            return []
        fans: list[Fan] = []
        if frame.life > self._life:
            self._release(fans, below=None)
            self._life, self._serial, self._expected = frame.life, 0, frame.base
        elif frame.base > self._expected:
            self._release(fans, below=frame.base)
            self._expected = frame.base
        is_fresh = frame.serial > self._serial
        if is_fresh:
            self._serial = frame.serial
        if frame.number == self._expected or not frame.number:
            fans += frame.fans if is_fresh else self._reliable(frame)
            if frame.number:
                self._expected += 1
        else:
            if is_fresh:
                fans += [fan for fan in frame.fans if not fan.is_reliable]
            if frame.number > self._expected and len(self._held) < self._held_max:
                self._held[frame.number] = self._reliable(frame, is_counted=not is_fresh)
        while self._held and self._expected in self._held:
            fans += self._held.pop(self._expected)
            self._expected += 1
        return fans

    @property
    def ack(self) -> Ack:
        """How far everything is here."""
        return Ack(self._life, self._expected - 1)

    def _reliable(self, frame: Frame, *, is_counted: bool = True) -> list[Fan]:
        reliable = [fan for fan in frame.fans if fan.is_reliable]
        if is_counted:
            self.late += len(frame.fans) - len(reliable)
        return reliable

    def _release(self, fans: list[Fan], *, below: int | None) -> None:
        """Those before them will not come: deliver what is held, up to there."""
        for number in sorted(self._held):
            if below is None or number < below:
                fans += self._held.pop(number)


def state_of(
    sources: dict[Name, State],
    name: Name,
    make: Callable[[], State],
    *,
    forget: Callable[[State], object] | None = None,
) -> State:
    """What is known of who speaks now. ``forget`` is told whom this drives out.

    Should that one speak again it is taken for new: what it still sends begins with its ``base``.
    """
    found = sources.pop(name, None)
    if found is None:
        found = make()
    sources[name] = found
    if len(sources) > SOURCES_MAX:
        gone = sources.pop(next(iter(sources)))
        if forget is not None:
            forget(gone)
    return found
