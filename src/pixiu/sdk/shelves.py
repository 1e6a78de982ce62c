"""Where what has arrived waits for the program: in memory, or in the local store.

A shelf gives things in the order of their arrival, and tells by ``held`` what may be acked: in memory when the program
is done with it, in a store as soon as it is written there. Talk of rooms, which nobody keeps, waits in memory in both:
the newest ``TALK_MAX``.

An early copy of an urgent message is taken before everything else. The message itself, when its turn comes, is then
passed over and counts as taken. The copy is never kept: a program that ends before that turn gets the message again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pixiu.machines.client_session.values import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.machines.client_session import Incoming
    from pixiu.sdk.store import Store

__all__ = ["TALK_MAX", "MemoryShelf", "Shelf", "StoreShelf", "Taken"]

TALK_MAX = 1_000
HURRIED_MAX = 1_000
"""Urgent messages that were taken early and whose turn has not come; the oldest are forgotten, and shown again then."""

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

    def hurry(self, message: Raw) -> None:
        """An early copy of an urgent message: the next one to be taken."""
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


class Urgent:
    """Early copies of urgent messages, and which of them the program has taken."""

    def __init__(self) -> None:
        self._waiting: dict[int, Raw] = {}
        self._taken: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: Raw) -> None:
        """Keep a copy, once. Beyond the bound it is dropped: the message comes in its place."""
        message_id = number(message.get("message_id"))
        if message_id not in self._taken and len(self._waiting) < HURRIED_MAX:
            self._waiting.setdefault(message_id, message)

    def take(self) -> Raw:
        """The oldest copy."""
        message_id = next(iter(self._waiting))
        self._taken[message_id] = None
        if len(self._taken) > HURRIED_MAX:
            del self._taken[next(iter(self._taken))]
        return self._waiting.pop(message_id)

    def was_taken(self, message: Raw) -> bool:
        """Whether the program has had an early copy of this message."""
        return bool(self._taken) and number(message.get("message_id")) in self._taken

    def arrived(self, message: Raw) -> None:
        """The turn of the message itself has come: its copy is not needed any longer."""
        if self._taken or self._waiting:
            message_id = number(message.get("message_id"))
            self._taken.pop(message_id, None)
            self._waiting.pop(message_id, None)


class MemoryShelf:
    """Without a store. What nobody has taken is not acked, so a server stops after its window."""

    def __init__(self, held: Callable[[int, int], object], missed: Callable[[str], object]) -> None:
        self._held = held
        self._talk = Talk(missed)
        self._items: deque[tuple[Raw | None, bool, Hand]] = deque()
        self._last = Hand()
        self._last.is_done = True
        self._waiting = 0
        self._urgent = Urgent()

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
        while items and ((message := items[0][0]) is None or self._urgent.was_taken(message)):
            if message is not None:
                self._waiting -= 1
                self._urgent.arrived(message)
            hand = items.popleft()[2]
            last = self._last
            if last.is_done:
                self._held(hand.cursor, hand.generation)
            elif hand.cursor and (hand.generation != last.generation or hand.cursor > last.cursor):
                last.cursor, last.generation = hand.cursor, hand.generation

    def hurry(self, message: Raw) -> None:
        """An early copy of an urgent message: the next one to be taken."""
        self._urgent.add(message)

    def take(self) -> Taken | None:
        """The next one."""
        if self._urgent:
            copy, hand = self._urgent.take(), Hand()
            self._last = hand
            self._pass()
            return Taken(copy, False, hand)
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
        self._urgent = Urgent()
        self._last = Hand()
        self._last.is_done = True
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

    def hurry(self, message: Raw) -> None:
        """An early copy of an urgent message: the next one to be taken."""
        self._urgent.add(message)

    def take(self) -> Taken | None:
        """The next one, from the store."""
        if self._urgent:
            self._last = Hand()
            return Taken(self._urgent.take(), False, self._last)
        while True:
            if not self._page:
                self._page.extend(self._store.untaken(self._read, 100))
            if not self._page:
                return self._talk.take()
            self._read, message, is_late = self._page.popleft()
            self._waiting -= 1
            if not self._urgent.was_taken(message):
                self._last = Hand(place=self._read)
                return Taken(message, is_late, self._last)
            self._urgent.arrived(message)
            if self._last.is_done:
                self._store.took(self._read)
            else:
                self._last.place = self._read

    def finish(self, hand: Hand) -> None:
        """Remember that the program has had it."""
        hand.is_done = True
        if hand.place:
            self._store.took(hand.place)

    @property
    def waiting(self) -> int:
        """Messages that nobody has taken."""
        return self._waiting
