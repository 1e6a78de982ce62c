"""Requests of a client on their way: written once per connection, repeated where that is safe, never for ever."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec.json import Encoder

from pixiu.machines.client_session.commands import Answered, FateUnknown
from pixiu.model.errors import Overloaded, PixiuError, TooLarge, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ONCE", "REQUESTS_MAX", "SENDS", "WINDOW", "Requests"]

REQUESTS_MAX = 1_000
"""Requests that may wait; one more is refused at once."""
WINDOW = 32
"""Requests on one connection without an answer; a server takes 64."""
AGAIN_MS = 200
"""A send that the server cannot take now is sent again after this, then after twice as long; or as the server says."""

SENDS = frozenset({"send", "gsend", "schedule"})
"""Named by a send_id: they are done once however often they are sent, so they are sent until they are answered."""
ONCE = frozenset(
    {"say", "signal", "typing", "create_user", "create_group", "unschedule", "push", "system", "broadcast"}
)
"""Doing these again is not the same as doing them once, or not worth it: a cut connection ends them."""

_encode = Encoder().encode


class _Request:
    __slots__ = ("action", "deadline", "number", "payload", "repeats", "starts", "then", "tries", "was_written")

    def __init__(self, number: int, action: str, payload: bytes, deadline: int, then: Any, *, repeats: bool) -> None:
        self.number = number
        self.action = action
        self.payload = payload
        self.deadline = deadline
        self.then = then
        self.repeats = repeats
        self.starts = 0
        self.tries = 0
        self.was_written = False


class Requests:
    """All that was asked and not answered yet."""

    def __init__(self, write: Callable[[bytes], None], answered: Callable[[Answered], None]) -> None:
        self._write = write
        self._answered = answered
        self._number = 0
        self._all: dict[int, _Request] = {}
        self._queue: deque[_Request] = deque()
        self._flying: dict[int, _Request] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(
        self,
        action: str,
        params: dict[str, Any],
        deadline: int,
        *,
        repeats: bool,
        then: Any = None,
        is_first: bool = False,
    ) -> int:
        """Queue a request; its number. ``then`` takes the answer instead of an ``Answered``."""
        if len(self._all) >= REQUESTS_MAX and then is None:
            raise Overloaded(f"{REQUESTS_MAX} requests wait for their answers already")
        self._number += 1
        payload = _encode({"id": self._number, "action": action, "params": params})
        request = _Request(self._number, action, payload, deadline, then, repeats=repeats)
        self._all[request.number] = request
        if len(self._queue) >= 2 * REQUESTS_MAX:  # most of them ended while there was no connection
            self._queue = deque(each for each in self._queue if each.number in self._all)
        if is_first:
            self._queue.appendleft(request)
        else:
            self._queue.append(request)
        return request.number

    def pump(self, now: int) -> None:
        """Write what may be written."""
        waits: list[_Request] = []
        while self._queue and len(self._flying) < WINDOW:
            request = self._queue.popleft()
            if request.number not in self._all:
                continue
            if request.starts > now:
                waits.append(request)
                continue
            request.was_written = True
            self._flying[request.number] = request
            self._write(request.payload)
        self._queue.extendleft(reversed(waits))

    def answer(self, number: int, answer: dict[str, Any] | PixiuError, now: int) -> None:
        """The server has answered."""
        request = self._flying.pop(number, None)
        if request is None:
            return  # given up meanwhile
        if isinstance(answer, Unavailable) and request.action in SENDS:
            wait = max(answer.retry_after_ms, AGAIN_MS << min(request.tries, 6))
            request.tries += 1
            if now + wait < request.deadline:
                request.starts = now + wait
                self._queue.append(request)
                return
        self._end(request, answer, now)

    def cut(self, now: int) -> None:
        """The connection is gone: what may be repeated waits for the next one."""
        flying, self._flying = list(self._flying.values()), {}
        again = [request for request in flying if request.repeats]
        self._queue.extendleft(reversed(again))
        for request in flying:
            if not request.repeats:
                self._end(request, FateUnknown(f"the connection was cut; {request.action} may be done, or not"), now)

    def too_large(self, message: str, now: int) -> None:
        """The server closed since a frame was too large: that was the largest one."""
        if self._flying:
            largest = max(self._flying.values(), key=lambda request: len(request.payload))
            del self._flying[largest.number]
            self._end(largest, TooLarge(message), now)

    def expire(self, now: int) -> None:
        """End what took too long."""
        for request in [request for request in self._all.values() if request.deadline <= now]:
            if request.was_written:
                error: PixiuError = FateUnknown(f"no answer to {request.action} in time; it may be done, or not")
            else:
                error = Unavailable(f"no connection in time for {request.action}; it was not sent")
            self._flying.pop(request.number, None)
            self._end(request, error, now)

    def give_up(self, number: int) -> None:
        """Nobody waits for this answer any more."""
        self._all.pop(number, None)
        self._flying.pop(number, None)

    def fail(self, error: PixiuError, now: int) -> None:
        """End all of them."""
        for request in list(self._all.values()):
            self._end(request, error, now)
        self._queue.clear()
        self._flying.clear()

    def due(self, *, may_write: bool) -> int | None:
        """When ``expire`` has to be called, or, where something may be written, ``pump``."""
        times = [request.deadline for request in self._all.values()]
        if may_write and len(self._flying) < WINDOW:
            times += [request.starts for request in self._queue if request.starts and request.number in self._all]
        return min(times, default=None)

    def _end(self, request: _Request, answer: dict[str, Any] | PixiuError, now: int) -> None:
        if self._all.pop(request.number, None) is not None:
            if request.then is not None:
                request.then(answer, now)
            else:
                self._answered(Answered(request.number, answer))
