"""The door: actions that any Redis client adds to the stream ``g:all`` are performed by this node.

A thread reads, claims and answers; the loop decides (``machines/door.py``) and performs. An action goes the way of
every other one, under a key that is made from its entry: whatever dies in between, it takes effect once. The entry is
acknowledged when the log has accepted what it asked for, with its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import TYPE_CHECKING

from pixiu.backends.redis.door import DoorStream, Entry, Reply
from pixiu.im.draft import Actor, Answer, UnknownUsers
from pixiu.im.entries import ACTIONS, Asking, asking_of, key_of
from pixiu.machines.door import DoorMachine
from pixiu.model.errors import PixiuError, RateLimited, RequestError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.redis.address import RedisAddress
    from pixiu.config.door import DoorSettings
    from pixiu.node.messaging import Messaging
    from pixiu.ports.clock import Clock

__all__ = ["DELIVERIES_MAX", "RESULT_MAX", "Door"]

log = logging.getLogger(__name__)

DELIVERIES_MAX = 16
"""An entry that was begun this often and never finished is taken for the reason, and put aside."""

RESULT_MAX = 65_536
"""Characters of a result; of a longer one it is only said that it is done."""

_BUSY_SECONDS = 0.02
"""While something is under way: between two looks whether there is more."""
_JOIN_SECONDS = 5.0


class Door:
    """One consumer, from start to stop. ``problems`` says why a node should get no traffic."""

    def __init__(
        self,
        address: RedisAddress,
        name: str,
        settings: DoorSettings,
        messaging: Messaging,
        clock: Clock,
        is_ready: Callable[[], bool],
    ) -> None:
        """``is_ready``: is the node itself well? If not, what fails is not the entry's fault."""
        self._address = address
        self._name = name
        self._settings = settings
        self._messaging = messaging
        self._clock = clock
        self._is_ready = is_ready
        self._machine: DoorMachine[Asking, Reply] = DoorMachine()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._replies: list[Reply] = []
        self._problem = "not connected yet"
        self._held: set[str] = set()
        """Of the thread: what was read, and is not finished."""
        self.done = self.refused = self.malformed = self.claimed = 0

    # Life.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="pixiu-door", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Read no more. What is under way stays pending, and is done with the next start or by another consumer."""
        self._closing.set()
        self._wake.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    def problems(self) -> list[str]:
        """Why nothing comes in; empty if all is well."""
        return [f"door: {self._problem}"] if self._problem else []

    @property
    def held(self) -> int:
        """Entries that were read, and not answered yet."""
        return self._machine.count

    # The loop's side.

    def _took(self, entries: list[Entry]) -> None:
        if self._closing.is_set():
            return
        for entry in entries:
            try:
                if entry.deliveries > DELIVERIES_MAX:
                    raise RequestError(f"begun {entry.deliveries - 1} times, and never finished")
                asking = self._checked(asking_of(entry.entry_id, entry.fields))
            except RequestError as error:
                self._reply(Reply(entry.entry_id, _error(error), is_malformed=True))
                self.malformed += 1
            else:
                self._machine.take(entry.entry_id, asking, is_alone=asking.is_alone)
        self._go_on()

    def _checked(self, asking: Asking) -> Asking:
        if not asking.user and asking.action != "create_user" and self._settings.rights != "admins":
            raise RequestError("uid is missing: who does it")
        return asking

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closing.is_set() or self._loop is None:
            return
        for entry_id, asking in self._machine.begin(self._now_ms()):
            self._perform(entry_id, asking)
        wait_ms = self._machine.due_in_ms(self._now_ms())
        if wait_ms is not None:
            self._timer = self._loop.call_later(wait_ms / 1000, self._go_on)

    def _perform(self, entry_id: str, asking: Asking) -> None:
        is_done = False

        def answered(answer: Answer | PixiuError) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._answered(entry_id, asking, answer)

        def found(number: int | PixiuError) -> None:
            if isinstance(number, UnknownUsers) and asking.action == "create_user":
                actor = Actor(0, is_admin=True)  # as an admin who creates somebody, and nothing else
            elif isinstance(number, PixiuError):
                answered(number)
                return
            else:
                actor = Actor(number, asking.platform)
            self._act(actor, asking, answered)

        try:
            if asking.user:
                self._messaging.find_user(asking.user, found)
            else:
                self._act(Actor(0, is_admin=True), asking, answered)
        except PixiuError as error:
            answered(error)
        except Exception as error:  # a door's boundary: a bug must not stop the stream
            log.exception("an action of the stream met a bug")
            answered(PixiuError(f"{type(error).__name__}: {error}"))

    def _act(self, actor: Actor, asking: Asking, done: Callable[[Answer | PixiuError], object]) -> None:
        # What was made of the entry stays as it is: it may be done again.
        self._messaging.act(actor, asking.action, dict(asking.params), done, key=key_of(actor.user, asking))

    def _answered(self, entry_id: str, asking: Asking, answer: Answer | PixiuError) -> None:
        if self._closing.is_set():
            return
        reply = Reply(entry_id, (*_about(asking), *_outcome(answer)))
        if isinstance(answer, Unavailable) and not isinstance(answer, RateLimited):
            is_over = self._machine.fail(entry_id, reply, self._now_ms(), is_ready=self._is_ready())
        else:
            self._machine.finish(entry_id, reply)
            is_over = True
        if is_over:
            if isinstance(answer, PixiuError):
                self.refused += 1
            else:
                self.done += 1
            self._reply(reply)
        assert self._loop is not None
        self._loop.call_soon(self._go_on)

    def _now_ms(self) -> int:
        return self._clock.monotonic_us() // 1000

    def _reply(self, reply: Reply) -> None:
        with self._lock:
            self._replies.append(reply)
        self._wake.set()

    # The thread's side.

    def _run(self) -> None:
        stream: DoorStream | None = None
        claim_at = 0
        while not self._closing.is_set():
            try:
                if stream is None:
                    stream = DoorStream(
                        self._address, self._name, answers_max=self._settings.answers_max, actions=ACTIONS
                    )
                self._finish(stream)
                if self._now_ms() >= claim_at:
                    self._claim(stream)
                    claim_at = self._now_ms() + self._settings.claim_ms // 3
                self._read(stream)
                self._problem = ""
            except PixiuError as error:
                if not self._problem:
                    log.warning("the door is shut", extra={"reason": str(error)})
                self._problem = str(error)
                self._closing.wait(self._address.probe_ms / 1000)
            except Exception as error:  # a thread's boundary
                log.exception("the door met a bug, will try again")
                self._problem = f"{type(error).__name__}: {error}"
                self._closing.wait(1)
        if stream is not None:
            self._end(stream)

    def _end(self, stream: DoorStream) -> None:
        """What was done is answered, if Redis is there."""
        try:
            self._finish(stream)
        except PixiuError as error:
            log.warning("answers were not written", extra={"reason": str(error)})
        stream.close()

    def _finish(self, stream: DoorStream) -> None:
        with self._lock:
            replies = self._replies[:]
        if not replies:
            return
        stream.finish(replies)
        with self._lock:
            del self._replies[: len(replies)]
        ids = [reply.entry_id for reply in replies]
        self._held.difference_update(ids)
        self._tell(lambda: self._machine.written(ids))

    def _claim(self, stream: DoorStream) -> None:
        stream.keep(sorted(self._held))
        room = self._settings.window - len(self._held)
        if room > 0:
            self.claimed += self._hand_over(stream.claim(room, self._settings.claim_ms))

    def _read(self, stream: DoorStream) -> None:
        room = self._settings.window - len(self._held)
        self._wake.clear()
        found = self._hand_over(stream.read(room, is_waiting=not self._held)) if room > 0 else 0
        with self._lock:
            has_replies = bool(self._replies)
        if self._held and not found and not has_replies:
            self._wake.wait(_BUSY_SECONDS)

    def _hand_over(self, entries: list[Entry]) -> int:
        new = [entry for entry in entries if entry.entry_id not in self._held]
        if new:
            self._held.update(entry.entry_id for entry in new)
            self._tell(lambda: self._took(new))
        return len(new)

    def _tell(self, call: Callable[[], object]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop has ended
            self._closing.set()


def _about(asking: Asking) -> tuple[tuple[str, str], ...]:
    known = (("action", asking.action), ("uid", asking.user), ("send_id", asking.send_id))
    return tuple((name, text) for name, text in known if text)


def _outcome(answer: Answer | PixiuError) -> tuple[tuple[str, str], ...]:
    if isinstance(answer, PixiuError):
        return _error(answer)
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    if len(text) > RESULT_MAX:
        return ("result", "{}"), ("message", f"the result has {len(text)} characters and is left out: ask over HTTP")
    return (("result", text),)


def _error(error: PixiuError) -> tuple[tuple[str, str], ...]:
    return ("error", error.code), ("message", str(error)[:1000])
