"""Timelines lose what a record of the log says is too old, and bodies the references of what has gone.

The record names the timelines, and a message id through which each is cut. Whoever wrote it has counted: it removes
``ROWS_MAX`` rows at most (``trimming``), so that a long history goes in many records, with others in between.

What the other lanes do must not depend on whether the rows are still there. So they come first: members' places in
large groups are counted from rows, and a body that is not there yet cannot lose a reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pixiu.model.pixiu_pb2 import HistoryTrimmed
    from pixiu.ports.notes import Notes
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.reached import Reached
    from pixiu.roles.carrier.releases import Releases

__all__ = ["TimelineTrim", "forgotten_through", "last_trimmed", "note_forgotten", "note_last", "put_last"]

_FORGOTTEN = "forgotten"
"""The note that holds the highest message id through which send keys were forgotten."""


class HasNotes(Protocol):
    """Stores, or an engine that holds most of them."""

    notes: Notes


class TimelineTrim:
    """Cuts timelines. A record twice is a record once: what has gone is not found again."""

    def __init__(self, stores: Stores, reached: Reached, releases: Releases) -> None:
        self._stores = stores
        self._reached = reached
        self._releases = releases

    def trim(self, change: HistoryTrimmed, event_id: int) -> None:
        """As of this event, through which the other lanes must have come."""
        for lane, at in (("rosters", self._reached.rosters), ("inboxes", self._reached.inboxes)):
            if at < event_id:
                raise Unavailable(f"{lane} are at event {at}, and {event_id} removes rows that they count")
        releases, timelines, through = self._releases, self._stores.timelines, change.through
        releases.release()
        for user in change.users:
            releases.note(timelines.drop_private(user, through=through), event_id)
        for group in change.groups:
            note_last(self._stores, group, through)
            releases.note(timelines.drop_group(group, through=through), event_id)
            self._stores.recent.drop(group)
        releases.release()


def note_last(stores: Stores, group: int, through: int) -> None:
    """If a cut leaves nothing of a group, note its last message: the next one names the one before it."""
    newest = stores.timelines.group_backward(group, limit=1)
    if newest and last_trimmed(stores, group) < newest[0].message_id <= through:
        put_last(stores, group, newest[0].message_id)


def put_last(stores: HasNotes, group: int, message_id: int) -> None:
    """Note the last message of a group of which nothing is left."""
    stores.notes.put(_name(group), b"%d" % message_id)


def last_trimmed(stores: HasNotes, group: int) -> int:
    """The last message of a group when a cut left nothing of it; 0 if none ever did."""
    return int(stores.notes.get(_name(group)) or 0)


def note_forgotten(stores: HasNotes, change: HistoryTrimmed) -> None:
    """Sends through here may be known no more: who finds something of that time again must not do it again."""
    if change.keys and change.through > forgotten_through(stores):
        stores.notes.put(_FORGOTTEN, b"%d" % change.through)


def forgotten_through(stores: HasNotes) -> int:
    """The message id through which send keys were forgotten; 0 if none ever was."""
    return int(stores.notes.get(_FORGOTTEN) or 0)


def _name(group: int) -> str:
    return f"trimmed:{group}"
