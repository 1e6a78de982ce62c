"""Everything but timelines, in Redis: writes go to an overlay, and a commit is one call of one function.

This node is the only one that writes here, so what it has cached holds. Two things could make that untrue, and both are
found out: another node that takes the place (its token is in the way of every commit), and a Redis that has lost what
it had, by a restart or a failover (its commit is not the last one; looked at after every new connection, and again by
every commit). Then nothing is answered until ``begin_again`` was called: the lanes go back to what Redis has, and the
log brings the rest.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from pixiu.backends.redis.bodies import RedisBodies
from pixiu.backends.redis.commit import Commits
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.contacts import RedisContacts
from pixiu.backends.redis.groups import RedisGroups
from pixiu.backends.redis.inboxes import RedisInboxes
from pixiu.backends.redis.last_acks import LastAcks
from pixiu.backends.redis.layout import FILLING, LAYOUT, Keys
from pixiu.backends.redis.notes import RedisNotes
from pixiu.backends.redis.overlay import Overlay
from pixiu.backends.redis.push_tokens import RedisPushTokens
from pixiu.backends.redis.recent import RedisRecent
from pixiu.backends.redis.sendkeys import RedisSendKeys
from pixiu.backends.redis.streams import RedisStreams
from pixiu.backends.redis.unread import RedisUnread
from pixiu.backends.redis.users import RedisUsers
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.backends.redis.address import RedisAddress
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.clock import Clock
    from pixiu.ports.contacts import Contacts
    from pixiu.ports.groups import Groups
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.notes import Notes
    from pixiu.ports.push_tokens import PushTokens
    from pixiu.ports.recent import Recent
    from pixiu.ports.sendkeys import SendKeys
    from pixiu.ports.streams import Streams
    from pixiu.ports.unread import Unread
    from pixiu.ports.users import Users

__all__ = ["RedisStores"]

_LAYOUT = "layout"


class RedisStores:
    """The stores of one node, whose name is ``node``. Raises ``Conflict`` if they are another node's.

    ``prefix`` stands before all keys, where several have their stores in one database.

    ``clock`` is for what is written now and then (``last_ack``); ``cached_users_max`` and the others are as for the
    embedded stores.
    """

    def __init__(
        self,
        address: RedisAddress,
        node: str,
        *,
        prefix: str = "",
        clock: Clock | None = None,
        cached_users_max: int = 40_000,
        kept_entries_max: int = 64,
        cached_body_bytes: int = 32 * 2**20,
    ) -> None:
        self.client = RedisClient(address)
        self.keys_of = keys = Keys(address.layout, prefix)
        self._commits = Commits(self.client, keys, node, secrets.token_hex(8))
        self._overlay = overlay = Overlay(self.client)
        try:
            self._commits.open()
            bodies = RedisBodies(overlay, keys, cached_bytes=cached_body_bytes, counts_max=4 * cached_users_max)
            self._applied = self._read_applied()
        except BaseException:
            self.client.close()
            raise
        inboxes = RedisInboxes(
            overlay, keys, fetch_counts=bodies.fetch_counts, cached_max=cached_users_max, kept_max=kept_entries_max,
            when_acked=LastAcks(overlay, keys, clock).acked if address.has_last_acks and clock is not None else None,
        )  # fmt: skip
        groups = RedisGroups(overlay, keys, cached_max=cached_users_max, cached_members_max=8 * cached_users_max)
        unread = RedisUnread(overlay, keys, cached_max=4 * cached_users_max)
        send_keys = RedisSendKeys(overlay, keys, cached_max=4 * cached_users_max)
        self.users: Users = RedisUsers(overlay, keys, cached_max=cached_users_max)
        self.contacts: Contacts = RedisContacts(overlay, keys, cached_max=cached_users_max)
        self.groups: Groups = groups
        self.inboxes: Inboxes = inboxes
        self.bodies: Bodies = bodies
        self.unread: Unread = unread
        self.keys: SendKeys = send_keys
        self.notes: Notes = RedisNotes(overlay, keys)
        self.push_tokens: PushTokens = RedisPushTokens(overlay, keys)
        self.recent: Recent = RedisRecent(overlay, keys)
        self.streams: Streams | None = None
        """For programs of others; None if the address wants none."""
        if address.streams:
            self.streams = RedisStreams(
                overlay, keys, entries_max=address.streams, applied=lambda: self._applied[Lane.TIMELINES]
            )
        self._begun: dict[Lane, int] | None = None
        """The event ids of a commit that is under way."""
        self._ended: tuple[dict[Lane, int], PixiuError | None] | None = None
        """Those of one that is over, until somebody asks what became of it."""
        self._parts = bodies, inboxes, groups, unread, send_keys
        self.when_lost: Callable[[], object] = lambda: None
        """Called when Redis was found to have lost something: whoever applies the log must call ``begin_again``."""
        self.when_begun: Callable[[], object] = lambda: None
        """Called when it was begun again."""
        self.log_begins: Callable[[], int] = lambda: 0
        """The first event that the log still has."""
        self.client.when_connected = self._connected

        def fetch(users: list[int]) -> None:
            inboxes.fetch(users)
            unread.fetch(users)

        groups.when_members = fetch

    @property
    def pending_bytes(self) -> int:
        """About how much the next commit writes."""
        return self._overlay.pending_bytes + sum(part.pending_bytes for part in self._parts)

    @property
    def problem(self) -> str:
        """Why nothing can be asked; empty if all is well."""
        return self.client.problem or self._commits.lost

    def problems(self) -> list[str]:
        """The same, as all stores say it."""
        return [self.problem] if self.problem else []

    @property
    def is_to_clear(self) -> bool:
        """Was something lost of which nobody knows what? ``begin_again`` then removes everything first."""
        return self._commits.is_to_clear

    @property
    def layout(self) -> int:
        """The layout that these were made with; 0 if they are empty."""
        return int(self._overlay.field(self.keys_of.meta, _LAYOUT) or 0)

    def note_layout(self) -> None:
        """All of it is there, in this program's layout. Counts with the next commit."""
        self._overlay.put_field(self.keys_of.meta, _LAYOUT, LAYOUT)

    def note_filling(self) -> None:
        """From the next commit on it is being filled: a node that finds it so empties it, and begins anew."""
        self._overlay.put_field(self.keys_of.meta, _LAYOUT, FILLING)

    @property
    def overlay(self) -> Overlay:
        """What waits for the next commit: rows that are made elsewhere are put there."""
        return self._overlay

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached."""
        return self._applied[lane]

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Write everything with one call, with the event ids. Raises ``Unavailable``, and may then be called again.

        One that was begun ends here; if it was of these event ids, that is all.
        """
        if self._begun is not None:
            self._end()
        ended, self._ended = self._ended, None
        if ended is not None:
            begun, error = ended
            if error is not None:
                raise error
            if begun == applied:
                return
        self._save(applied)
        self._written(applied, lambda: self._commits.commit(self._overlay.commands()))

    def begin_commit(self, applied: Mapping[Lane, int]) -> bool:
        """Begin what ``commit`` with these event ids will end. False: it has to do all of it. Raises ``Unavailable``.

        Nothing may be written until then but by those who do so through the overlay, which waits first.
        """
        if self.client.is_cluster:
            return False
        self._save(applied)
        self._or_refused(lambda: self._commits.begin(self._overlay.commands()))
        self._begun, self._ended = dict(applied), None
        self._overlay.when_late = self._end
        return True

    def is_answered(self, waited_ms: int) -> bool:
        """Of a commit that was begun so long ago: does ``commit`` end it without waiting?"""
        return self._begun is None or self.client.is_answered(waited_ms)

    def _end(self) -> None:
        """See the end of what was begun, and keep what became of it."""
        assert self._begun is not None
        begun, self._begun = self._begun, None
        self._overlay.when_late = None
        try:
            self._written(begun, self._commits.end)
        except PixiuError as error:
            self._ended = begun, error
        else:
            self._ended = begun, None

    def _save(self, applied: Mapping[Lane, int]) -> None:
        self._overlay.save()
        for lane, event_id in applied.items():
            self._overlay.put_field(self.keys_of.meta, f"lane:{lane.value}", event_id)

    def _written(self, applied: Mapping[Lane, int], write: Callable[[], object]) -> None:
        self._or_refused(write)
        self._overlay.written()
        self._applied.update(applied)

    def _or_refused(self, write: Callable[[], object]) -> None:
        was_lost = self._commits.lost
        try:
            write()
        except PixiuError as error:
            self._overlay.refused(error)
            if self._commits.lost and not was_lost:
                self.when_lost()
            raise

    def bodies_applied(self, lane: Lane) -> int:
        """The bodies are here, with everything else."""
        return self.applied(lane)

    def begin_again(self) -> None:
        """Redis has lost something: forget what was cached, and go on from what it has. Raises ``Unavailable``."""
        self._begun = self._ended = self._overlay.when_late = None
        self._commits.open()
        self._overlay.forget()
        self._applied = self._read_applied()
        needed, begins = min(self._applied.values()) + 1, self.log_begins()
        if needed < begins:
            self._commits.has_lost(
                f"Redis has lost what came before event {begins}, with which the log begins: restore it from its own "
                "backup, or restore a backup of the node (pixiu restore)"
            )
            raise Unavailable(self._commits.lost)
        self.when_begun()

    def look(self) -> None:
        """See whether Redis is there, when nobody asks: ``problem`` says what was found."""
        with suppress(Unavailable):  # it is back, and has lost something, or is gone again
            self.client.look()

    def flush(self) -> None:
        """A commit is as durable as Redis is told to make it."""

    def close(self) -> None:
        """Let go, without a commit."""
        self.client.close()

    def clear(self) -> None:
        """Remove everything that is Pixiu's: before the stores are made again."""
        self._commits.clear()
        self.begin_again()

    def _connected(self) -> None:
        """See whether Redis is where it was; who was told of a loss is not told again before it was mended."""
        was_lost = self._commits.lost
        if not was_lost:
            self._commits.check()
        if self._commits.lost:
            if not was_lost:
                self.when_lost()
            raise Unavailable(self._commits.lost)

    def _read_applied(self) -> dict[Lane, int]:
        fields = self._overlay.fields([self.keys_of.meta])[0]
        return {lane: int(fields.get(f"lane:{lane.value}", 0)) for lane in Lane}
