"""What a user wrote is blanked at the others', like a recall; the user's own timeline and counts go.

It is done in the lane of timelines, since that is where one sees who wrote what. Bodies are of another lane, which must
have come as far: a body that is not there yet cannot be blanked. Whatever fails in the middle is done again from the
beginning: blanking twice is blanking once, and rows that have gone have their references released by the next attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.body import is_written, tombstone
from pixiu.model.errors import Unavailable
from pixiu.model.timeline import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.ports.stores import Stores
    from pixiu.ports.streams import Streams
    from pixiu.roles.carrier.reached import Reached
    from pixiu.roles.carrier.releases import Releases

__all__ = ["TimelineErasure"]

_PAGE = 500
_ALL = 2**63 - 1


class TimelineErasure:
    """Erases users from timelines, recent caches and unread counts, and what they wrote from the bodies."""

    def __init__(self, stores: Stores, reached: Reached, releases: Releases) -> None:
        self._timelines = stores.timelines
        self._recent = stores.recent
        self._streams: Streams | None = getattr(stores, "streams", None)
        self._unread = stores.unread
        self._groups = stores.groups
        self._bodies = stores.bodies
        self._reached = reached
        self._releases = releases

    def erase(self, user: int, event_id: int) -> None:
        """As of this event, through which the other lanes must have come."""
        for lane, at in (("rosters", self._reached.rosters), ("inboxes", self._reached.inboxes)):
            if at < event_id:
                raise Unavailable(f"{lane} are at event {at}, and {event_id} erases what they hold")
        self._releases.release()
        groups = sorted({*self._groups.groups_of(user), *self._groups.past_groups_of(user)})
        for group in groups:
            self._blank_in_group(user, group)
        peers = self._blank_in_private(user)
        if self._streams is not None:
            self._streams.erase(user, peers=peers, groups=groups)
        self._releases.note(self._timelines.drop_private(user, through=_ALL), event_id)
        self._releases.release()
        for conversation in list(self._unread.of(user)):
            self._unread.drop(user, conversation)

    def _blank_in_private(self, user: int) -> set[int]:
        """Returns whom the user has written to."""
        after = 0
        peers: set[int] = set()
        while rows := self._timelines.private_forward(user, after=after, limit=_PAGE):
            own = {row.message_id: row.peer for row in rows if not row.is_incoming and row.state != State.RECALLED}
            for message_id in self._written(own):
                peer = own[message_id]
                self._bodies.replace(message_id, tombstone(message_id, from_id=user, to_id=peer, is_group=False))
                self._timelines.recall_private(peer, message_id)
            peers.update(row.peer for row in rows)
            after = rows[-1].message_id
        return peers

    def _blank_in_group(self, user: int, group: int) -> None:
        after = 0
        while rows := self._timelines.group_forward(group, after=after, limit=_PAGE):
            own = [row.message_id for row in rows if row.from_user == user and row.state != State.RECALLED]
            for message_id in self._written(own):
                body = tombstone(message_id, from_id=user, to_id=group, is_group=True)
                self._bodies.replace(message_id, body)
                self._recent.replace(group, message_id, body)
                self._timelines.recall_group(group, message_id)
            after = rows[-1].message_id

    def _written(self, message_ids: Iterable[int]) -> list[int]:
        """Those of these messages that say something of the user's own: notices and recalls name numbers only."""
        ids = list(message_ids)
        bodies = self._bodies.get(ids) if ids else {}
        return [message_id for message_id in ids if message_id not in bodies or is_written(bodies[message_id])]
