"""Doublings of the carriers: where in the log each flip is, and what it means for whose is whose.

A flip is a record, so it is at one place for everyone: what is before it was done by the old count, what is behind it
is done by the new one. A new partition applies what it will own from the log's beginning, by the new count; an old one
applies by its count until it meets the flip, and lets go of what is not its own any more (``forget_users``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.partitions import Share, check_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.model.partitions import Owns
    from pixiu.ports.notes import Notes
    from pixiu.ports.stores import Stores

__all__ = ["CARRIER", "Flips", "forget_users", "grown", "moved_away"]

CARRIER = "carrier"
"""The role, as records name it."""
FLIPS = "flips"
"""The note that holds them."""
_ALL = 2**63 - 1


class Flips:
    """Every doubling that was applied, in order."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        text = (notes.get(FLIPS) or b"").decode()
        self._rows = [
            (int(event_id), int(count)) for event_id, _, count in (row.partition(":") for row in text.split())
        ]

    @property
    def count(self) -> int:
        """What the last one says; 0 if there was none."""
        return self._rows[-1][1] if self._rows else 0

    def add(self, event_id: int, count: int) -> bool:
        """Note one. False if it changes nothing: said twice, or no doubling. Raises ``ValueError`` for nonsense."""
        check_count(count)
        if count <= self.count:
            return False
        self._rows.append((event_id, count))
        self._notes.put(FLIPS, " ".join(f"{at}:{each}" for at, each in self._rows).encode())
        return True

    def count_at(self, event_id: int, otherwise: int) -> int:
        """How many partitions there were at an event; ``otherwise`` if the log has no flip."""
        if not self._rows:
            return otherwise
        before = [count for at, count in self._rows if at <= event_id]
        return before[-1] if before else self._rows[0][1] // 2

    def began(self, partition: int) -> int:
        """The event at which a partition became one; 0 if it always was."""
        return next((at for at, count in self._rows if count // 2 <= partition < count), 0)


def grown(owns: Owns | None, count: int) -> Owns | None:
    """Whose is applied when there are so many partitions; one that was there before keeps a half of what it had."""
    return Share(owns.partition, count) if isinstance(owns, Share) and count > owns.count else owns


def moved_away(users: Iterable[int], share: Share, count: int, *, is_wide: bool = False) -> list[int]:
    """Who is elsewhere behind a flip to ``count``, of users that stores made by ``share`` have something of.

    A partition of a later doubling applies the log from its beginning, and so meets the flips of earlier ones: by their
    counts nobody would be its own, and yet everybody is. ``is_wide``: the stores have users of others, too.
    """
    target = Share(share.partition, max(count, share.count))
    return [user for user in users if (is_wide or share(user)) and not target(user)]


def forget_users(stores: Stores, users: Iterable[int]) -> None:
    """Remove what is these users' own; what is said in groups stays."""
    for user in users:
        gone: list[int] = []
        for platform in stores.inboxes.platforms(user):
            gone += [entry.message_id for entry in stores.inboxes.remove(user, platform, 1, _ALL)]
        gone += stores.timelines.drop_private(user, through=_ALL)
        for message_id in gone:
            stores.bodies.release(message_id)
        for conversation in list(stores.unread.of(user)):
            stores.unread.drop(user, conversation)
