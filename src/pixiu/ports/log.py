"""The log, as the roles see it: append, follow, read back.

An answer comes when the record is committed: flushed as the level asks, and on all in-sync followers. Then it is part
of the log for good.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from pixiu.model.errors import PixiuError

__all__ = [
    "DEAD",
    "MAIN",
    "NOTIFY",
    "SCHEDULE",
    "TASKS",
    "TASKS_READER",
    "TOPICS",
    "Appended",
    "AppendsAll",
    "Log",
    "LogRecord",
    "Scheduled",
]

MAIN = "pixiu.main"
"""Messages, changes, ledger rows: what the stores are made of. Every payload is a ``Record``."""
NOTIFY = "pixiu.notify"
TASKS = "pixiu.tasks"
"""``Task`` payloads."""
TASKS_READER = b"shard"
"""The subscriber of ``TASKS`` whose stored position says how far a shard's leader has finished all tasks."""
DEAD = "pixiu.dlq"
SCHEDULE = "pixiu.schedule"
"""Scheduled sends whose time has come; payloads are ``Record``."""
TOPICS = (MAIN, NOTIFY, TASKS, DEAD, SCHEDULE)
"""All that a log has. What is written to another one is refused with ``NotFound``."""


class Appended(NamedTuple):
    """What an append was given; of a repeat, what the first one was given."""

    event_id: int
    message_id: int
    is_repeat: bool


class LogRecord(NamedTuple):
    """One committed record."""

    event_id: int
    message_id: int
    """0 for what was published without a number."""
    topic: str
    payload: bytes
    key: bytes
    at: int
    """The writer's clock, milliseconds since the epoch."""


class Scheduled(NamedTuple):
    """A record that waits for its time."""

    schedule_id: int
    due: int
    topic: str
    payload: bytes


class Log(Protocol):
    """One log. ``done`` is called once, later, never within the call. A payload has a byte at least."""

    @property
    def committed(self) -> int:
        """The newest committed event id."""
        ...

    def append(
        self,
        topic: str,
        payload: bytes,
        done: Callable[[Appended | PixiuError], object],
        *,
        key: bytes = b"",
        unless_after: int = 0,
    ) -> None:
        """Append a numbered record, unless ``key`` was appended behind event ``unless_after``."""
        ...

    def publish(self, topic: str, payload: bytes, done: Callable[[int | PixiuError], object] | None = None) -> None:
        """Append a record without a number; ``done`` is told its event id."""
        ...

    def schedule(
        self, topic: str, payload: bytes, due: int, done: Callable[[int | PixiuError], object] | None = None
    ) -> None:
        """Publish at ``due`` (milliseconds since the epoch); ``done`` is told the schedule_id."""
        ...

    def unschedule(self, schedule_id: int, done: Callable[[bool | PixiuError], object]) -> None:
        """Drop a record that waits; ``done`` is told whether it did."""
        ...

    def scheduled(self, topic: str) -> list[Scheduled]:
        """What waits for a topic, by due time."""
        ...

    def follow(self, after: int, receive: Callable[[], object]) -> None:
        """Call ``receive`` whenever there may be more behind what ``read`` has given. One follower per log."""
        ...

    def read(self, after: int, limit: int) -> list[LogRecord]:
        """Committed records of Pixiu's topics behind ``after``: from memory, or from segments when far behind.

        Skips foreign topics; the caller moves on to the last of what it got, or to ``committed`` when it got none.
        """
        ...

    def topic(self, topic: str, after: int, limit: int) -> list[LogRecord]:
        """Committed records of one topic behind ``after``, oldest first."""
        ...


@runtime_checkable
class AppendsAll(Protocol):
    """A log that takes many records in one go: one in the same process, where calls are what an append costs."""

    def append_all(
        self,
        topic: str,
        payloads: Sequence[bytes],
        keys: Sequence[bytes],
        done: Callable[[Sequence[Appended | PixiuError]], object],
        *,
        unless_after: int = 0,
    ) -> None:
        """As ``append`` of each with its key, one behind the other; ``done`` is told all results at once."""
        ...
