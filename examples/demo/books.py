"""What was said and who must see it: the clients' own books, beside the server's audit."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Books"]


@dataclass(slots=True)
class Books:
    """Each message has a number of its own in its fields. Everyone who must see it sees it once."""

    number: int = 0
    """Of the newest message."""
    counts: Counter[str] = field(default_factory=Counter)
    """What people did, by name."""
    _open: dict[int, set[str]] = field(default_factory=dict)
    _seen: dict[str, set[int]] = field(default_factory=dict)
    _last_in_room: dict[tuple[str, str], int] = field(default_factory=dict)
    refusals: set[str] = field(default_factory=set)
    """Why the server said no, in its own words."""
    doubled: list[str] = field(default_factory=list)
    """Messages that someone saw twice, or out of order."""

    def begin(self, readers: set[str]) -> int:
        """A message is about to be sent to these; returns its number."""
        self.number += 1
        if readers:
            self._open[self.number] = set(readers)
        return self.number

    def give_up(self, number: int) -> None:
        """Nobody has to see it: it was refused, or nobody knows whether it was sent, or it was taken back."""
        self._open.pop(number, None)

    def saw(self, person: str, message_id: int, number: int | None) -> None:
        """Someone got a message."""
        seen = self._seen.setdefault(person, set())
        if message_id in seen:
            self.doubled.append(f"{person} saw {message_id} twice")
        seen.add(message_id)
        self.counts["deliveries"] += 1
        if number is not None:
            readers = self._open.get(number)
            if readers is not None:
                readers.discard(person)
                if not readers:
                    del self._open[number]

    def heard(self, person: str, room: str, message_id: int) -> None:
        """Someone heard something in a room: live, in order, at most once."""
        key = (person, room)
        if message_id <= self._last_in_room.get(key, 0):
            self.doubled.append(f"{person} heard {message_id} of {room} late or twice")
        self._last_in_room[key] = message_id
        self.counts["heard in rooms"] += 1

    @property
    def waiting(self) -> int:
        """Deliveries that have not happened yet."""
        return sum(map(len, self._open.values()))

    def missing(self, most: int = 5) -> list[str]:
        """Some of them, in words."""
        return [f"{person} has not seen {number}" for number, readers in self._open.items() for person in readers][
            :most
        ]
