"""Connections that say nothing, watched apart from the others, so that a crowd of them cannot fill a turn of the loop.

The loop serves everything that is ready before it goes on. When ten thousand idle clients are cut at once, that is a
tenth of a second in which nobody else is heard. So those who say nothing are watched by an epoll of their own, which
the loop watches as one descriptor: whatever happens to them, a few of them are woken per turn, in the order in which it
happened. Who is woken is the loop's again, until it has been silent for a while. What it says meanwhile waits in the
system: nothing is read here.

A connection with TLS stays with the loop: what its socket shows does not tell what was said.
"""

from __future__ import annotations

import contextlib
import select
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["SILENT_SECONDS", "WOKEN_PER_TURN", "Parking"]

WOKEN_PER_TURN = 64
"""Each costs ten to twenty microseconds, if all it has to say is that it is gone."""
SILENT_SECONDS = 1.0
PARKED_PER_TURN = 256


class Parkable(Protocol):
    """A connection whose reading can be stopped."""

    number: int
    """Its descriptor."""
    has_spoken: bool
    """Since this was last looked at."""

    def park(self) -> bool:
        """Read no more until ``wake``. False: it cannot be parked now."""
        ...

    def wake(self) -> None:
        """Something is there to be read, or the connection is gone: read again."""
        ...


class Parking:
    """The silent connections of one loop. Where the system has no epoll, none is ever parked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
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
        silent = [each for each in self._awake if not each.has_spoken]
        for each in self._awake:
            each.has_spoken = False
        self._park(silent, 0)
        if self._awake and self._epoll is not None:
            self._timer = self._loop.call_later(SILENT_SECONDS, self._look)

    def _park(self, silent: list[Parkable], first: int) -> None:
        epoll = self._epoll
        if epoll is None:
            return
        for connection in silent[first : first + PARKED_PER_TURN]:
            if connection in self._awake and not connection.has_spoken and connection.park():
                del self._awake[connection]
                self._parked[connection.number] = connection
                epoll.register(connection.number, select.EPOLLIN | select.EPOLLRDHUP)
        if first + PARKED_PER_TURN < len(silent):
            self._loop.call_soon(self._park, silent, first + PARKED_PER_TURN)
