"""The keys of recent appends: how the writer finds a repeat.

The whole index of keys is derived from the log and kept by whoever applies it; the writer only has to cover the time
between what that index has applied and now. It remembers the newest keys, knows from which event id on its memory is
complete (``floor``), and after a restart reads back from the journal only as far as an append asks for. That is done
in slices, with pauses: a leader that stood still for longer than its lease would lose it, and so would the next one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import or_
from typing import NamedTuple

from pixiu.machines.queue_wire.commands import READING_BACK
from pixiu.model.errors import Unavailable
from pixiu.queue.storage.messages import key_digest

SLICE = 10_000
"""Events that are read back at a time: some tenths of a second, if each of them is a record of its own."""
PAUSE_US = 50_000
"""Others have their turn for so long before the next slice; who needs it meanwhile is told to come again."""
_FORGET_PART = 16
"""Beyond the bound, this part of what is remembered is forgotten."""
_MESSAGE_BITS = 64
"""Of two numbers in one, the lower ones are the message id."""
_EVENT = 1 << _MESSAGE_BITS


class Numbers(NamedTuple):
    """What an append was given."""

    event_id: int
    message_id: int


def _as_one(numbers: Numbers) -> int:
    return numbers.event_id << _MESSAGE_BITS | numbers.message_id


def _numbers(known: int) -> Numbers:
    return Numbers(known >> _MESSAGE_BITS, known & _EVENT - 1)


class RecentKeys:
    """A bounded memory of appended keys, by digest (none: no key); complete for every event behind ``floor``."""

    def __init__(
        self,
        *,
        limit: int,
        read_back: Callable[[int, int], Iterator[tuple[bytes, Numbers]]],
        now_us: Callable[[], int],
    ) -> None:
        self._limit = limit
        self._read_back = read_back
        self._now_us = now_us
        self._pause_until_us = 0
        self._keys: dict[bytes, int] = {}
        """Those that were added last are last. Both numbers of each in one: there are many of them, and Python's
        collector looks through tuples."""
        self.floor = 0

    def start(self, last_event_id: int) -> None:
        """Know nothing of the past up to here, for now."""
        self._keys.clear()
        self.floor = last_event_id

    def find(self, digest: bytes, unless_after: int) -> Numbers | None:
        """The append of a key behind event ``unless_after``.

        Raises ``LookupError`` if memory does not reach back, ``Unavailable`` while it is read from the journal.
        """
        if not digest:
            return None
        if unless_after < self.floor:
            self._extend_back(unless_after)
        known = self._keys.get(digest)
        return _numbers(known) if known is not None and known >> _MESSAGE_BITS > unless_after else None

    def has_none(self, digests: Sequence[bytes], unless_after: int) -> bool:
        """Is it known, without a look at the journal, that these are new behind this event, and each another one?"""
        return (
            unless_after >= self.floor
            and self._keys.keys().isdisjoint(digests)
            and b"" not in digests
            and len(set(digests)) == len(digests)
        )

    def add_all(self, digests: Sequence[bytes], first_event_id: int, message_ids: Iterable[int]) -> None:
        """Remember appends of which it has none, of event ids that follow each other.

        ``forget`` of each, with nothing before, undoes this.
        """
        event_ids = range(first_event_id << _MESSAGE_BITS, (first_event_id + len(digests)) << _MESSAGE_BITS, _EVENT)
        self._keys.update(zip(digests, map(or_, event_ids, message_ids), strict=True))
        while len(self._keys) > self._limit:
            self._forget_oldest()

    def add(self, digest: bytes, event_id: int, message_id: int) -> Numbers | None:
        """Remember an append; forget the oldest ones beyond the bound. Returns what ``forget`` needs to undo this."""
        if not digest:
            return None
        keys = self._keys
        before = keys.pop(digest, None)
        keys[digest] = event_id << _MESSAGE_BITS | message_id
        if len(keys) > self._limit:
            self._forget_oldest()
        return None if before is None else _numbers(before)

    def _forget_oldest(self) -> None:
        """Many at a time: to find the first one, a dict passes by all places of those that have gone."""
        for digest, known in list(islice(self._keys.items(), self._limit // _FORGET_PART + 1)):
            del self._keys[digest]
            self.floor = max(self.floor, known >> _MESSAGE_BITS)

    def forget(self, digest: bytes, before: Numbers | None) -> None:
        """Undo ``add``."""
        if not digest:
            return
        self._keys.pop(digest, None)
        if before is not None:
            self._keys[digest] = _as_one(before)

    def _extend_back(self, event_id: int) -> None:
        """Read keys behind ``event_id`` back from the journal, if they are few enough to remember."""
        if self.floor - event_id > 10 * self._limit:
            raise LookupError(f"events {event_id} to {self.floor} are too many to read back")
        if self._now_us() < self._pause_until_us:
            raise Unavailable(READING_BACK)
        begin = max(event_id, self.floor - SLICE)
        found: dict[bytes, int] = {}
        for key, numbers in self._read_back(begin, self.floor):
            found[key_digest(key)] = _as_one(numbers)
        if len(found) + len(self._keys) > self._limit:
            raise LookupError(f"more than {self._limit} keys behind event {event_id}")
        found.update(self._keys)
        self._keys = found
        self.floor = begin
        if begin > event_id:
            self._pause_until_us = self._now_us() + PAUSE_US
            raise Unavailable(READING_BACK)
