"""What the clients saw: every message sent and every delivery, counted apart from the server's audit."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Each message carries a number in its fields. Every intended reader must see that number exactly once."""

    number: int = 0
    """The number of the newest message."""
    counts: Counter[str] = field(default_factory=Counter)
    """What people did, by name."""
    refusals: set[str] = field(default_factory=set)
    """The server's error messages."""
    doubled: list[str] = field(default_factory=list)
    """Messages that a person received twice, or a room message that arrived out of order."""
    _unread: dict[int, set[str]] = field(default_factory=dict)
    _seen: dict[str, set[int]] = field(default_factory=dict)
    _last_in_room: dict[tuple[str, str], int] = field(default_factory=dict)

    def sending(self, readers: set[str]) -> int:
        """Return the number of a message that is about to be sent to these readers."""
        self.number += 1
        if readers:
            self._unread[self.number] = set(readers)
        return self.number

    def withdraw(self, number: int) -> None:
        """Expect no delivery: the message was refused or recalled, or its outcome is unknown."""
        self._unread.pop(number, None)

    def received(self, person: str, message_id: int, number: int | None) -> None:
        seen = self._seen.setdefault(person, set())
        if message_id in seen:
            self.doubled.append(f"{person} received message {message_id} twice")
        seen.add(message_id)
        self.counts["deliveries"] += 1
        readers = self._unread.get(number) if number is not None else None
        if number is not None and readers is not None:
            readers.discard(person)
            if not readers:
                del self._unread[number]

    def received_in_room(self, person: str, room: str, message_id: int) -> None:
        """Room messages arrive in order and at most once."""
        key = (person, room)
        if message_id <= self._last_in_room.get(key, 0):
            self.doubled.append(f"{person} received message {message_id} of room {room} late or twice")
        self._last_in_room[key] = message_id
        self.counts["room deliveries"] += 1

    @property
    def pending(self) -> int:
        """Deliveries that have not happened yet."""
        return sum(map(len, self._unread.values()))

    def missing(self, most: int = 5) -> list[str]:
        """Some of the pending deliveries, in words."""
        rows = [(person, number) for number, readers in self._unread.items() for person in readers]
        return [f"{person} has not received message number {number}" for person, number in rows[:most]]
