"""What is written together: one transaction, answered as one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.backends.kafka.records import Entry
    from pixiu.model.errors import PixiuError
    from pixiu.ports.log import LogRecord

__all__ = ["Batch"]

log = logging.getLogger(__name__)

COUNT_MAX = 10_000
BYTES_MAX = 8 * 2**20


class Batch:
    """Entries that wait for Kafka, and whoever waits for them."""

    __slots__ = ("answers", "begun_us", "entries", "is_given_up", "on_commit", "on_drop", "records", "size")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.records: list[LogRecord] = []
        """Those of them that readers see."""
        self.answers: list[tuple[Callable[[Any], object], object]] = []
        """Who is told, and what, when it is committed."""
        self.on_commit: list[Callable[[], object]] = []
        self.on_drop: list[Callable[[], object]] = []
        """How to undo what was done for it, in order of doing."""
        self.size = 0
        self.begun_us = 0
        self.is_given_up = False
        """Nobody waits for it any more. It may be written, or not."""

    @property
    def is_full(self) -> bool:
        """Is it as much as a transaction should have?"""
        return len(self.entries) >= COUNT_MAX or self.size >= BYTES_MAX

    def holds(self, event_id: int) -> bool:
        """Is this event one of its?"""
        entries = self.entries
        return bool(entries) and entries[0].event_id <= event_id <= entries[-1].event_id

    def committed(self) -> None:
        """It is in the log: tell everyone who still waits."""
        for call in self.on_commit:
            call()
        answers, self.answers = self.answers, []
        for done, result in answers:
            _tell(done, result)

    def refuse(self, error: PixiuError) -> None:
        """Tell everyone who waits that it is not, or not known to be, in the log."""
        answers, self.answers = self.answers, []
        for done, _ in answers:
            _tell(done, error)

    def drop(self, error: PixiuError) -> None:
        """It is not in the log, and never will be."""
        for undo in reversed(self.on_drop):
            undo()
        self.refuse(error)


def _tell(done: Callable[[Any], object], result: object) -> None:
    """A bug of one who waited must not keep the others from their answers."""
    try:
        done(result)
    except Exception:  # a boundary: whoever waits is somebody else's code
        log.exception("an answer of the log was not taken")
