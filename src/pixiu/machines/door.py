"""Which of the actions that a stream brings are done now, which wait, and which are finished.

They are done in the order of the stream. Those that may be under way together are; one that must be ``alone`` waits
for all before it, and all behind wait for it: so a user who is created in one entry sends in the next. What fails for
now is tried again, in its place. While the node itself is not ready that costs no try; of a node that is, an action
that still fails after ``tries_max`` is answered with its error, and the stream goes on.

An entry is held from the moment it was read until its answer is written: only then does the stream forget it.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ["DoorMachine", "Finished"]

T = TypeVar("T")
A = TypeVar("A")


class Finished(NamedTuple, Generic[A]):
    """An entry with its answer, to be written."""

    entry_id: str
    answer: A


class _Held(Generic[T]):
    __slots__ = ("content", "due_ms", "entry_id", "is_alone", "is_running", "tries")

    def __init__(self, entry_id: str, content: T, is_alone: bool) -> None:
        self.entry_id = entry_id
        self.content = content
        self.is_alone = is_alone
        self.is_running = False
        self.tries = 0
        self.due_ms = 0


class DoorMachine(Generic[T, A]):
    """Entries of one reader of the stream."""

    def __init__(self, *, tries_max: int = 8, retry_ms: int = 50, retry_most_ms: int = 2_000) -> None:
        self._tries_max = tries_max
        self._retry_ms = retry_ms
        self._retry_most_ms = retry_most_ms
        self._held: dict[str, _Held[T]] = {}
        """Not answered yet, in the order of the stream."""
        self._unwritten: dict[str, A] = {}
        self._running = 0
        self._is_alone_running = False

    @property
    def count(self) -> int:
        """How many are held."""
        return len(self._held) + len(self._unwritten)

    @property
    def running(self) -> int:
        """How many are under way."""
        return self._running

    def take(self, entry_id: str, content: T, *, is_alone: bool) -> bool:
        """An entry was read. False if it is held already: whoever claims may be given its own."""
        if entry_id in self._held or entry_id in self._unwritten:
            return False
        self._held[entry_id] = _Held(entry_id, content, is_alone)
        return True

    def begin(self, now_ms: int) -> list[tuple[str, T]]:
        """What is to be done now. Each must be told to ``finish`` or ``fail``."""
        begun: list[tuple[str, T]] = []
        if self._is_alone_running:
            return begun
        for held in self._held.values():
            if held.is_running:
                continue
            if held.due_ms > now_ms or (held.is_alone and self._running):
                break
            held.is_running = True
            self._running += 1
            begun.append((held.entry_id, held.content))
            if held.is_alone:
                self._is_alone_running = True
                break
        return begun

    def due_in_ms(self, now_ms: int) -> int | None:
        """When ``begin`` has something again, if nothing else happens; None if it does not depend on time."""
        if self._is_alone_running:
            return None
        for held in self._held.values():
            if not held.is_running:
                return max(held.due_ms - now_ms, 0) if held.due_ms and not (held.is_alone and self._running) else None
        return None

    def finish(self, entry_id: str, answer: A) -> None:
        """It is done, or refused for good: the answer waits to be written."""
        held = self._held.pop(entry_id)
        self._stopped(held)
        self._unwritten[entry_id] = answer

    def fail(self, entry_id: str, answer: A, now_ms: int, *, is_ready: bool) -> bool:
        """It failed for now. False: it is tried again; True: too often, and ``answer`` is what it gets."""
        held = self._held[entry_id]
        held.tries += 1 if is_ready else 0
        if held.tries >= self._tries_max:
            self.finish(entry_id, answer)
            return True
        self._stopped(held)
        wait = min(self._retry_ms << min(held.tries, 16), self._retry_most_ms)
        held.due_ms = now_ms + wait
        return False

    def finished(self) -> list[Finished[A]]:
        """Answers that are not written yet. They stay until ``written`` says so."""
        return [Finished(entry_id, answer) for entry_id, answer in self._unwritten.items()]

    def written(self, entry_ids: list[str]) -> None:
        """The stream has forgotten these."""
        for entry_id in entry_ids:
            self._unwritten.pop(entry_id, None)

    def _stopped(self, held: _Held[T]) -> None:
        if held.is_running:
            held.is_running = False
            self._running -= 1
            self._is_alone_running = self._is_alone_running and not held.is_alone
