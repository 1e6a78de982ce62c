"""All inboxes of one user, as an object and as a row.

What is in memory of one inbox::

       floor                      gap_after        gap_through          latest
         |  entries (the front)       |  rows only      |   entries        |
         |  e e e   e e               |  . . . . . .    |   e e e e        |
                                                                 ^ saved: rows exist through here

Most inboxes have no gap: all that waits is in memory.

Entries are written as blocks (``blocks``). A block goes when its last entry has gone, a little later even: what lies at
or below the floor is not read, so it may stay for a while. ``swept`` is how far that was done.
"""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from sys import intern

from pixiu.backends.embedded.blocks import BLOCK_MAX
from pixiu.backends.embedded.layout import ENTRY
from pixiu.model.inbox import Entry, InboxState

__all__ = ["Desk", "Inbox", "entry_prefix", "entry_row"]

entry_row = Struct(">QQQqIQ")
_prefix = Struct(">cQH").pack
_BLOCKS_MAX = 64
"""Blocks of one inbox whose places are remembered; older ones are looked for."""
_inbox = Struct(">QQQQqB")  # floor, latest, waiting, event_id, oldest_at, length of the platform's name behind it


class Inbox:
    """One inbox: the counts of its row, and the entries that are in memory."""

    __slots__ = (
        "blocks",
        "blocks_from",
        "entries",
        "event_id",
        "floor",
        "gap_after",
        "gap_through",
        "idle",
        "latest",
        "name",
        "number",
        "oldest_at",
        "saved",
        "swept",
        "waiting",
    )

    def __init__(
        self, number: int, name: bytes, floor: int, latest: int, waiting: int, event_id: int, oldest_at: int
    ) -> None:
        self.number = number
        self.name = name
        self.floor = floor
        self.latest = latest
        self.waiting = waiting
        self.event_id = event_id
        self.oldest_at = oldest_at
        self.entries: list[Entry] = []
        self.gap_after = floor
        self.gap_through = latest if waiting else floor
        self.saved = latest
        self.blocks: list[tuple[int, int]] = []
        """First and last useq of blocks that were written; all of them from ``blocks_from`` on."""
        self.blocks_from = latest + 1
        self.swept = max(floor - 2 * BLOCK_MAX, 0)
        self.idle = 0

    def is_whole(self) -> bool:
        """Is all that waits in memory?"""
        return self.waiting == len(self.entries)

    def settle(self) -> None:
        """The front is gone: the inbox begins with the first entry that is in memory."""
        entries = self.entries
        if entries:
            self.floor = entries[0][0] - 1
            self.oldest_at = entries[0][3]
        else:
            self.floor = self.latest
            self.oldest_at = 0

    def unsaved(self) -> list[Entry]:
        """The entries that have no rows yet: they get them now."""
        entries, saved = self.entries, self.saved
        self.saved = self.latest
        if not entries or entries[-1][0] <= saved:
            return []
        new = entries if entries[0][0] > saved else entries[bisect_left(entries, (saved + 1,)) :]
        for at in range(0, len(new), BLOCK_MAX):
            block = new[at : at + BLOCK_MAX]
            self.blocks.append((block[0][0], block[-1][0]))
        if len(self.blocks) > _BLOCKS_MAX:
            self.forget_blocks(self.blocks[-_BLOCKS_MAX // 2][0])
        return new

    def forget_blocks(self, blocks_from: int) -> None:
        """The places of blocks before this one are not known any more."""
        self.blocks_from = blocks_from
        self.blocks = [block for block in self.blocks if block[0] >= blocks_from]

    def front_count(self) -> int:
        """How many entries in memory lie before the gap."""
        return bisect_left(self.entries, (self.gap_after + 1,))


class Desk:
    """All inboxes of one user, in the order of their opening."""

    __slots__ = ("held", "inboxes", "is_changed", "platforms", "user")

    def __init__(self, user: int) -> None:
        self.user = user
        self.held = 0
        """Entries in memory after the last commit."""
        self.inboxes: dict[str, Inbox] = {}
        self.platforms: tuple[str, ...] = ()
        self.is_changed = False

    def state_of(self, platform: str) -> InboxState:
        """One inbox without its entries."""
        inbox = self.inboxes[platform]
        return InboxState(self.user, platform, inbox.floor, inbox.latest, inbox.waiting, inbox.oldest_at)

    def encoded(self) -> bytes:
        """The user's row."""
        value = b""
        for inbox in self.inboxes.values():
            counts = inbox.floor, inbox.latest, inbox.waiting, inbox.event_id, inbox.oldest_at
            value += _inbox.pack(*counts, len(inbox.name)) + inbox.name
        return value

    @classmethod
    def decoded(cls, user: int, value: bytes) -> "Desk":
        """A user's inboxes, with nothing but their counts in memory."""
        desk = cls(user)
        for name, *counts in _counts(value):
            desk.inboxes[intern(name.decode())] = Inbox(len(desk.inboxes), name, *counts)
        desk.platforms = tuple(desk.inboxes)
        return desk

    @staticmethod
    def states_in(user: int, value: bytes) -> list[InboxState]:
        """The states of all inboxes of a row, by platform."""
        return [
            InboxState(user, name.decode(), floor, latest, waiting, oldest_at)
            for name, floor, latest, waiting, _, oldest_at in sorted(_counts(value))
        ]


def entry_prefix(user: int, inbox: Inbox) -> bytes:
    """What the keys of an inbox's blocks begin with."""
    return _prefix(ENTRY, user, inbox.number)


def _counts(value: bytes) -> Iterator[tuple[bytes, int, int, int, int, int]]:
    """Of each inbox: name, floor, latest, waiting, event_id, oldest_at."""
    position = 0
    while position < len(value):
        floor, latest, waiting, event_id, oldest_at, length = _inbox.unpack_from(value, position)
        position += _inbox.size + length
        yield value[position - length : position], floor, latest, waiting, event_id, oldest_at
