"""Connections that say nothing, watched apart from the others, so that a crowd of them cannot fill a turn of the loop.

The loop serves everything that is ready before it goes on. When ten thousand idle clients are cut at once, that is a
tenth of a second in which nobody else is heard. So those who say nothing are watched by an epoll of their own, which
the loop watches as one descriptor: whatever happens to them, a few of them are woken per turn, in the order in which it
happened. Who is woken is the loop's again, until it has been silent for a while. What it says meanwhile waits in the
system: nothing is read here.

libuv, which is in uvloop, leaves a descriptor that is not read in its own epoll until the next event. Ten thousand such
events were one turn of 20 ms, so they are taken out here, which libuv does not mind as long as it waits for nothing of
that descriptor: neither for bytes nor, a connection that is owed some is not parked, for room to write.

Of a connection with TLS it is the socket below that is not read. Nothing waits inside of TLS then but what is not
whole: all else was handed on as it came.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["SILENT_SECONDS", "WOKEN_PER_TURN", "Parking"]

WOKEN_PER_TURN = 16
"""Each costs twenty to forty microseconds, if all it has to say is that it is gone."""
SILENT_SECONDS = 1.0
LOOKED_AT_PER_TURN = 64
_DESCRIPTORS = Path("/proc/self/fd")


class Parkable(Protocol):
    """A connection whose reading can be stopped."""

    number: int
    """Its descriptor."""
    has_spoken: bool
    """Since this was last looked at."""

    def park(self) -> bool:
        """Read no more until ``wake``. False: it cannot be parked now, as it is when bytes for it wait."""
        ...

    def wake(self) -> None:
        """Something is there to be read, or the connection is gone: read again."""
        ...


class Parking:
    """The silent connections of one loop. Where the system has no epoll, none is ever parked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._loops_own: select.epoll | None = None
        self._parked: dict[int, Parkable] = {}
        self._awake: dict[Parkable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._wake_some)

    def __len__(self) -> int:
        return len(self._parked)

    def came(self, connection: Parkable) -> None:
        """A connection that may be parked, when it is silent."""
        if self._epoll is None:
            return
        self._awake[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(SILENT_SECONDS, self._look)

    def left(self, connection: Parkable) -> None:
        """It is gone, and its descriptor will be another's."""
        self._awake.pop(connection, None)
        self.release(connection)

    def release(self, connection: Parkable) -> bool:
        """Watch it here no more. False: it was not parked."""
        if self._epoll is None or self._parked.get(connection.number) is not connection:
            return False
        del self._parked[connection.number]
        with contextlib.suppress(OSError):  # closed already: then the system has forgotten it
            self._epoll.unregister(connection.number)
        return True

    def close(self) -> None:
        """Watch nobody any more."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        if self._loops_own is not None:
            self._loops_own.close()
            self._loops_own = None
        if self._timer is not None:
            self._timer.cancel()
        self._parked.clear()
        self._awake.clear()

    def _wake_some(self) -> None:
        if self._epoll is None:
            return
        for number, _ in self._epoll.poll(0, WOKEN_PER_TURN):
            connection = self._parked.get(number)
            if connection is None:  # closed here, and a child process has it still: nobody's
                with contextlib.suppress(OSError):
                    self._epoll.unregister(number)
                continue
            self.release(connection)
            connection.wake()
            self.came(connection)

    def _look(self) -> None:
        """Park those who were silent since the last look: a part of them at a time."""
        self._timer = None
        if self._epoll is not None:
            if self._loops_own is None:
                self._loops_own = _epoll_that_watches(self._epoll.fileno())
            self._look_at(list(self._awake), 0)

    def _look_at(self, awake: list[Parkable], first: int) -> None:
        epoll, behind = self._epoll, first + LOOKED_AT_PER_TURN
        if epoll is None:
            return
        for connection in awake[first:behind]:
            if connection.has_spoken:
                connection.has_spoken = False
            elif connection in self._awake and connection.park():
                del self._awake[connection]
                self._parked[connection.number] = connection
                epoll.register(connection.number, select.EPOLLIN | select.EPOLLRDHUP)
                if self._loops_own is not None:
                    with contextlib.suppress(OSError):  # not there: it came in this turn
                        self._loops_own.unregister(connection.number)
        if behind < len(awake):
            self._loop.call_soon(self._look_at, awake, behind)
        elif self._awake and self._timer is None:
            self._timer = self._loop.call_later(SILENT_SECONDS, self._look)


def _epoll_that_watches(number: int) -> select.epoll | None:
    """The loop's own, which it does not show: the one of this process that watches this descriptor, if there is one."""
    line = f"tfd:{number:9} "
    with contextlib.suppress(OSError):
        for found in _DESCRIPTORS.iterdir():
            with contextlib.suppress(OSError):
                if str(found.readlink()) == "anon_inode:[eventpoll]" and line in _info(found.name):
                    return select.epoll.fromfd(os.dup(int(found.name)))
    return None


def _info(number: str) -> str:
    return (_DESCRIPTORS.parent / "fdinfo" / number).read_text()
