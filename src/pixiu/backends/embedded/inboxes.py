"""``Inboxes`` on the overlay: all inboxes of a user are one row, entries are blocks of rows."""

from collections.abc import Iterator
from itertools import starmap

from pixiu.backends.embedded.blocks import BLOCK_MAX, Blocks
from pixiu.backends.embedded.desk import Desk, Inbox, entry_prefix, entry_row
from pixiu.backends.embedded.desks import DeskInboxes
from pixiu.backends.embedded.layout import INBOXES, key1, number, range_of
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.model.errors import CorruptData, Unavailable
from pixiu.model.inbox import Entry, InboxState

__all__ = ["EmbeddedInboxes"]


class EmbeddedInboxes(DeskInboxes):
    """Every inbox, on one ordered key-value store."""

    def __init__(self, overlay: Overlay, *, cached_max: int = 40_000, kept_max: int = 64) -> None:
        super().__init__(cached_max=cached_max, kept_max=kept_max)
        self._overlay = overlay
        self._blocks = Blocks(overlay, entry_row)
        overlay.attach(self)

    def states(self, *, after: tuple[int, str] | None = None, limit: int = 1000) -> list[InboxState]:
        """Inboxes in the order of (user, platform), behind ``after``. A sweep does not fill the cache."""
        user_after, platform_after = after if after is not None else (-1, "")
        start, end = range_of(INBOXES)
        if user_after >= 0:
            start = key1(INBOXES, user_after)
        found: list[InboxState] = []
        for user, value in self._with_changed(self._overlay.scan(start, end), user_after):
            states = Desk.states_in(user, value)
            if user == user_after:
                states = [state for state in states if state.platform > platform_after]
            found += states
            if len(found) >= limit:
                break
        return found[: max(limit, 0)]

    def _with_changed(self, below: Iterator[tuple[bytes, bytes]], first: int) -> Iterator[tuple[int, bytes]]:
        """Rows of users from ``first`` on, changed ones as they are now: only those are made that are asked for."""
        changed = self._changed
        waiting = sorted(user for user in changed if user >= first)
        index, count = 0, len(waiting)
        for key, value in below:
            user = int.from_bytes(key[1:], "big")
            while index < count and waiting[index] < user:
                yield waiting[index], changed[waiting[index]].encoded()
                index += 1
            if index < count and waiting[index] == user:
                index += 1
                yield user, changed[user].encoded()
            else:
                yield user, value
        for user in waiting[index:]:
            yield user, changed[user].encoded()

    def save(self, rows: Rows) -> None:
        """Turn changed inboxes and new entries into rows, in the order of their keys."""
        entry_rows: Rows = []
        changed, saved = self._changed, self._saved
        for user in sorted(changed):
            desk = changed[user]
            desk.is_changed = False
            rows.append((key1(INBOXES, user), desk.encoded()))
            for inbox in desk.inboxes.values():
                if inbox.entries:
                    saved[user] = desk
                if new := inbox.unsaved():
                    self._blocks.encode(entry_prefix(user, inbox), new, entry_rows)
        rows.extend(entry_rows)
        self._changed = {}
        self._added = 0

    def _load(self, user: int) -> Desk:
        value = self._overlay.get(key1(INBOXES, user))
        return Desk(user) if value is None else Desk.decoded(user, value)

    def _rows(self, user: int, inbox: Inbox, first: int, through: int) -> Iterator[Entry]:
        return starmap(Entry, self._blocks.forward(entry_prefix(user, inbox), first - 1, through))

    def _rows_taken(self, user: int, inbox: Inbox, first: int, through: int, gone: list[Entry]) -> None:
        self._blocks.drop(entry_prefix(user, inbox), first, through)
        inbox.forget_blocks(inbox.latest + 1)

    def _rows_gone(self, user: int, inbox: Inbox, gone: list[Entry]) -> None:
        """Delete the blocks of which all has gone, when there are some, or the last ones.

        Nobody reads them any more: a store that is down may keep them until the next time.
        """
        floor = inbox.floor
        if inbox.waiting and floor - inbox.swept < BLOCK_MAX:
            return
        prefix = entry_prefix(user, inbox)
        if inbox.swept + 1 < inbox.blocks_from:
            try:
                self._blocks.sweep(prefix, inbox.swept - BLOCK_MAX, min(floor, inbox.blocks_from - 1))
            except (Unavailable, CorruptData):
                return
        blocks = inbox.blocks
        while blocks and blocks[0][1] <= floor:
            self._overlay.delete(prefix + number.pack(blocks.pop(0)[0]))
        inbox.swept = floor
