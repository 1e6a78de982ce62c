"""``Recent`` in memory: the only kind there is on one node, since a cold group is always right.

Bounded in groups and in bytes; the group that was touched longest ago is forgotten first, and whole.
"""

from collections import OrderedDict

from pixiu.ports.recent import RECENT_MAX

__all__ = ["MemoryRecent"]

_MESSAGE_BYTES = 150
"""What a message costs beside its body."""


class _Newest:
    """One group's newest messages, oldest first."""

    __slots__ = ("has_all", "messages", "size")

    def __init__(self, messages: list[tuple[int, bytes]], *, has_all: bool) -> None:
        self.messages = messages
        self.has_all = has_all
        self.size = sum(_MESSAGE_BYTES + len(body) for _, body in messages)


class MemoryRecent:
    """The newest messages by group."""

    def __init__(self, *, groups_max: int = 10_000, bytes_max: int = 64 * 2**20) -> None:
        assert groups_max > 0
        self._groups: OrderedDict[int, _Newest] = OrderedDict()
        self._groups_max = groups_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def is_warm(self, group: int) -> bool:
        """Does the cache know this group's newest messages?"""
        return group in self._groups

    def warm(self, group: int, messages: list[tuple[int, bytes]], *, is_all: bool) -> None:
        """Fill a group's cache, newest first. ``is_all``: the group has no older ones."""
        self._forget(group)
        newest = _Newest(messages[RECENT_MAX - 1 :: -1], has_all=is_all and len(messages) <= RECENT_MAX)
        self._groups[group] = newest
        self._bytes += newest.size
        self._keep_bounds()

    def push(self, group: int, message_id: int, body: bytes) -> None:
        """A new message; nothing happens while the group is cold, or when it is held already."""
        newest = self._groups.get(group)
        if newest is None or (newest.messages and message_id <= newest.messages[-1][0]):
            return
        self._groups.move_to_end(group)
        newest.messages.append((message_id, body))
        self._grow(newest, _MESSAGE_BYTES + len(body))
        if len(newest.messages) > RECENT_MAX:
            self._grow(newest, -_MESSAGE_BYTES - len(newest.messages[0][1]))
            del newest.messages[0]
            newest.has_all = False
        self._keep_bounds()

    def latest(self, group: int, count: int) -> list[tuple[int, bytes]]:
        """The newest ``count``, newest first."""
        return self.page(group, 0, count)

    def page(self, group: int, offset: int, count: int) -> list[tuple[int, bytes]]:
        """``count`` messages behind the newest ``offset``, newest first."""
        newest = self._groups.get(group)
        if newest is None:
            return []
        self._groups.move_to_end(group)
        end = max(len(newest.messages) - max(offset, 0), 0)
        return newest.messages[max(end - max(count, 0), 0) : end][::-1]

    def count(self, group: int) -> int:
        """How many are held."""
        newest = self._groups.get(group)
        return len(newest.messages) if newest else 0

    def has_all(self, group: int) -> bool:
        """Is the oldest one held the group's first message?"""
        newest = self._groups.get(group)
        return newest is not None and newest.has_all

    def replace(self, group: int, message_id: int, body: bytes) -> None:
        """A recall: other content for a message, if it is held."""
        newest = self._groups.get(group)
        if newest is None:
            return
        for index, (number, old) in enumerate(newest.messages):
            if number == message_id:
                newest.messages[index] = number, body
                self._grow(newest, len(body) - len(old))
                self._keep_bounds()
                return

    def drop(self, group: int) -> None:
        """Retention: the group is cold."""
        self._forget(group)

    def _grow(self, newest: _Newest, size: int) -> None:
        newest.size += size
        self._bytes += size

    def _forget(self, group: int) -> None:
        newest = self._groups.pop(group, None)
        if newest is not None:
            self._bytes -= newest.size

    def _keep_bounds(self) -> None:
        while len(self._groups) > self._groups_max or (self._bytes > self._bytes_max and self._groups):
            self._forget(next(iter(self._groups)))
