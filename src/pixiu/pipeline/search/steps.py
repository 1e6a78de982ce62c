"""What an index is told, and how the way there is cut into steps: "nothing twice, nothing lost" hangs on this.

An index knows through which event it holds the archive, and writes that down in the commit that adds the documents. A
step is a range of events: its messages, then its recalls, so that a message that was said and recalled within one step
is gone at its end. A step that was cut short is done again as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["STEP_EVENTS", "Erased", "Said", "Sink", "State", "Step", "Taken", "steps_of"]

STEP_EVENTS = 250_000
"""Events of one commit, about: files are not taken apart for it."""


class Said(NamedTuple):
    """One message that can be found."""

    message_id: int
    event_id: int
    sender: int
    recipient: int
    group: int
    """0 is a private one."""
    text: str


class Taken(NamedTuple):
    """A message that was recalled: it is where these say, or it is nowhere."""

    message_id: int
    event_id: int
    sender: int
    recipient: int
    group: int


class Erased(NamedTuple):
    """A user whose words go, as far as they were said through an event."""

    user: int
    through: int


class State(NamedTuple):
    """How far an index is."""

    through: int = 0
    """It holds the archive through this event."""
    erasures: int = -1
    """The version of the table of erasures that it has seen."""
    kept_from: int = 0
    """Message ids below this have aged out."""


class Step(NamedTuple):
    """One commit's worth."""

    said: Iterable[Said]
    taken: Sequence[Taken]
    erased: Sequence[Erased]
    state: State
    """What is true when it is done."""


class Sink(Protocol):
    """An index that can be written. Whoever has it is the only writer."""

    name: str

    def state(self) -> State:
        """How far it is."""
        ...

    def apply(self, step: Step) -> int:
        """Do a step and make it durable, all or nothing as far as the state says. Returns the documents added."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def steps_of(after: int, through: int, ends: Iterable[int], events: int = STEP_EVENTS) -> Iterator[tuple[int, int]]:
    """Ranges (from behind the first, through the second) that cut at the ends of files, none much below ``events``."""
    begin = after
    for end in sorted({each for each in ends if after < each < through}):
        if end - begin >= events:
            yield begin, end
            begin = end
    if begin < through:
        yield begin, through
