"""A bounded cache of checked stretches of topic logs, shared by everyone who reads there.

A hundred subscribers of one topic read the disk and check its bytes once; each of them costs one write to its socket.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.queue.storage.topic_log import TopicLog, Window

Place = tuple[int, int, int]
"""Topic, file number, position."""


class Windows:
    """Least recently used windows go first once ``limit_bytes`` is passed."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size = 0
        self._windows: OrderedDict[Place, Window] = OrderedDict()

    def add(self, topic: int, window: Window) -> None:
        """Keep a window that has just been written or read."""
        size = _size(window)
        if size > self._limit_bytes // 2:
            return
        place = topic, window.file_number, window.starts[0]
        before = self._windows.pop(place, None)
        if before is not None:
            self._size -= _size(before)
        self._windows[place] = window
        self._size += size
        while self._size > self._limit_bytes:
            _, oldest = self._windows.popitem(last=False)
            self._size -= _size(oldest)

    def at(self, topic: int, log: TopicLog, number: int, position: int, *, count: int) -> Window | None:
        """The window that begins here, from memory or from disk; None at the end of the log.

        What was written in small pieces is in memory in small pieces; who wants ``count`` items and finds far fewer,
        though there are more, is better served by one read of the disk.
        """
        place = topic, number, position
        window = self._windows.get(place)
        if window is not None and (window.is_full or is_enough(window, 0, count, log)):
            self._windows.move_to_end(place)
            return window
        window = log.read(number, position)
        if window is not None:
            self.add(topic, window)
        return window

    def forget(self, topic: int) -> None:
        """Drop everything of a topic that has ended."""
        for place in [place for place in self._windows if place[0] == topic]:
            self._size -= _size(self._windows.pop(place))

    def clear(self) -> None:
        """Drop everything."""
        self._windows.clear()
        self._size = 0


def is_enough(window: Window, item: int, count: int, log: TopicLog) -> bool:
    """Does this window have at least half of what is wanted, or all there is?"""
    return 2 * (window.count - item) >= count or (window.next_file_number, window.next_position) == log.end


def _size(window: Window) -> int:
    return len(window.data) + 40 * len(window.starts) + 512
