"""``Recent``: a group's newest messages in memory, and in the list of seed 004, newest first, as MsgChat.

The list is written with the commit, so after a restart a group is warm as soon as it is asked for: nothing is read from
the timelines. Whoever forgets a group in memory finds it in Redis again, unless something of it has not got there yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.backends.memory.recent import MemoryRecent
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.ports.recent import RECENT_MAX

if TYPE_CHECKING:
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisRecent"]

_COLD_MAX = 100_000
_PART = 500


class RedisRecent(MemoryRecent):
    """The newest messages by group."""

    def __init__(self, overlay: Overlay, keys: Keys, *, groups_max: int = 10_000, bytes_max: int = 64 * 2**20) -> None:
        super().__init__(groups_max=groups_max, bytes_max=bytes_max)
        self._overlay = overlay
        self._keys = keys
        self._cold: set[int] = set()
        """Groups that Redis has nothing of."""
        self._unwritten: set[int] = set()
        """Groups of which something waits for the commit."""
        overlay.attach(self)

    def is_warm(self, group: int) -> bool:
        """Does the cache know this group's newest messages, or does Redis?"""
        return group in self._groups or (group not in self._cold and self._load(group))

    def warm(self, group: int, messages: list[tuple[int, bytes]], *, is_all: bool) -> None:
        """Fill a group's cache, newest first."""
        super().warm(group, messages, is_all=is_all)
        self._rewrite(group)

    def push(self, group: int, message_id: int, body: bytes) -> None:
        """A new message; nothing happens while the group is cold."""
        if not self.is_warm(group):
            if group not in self._cold:  # what Redis has would have a hole
                self._drop(group)
            return
        newest = self._groups[group]
        had_all, count = newest.has_all, len(newest.messages)
        if count and message_id <= newest.messages[-1][0]:
            return
        super().push(group, message_id, body)
        state = self._keys.recent_state % group
        self._overlay.step("RECENT", self._keys.recent % group, state, _padded(message_id), body, RECENT_MAX)
        if had_all and not newest.has_all:
            self._overlay.step("HSET", state, "all", 0)
        self._unwritten.add(group)

    def page(self, group: int, offset: int, count: int) -> list[tuple[int, bytes]]:
        """``count`` messages behind the newest ``offset``, newest first."""
        return super().page(group, offset, count) if self.is_warm(group) else []

    def count(self, group: int) -> int:
        """How many are held."""
        return super().count(group) if self.is_warm(group) else 0

    def has_all(self, group: int) -> bool:
        """Is the oldest one held the group's first message?"""
        return self.is_warm(group) and super().has_all(group)

    def replace(self, group: int, message_id: int, body: bytes) -> None:
        """A recall: other content for a message, if it is held."""
        if self.is_warm(group):
            super().replace(group, message_id, body)
            self._rewrite(group)
        elif group not in self._cold:
            self._drop(group)

    def drop(self, group: int) -> None:
        """Retention: the group is cold, here and in Redis."""
        self._forget(group)
        self._drop(group)
        self._unwritten.add(group)  # until the commit Redis has what is no more

    def save(self) -> None:
        """All is in the overlay."""

    def written(self) -> None:
        """Redis has what memory has."""
        self._unwritten.clear()

    def forget(self) -> None:
        """Begin anew."""
        self._groups.clear()
        self._bytes = 0
        self._cold.clear()
        self._unwritten.clear()

    def _load(self, group: int) -> bool:
        """Take over what Redis has. What cannot be read is as good as nothing."""
        if group in self._unwritten:
            return False
        list_key, state_key = self._keys.recent % group, self._keys.recent_state % group
        bodies, words = self._overlay.client.ask([("LRANGE", list_key, 0, RECENT_MAX - 1), ("HGETALL", state_key)])
        state = dict(zip(words[::2], words[1::2], strict=True))
        try:
            messages = [(MsgChat.FromString(body).msgId, body) for body in bodies]
        except DecodeError:
            messages, state = [], {}
        newest = _padded(messages[0][0] if messages else 0).encode()
        if state.get(b"newest") != newest:
            if len(self._cold) >= _COLD_MAX:
                self._cold.clear()
            self._cold.add(group)
            return False
        super().warm(group, messages, is_all=state.get(b"all") == b"1")
        return group in self._groups

    def _rewrite(self, group: int) -> None:
        """Write all that memory holds of a group; what it had no room for is dropped."""
        newest = self._groups.get(group)
        if newest is None:
            self._drop(group)
            return
        key = self._keys.recent % group
        bodies = [body for _, body in reversed(newest.messages)]
        self._overlay.step("DEL", key)
        for at in range(0, len(bodies), _PART):
            self._overlay.step("RPUSH", key, *bodies[at : at + _PART])
        last = _padded(newest.messages[-1][0] if newest.messages else 0)
        self._overlay.step("HSET", self._keys.recent_state % group, "newest", last, "all", int(newest.has_all))
        self._cold.discard(group)
        self._unwritten.add(group)

    def _drop(self, group: int) -> None:
        for key in (self._keys.recent % group, self._keys.recent_state % group):
            self._overlay.step("DEL", key)
        self._unwritten.discard(group)
        self._cold.add(group)


def _padded(message_id: int) -> str:
    """Compares as text like a number."""
    return f"{message_id:020d}"
