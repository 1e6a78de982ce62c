"""Whose turn it is on a link that cannot take everything: priorities without starvation.

Four classes: control, commands, chat, bulk. Control goes first, up to a share that keeps a storm of it from stopping
all else; the others take turns by weight (deficit round robin: each turn adds to what a class may send, and what it
does not use it keeps for the next). So bulk always moves, and order inside a class is kept.

When more comes than goes, waiting grows. What may be shed is shed from the lowest class, oldest first, once it has
waited too long for too long (as CoDel decides): a short burst is only a queue, a long one is too much. Durable traffic
is never shed here: who takes it in says Busy before.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Priority", "TurnRules", "Turns"]

Item = TypeVar("Item")


class Priority(IntEnum):
    """The classes, first things first."""

    CONTROL = 0
    COMMAND = 1
    CHAT = 2
    BULK = 3


class TurnRules(NamedTuple):
    """How turns are given."""

    weights: tuple[int, int, int] = (4, 2, 1)
    """Of commands, chat and bulk."""
    quantum_bytes: int = 4_096
    """What weight one adds per turn."""
    control_share: float = 0.5
    """Of the bytes of a take that control may have before the others."""
    waits_ms: int = 100
    """Waiting longer than this is too long …"""
    for_ms: int = 500
    """… when the oldest has done so for this long."""
    queued_max: int = 100_000
    """Items of one class. At the bound the newest is refused (``put`` says so)."""


class _Waiting(NamedTuple, Generic[Item]):
    item: Item
    size: int
    since_ms: int
    may_shed: bool


class Turns(Generic[Item]):
    """The queues of one link. Time is an argument."""

    def __init__(self, rules: TurnRules) -> None:
        self._rules = rules
        self._queues: tuple[deque[_Waiting[Item]], ...] = tuple(deque() for _ in Priority)
        self._deficits = [0, 0, 0, 0]
        self._turn = int(Priority.COMMAND)
        self._late_since: list[int | None] = [None, None, None, None]
        self.shed = [0, 0, 0, 0]
        """Items dropped, by class."""

    def __len__(self) -> int:
        control, command, chat, bulk = self._queues
        return len(control) + len(command) + len(chat) + len(bulk)

    def put(self, priority: Priority, item: Item, size: int, now_ms: int, *, may_shed: bool = True) -> bool:
        """Wait for a turn. False: this class is full, and the caller is told Busy."""
        queue = self._queues[priority]
        if len(queue) >= self._rules.queued_max:
            return False
        queue.append(_Waiting(item, size, now_ms, may_shed))
        return True

    def take(self, budget_bytes: int, now_ms: int) -> list[Item]:
        """What goes now. An item that is larger than what is left goes alone, when it is first."""
        self._shed_late(now_ms)
        taken: list[Item] = []
        left = budget_bytes - self._take_control(taken, budget_bytes)
        idle = 0
        while left > 0 and idle < len(self._rules.weights):
            sent = self._take_turn(taken, left)
            left -= sent
            idle = 0 if sent or self._queues[self._turn] else idle + 1
            if (
                not sent
                or not self._queues[self._turn]
                or self._deficits[self._turn] < self._queues[self._turn][0].size
            ):
                self._next_turn()
        if left > 0:
            left -= self._drain(Priority.CONTROL, taken, left)
        return taken

    # Steps.

    def _take_control(self, taken: list[Item], budget: int) -> int:
        others = any(self._queues[priority] for priority in Priority if priority is not Priority.CONTROL)
        share = int(budget * self._rules.control_share) if others else budget
        return self._drain(Priority.CONTROL, taken, max(share, 1))

    def _drain(self, priority: Priority, taken: list[Item], budget: int) -> int:
        queue, sent = self._queues[priority], 0
        while queue and sent < budget:
            waiting = queue.popleft()
            taken.append(waiting.item)
            sent += waiting.size
        return sent

    def _take_turn(self, taken: list[Item], left: int) -> int:
        """What the class whose turn it is may send of what is left."""
        queue, sent = self._queues[self._turn], 0
        while queue and self._deficits[self._turn] >= queue[0].size and sent < left:
            waiting = queue.popleft()
            self._deficits[self._turn] -= waiting.size
            taken.append(waiting.item)
            sent += waiting.size
        return sent

    def _next_turn(self) -> None:
        """The next class gets its share; one that has nothing to send saves nothing up."""
        if not self._queues[self._turn]:
            self._deficits[self._turn] = 0
        self._turn = self._turn % int(Priority.BULK) + 1
        if self._queues[self._turn]:
            self._deficits[self._turn] += self._rules.weights[self._turn - 1] * self._rules.quantum_bytes

    def _shed_late(self, now_ms: int) -> None:
        """Shed from the lowest class that has waited too long for too long, until it has not."""
        rules = self._rules
        for priority in reversed(Priority):
            queue = self._queues[priority]
            if not queue or now_ms - queue[0].since_ms <= rules.waits_ms:
                self._late_since[priority] = None
                continue
            since = self._late_since[priority]
            if since is None:
                self._late_since[priority] = now_ms
            elif now_ms - since >= rules.for_ms and priority is not Priority.CONTROL:
                kept = [each for each in queue if not each.may_shed or now_ms - each.since_ms <= rules.waits_ms]
                self.shed[priority] += len(queue) - len(kept)
                if len(kept) < len(queue):
                    queue.clear()
                    queue.extend(kept)
                    self._late_since[priority] = None
                    return
