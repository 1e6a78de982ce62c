"""Where what has arrived waits for the program: in memory, or in the local store.

A shelf gives things in the order of their arrival, and tells by ``held`` what may be acked: in memory when the program
is done with it, in a store as soon as it is written there. Talk of rooms, which nobody keeps, waits in memory in both:
the newest ``TALK_MAX``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.machines.client_session import Incoming
    from pixiu.sdk.store import Store

__all__ = ["TALK_MAX", "MemoryShelf", "Shelf", "StoreShelf", "Taken"]

TALK_MAX = 1_000

Raw = dict[str, Any]


class Hand:
    """What the program has taken and is not done with: the cursor that may be acked when it is."""

    __slots__ = ("cursor", "generation", "is_done", "place")

    def __init__(self, cursor: int = 0, generation: int = 0, place: int = 0) -> None:
        self.cursor = cursor
        self.generation = generation
        self.place = place
        """Where it lies in the store."""
        self.is_done = False


class Taken(NamedTuple):
    """One message for the program."""

    message: Raw
    is_late: bool
    hand: Hand


class Shelf(Protocol):
    """See the module."""

    def put(self, items: list[Incoming]) -> None:
        """Keep what has arrived."""
        ...

    def put_late(self, messages: Iterable[Raw]) -> None:
        """Keep what was missed before, and came out of a gap."""
        ...

    def take(self) -> Taken | None:
        """The next one, if there is one."""
        ...

    def finish(self, hand: Hand) -> None:
        """The program is done with this, and with everything before it."""
        ...

    @property
    def waiting(self) -> int:
        """Messages that nobody has taken, without talk."""
        ...


class Talk:
    """What was said in rooms: the newest of it."""

    def __init__(self, missed: Callable[[str], object]) -> None:
        """``missed`` is told the room of each message that gives way."""
        self._talk: deque[Raw] = deque()
        self._missed = missed

    def add(self, message: Raw) -> None:
        """Keep it, if need be in place of the oldest."""
        if len(self._talk) >= TALK_MAX:
            self._missed(str(self._talk.popleft().get("room")))
        self._talk.append(message)

    def take(self) -> Taken | None:
        """The oldest that is left."""
        return Taken(self._talk.popleft(), False, Hand()) if self._talk else None


class MemoryShelf:
    """Without a store. What nobody has taken is not acked, so a server stops after its window."""

    def __init__(self, held: Callable[[int, int], object], missed: Callable[[str], object]) -> None:
        self._held = held
        self._talk = Talk(missed)
        self._items: deque[tuple[Raw | None, bool, Hand]] = deque()
        self._last = Hand()
        self._last.is_done = True
        self._waiting = 0

    def put(self, items: list[Incoming]) -> None:
        """Keep what has arrived."""
        for message, cursor, generation, is_shown in items:
            if message is not None and is_shown and "room" in message:
                self._talk.add(message)
            else:
                self._waiting += is_shown
                self._items.append((message if is_shown else None, False, Hand(cursor, generation)))
        self._pass()

    def put_late(self, messages: Iterable[Raw]) -> None:
        """Keep what was missed before."""
        for message in messages:
            self._waiting += 1
            self._items.append((message, True, Hand()))

    def _pass(self) -> None:
        """What is not for the program goes by itself, and is acked with what lies before it."""
        items = self._items
        while items and items[0][0] is None:
            hand = items.popleft()[2]
            last = self._last
            if last.is_done:
                self._held(hand.cursor, hand.generation)
            elif hand.cursor and (hand.generation != last.generation or hand.cursor > last.cursor):
                last.cursor, last.generation = hand.cursor, hand.generation

    def take(self) -> Taken | None:
        """The next one."""
        if not self._items:
            return self._talk.take()
        message, is_late, hand = self._items.popleft()
        assert message is not None, "what is not shown was passed"
        self._waiting -= 1
        self._last = hand
        self._pass()
        return Taken(message, is_late, hand)

    def finish(self, hand: Hand) -> None:
        """The program is done with this."""
        hand.is_done = True
        if hand.cursor:
            self._held(hand.cursor, hand.generation)

    @property
    def waiting(self) -> int:
        """Messages that nobody has taken."""
        return self._waiting


class StoreShelf:
    """With a store: everything is written there first, then acked; a program that returns goes on where it was."""

    def __init__(self, store: Store, held: Callable[[int, int], object], missed: Callable[[str], object]) -> None:
        self._store = store
        self._held = held
        self._talk = Talk(missed)
        self._page: deque[tuple[int, Raw, bool]] = deque()
        self._read = store.taken
        self._waiting = store.waiting(store.taken)

    def put(self, items: list[Incoming]) -> None:
        """Write it, with the cursor, in one transaction; then it may be acked."""
        kept: list[tuple[Raw, bool]] = []
        cursor = generation = 0
        for item in items:
            message = item.message
            if message is not None and item.is_shown and "room" in message:
                self._talk.add(message)
                continue
            if message is not None:
                kept.append((message, item.is_shown))
            if item.cursor:
                cursor, generation = item.cursor, item.generation
        if kept or cursor:
            self._waiting += self._store.arrived(kept, cursor)
        if cursor:
            self._held(cursor, generation)

    def put_late(self, messages: Iterable[Raw]) -> None:
        """Write what was missed before."""
        self._waiting += self._store.arrived([(message, True) for message in messages], 0, is_late=True)

    def take(self) -> Taken | None:
        """The next one, from the store."""
        if not self._page:
            self._page.extend(self._store.untaken(self._read, 100))
        if not self._page:
            return self._talk.take()
        self._read, message, is_late = self._page.popleft()
        self._waiting -= 1
        return Taken(message, is_late, Hand(place=self._read))

    def finish(self, hand: Hand) -> None:
        """Remember that the program has had it."""
        hand.is_done = True
        if hand.place:
            self._store.took(hand.place)

    @property
    def waiting(self) -> int:
        """Messages that nobody has taken."""
        return self._waiting
