"""What the queue's port needs of the log behind it, which is the queue's own (``Engine``) or one in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config import QueueSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.metrics import QueueCounters
    from pixiu.queue.operations import Answer, Change, Plain, PlainPublish, Publish
    from pixiu.queue.server.connection import Connection
    from pixiu.queue.server.key_refusals import KeyRefusals
    from pixiu.queue.storage.topics import Topic

__all__ = ["Fed", "Intake", "Served", "Stream"]


class Intake(Protocol):
    """Takes what connections ask for. It answers each connection in the order of its requests."""

    @property
    def plain(self) -> Plain:
        """Small publishes that wait: who sends the like may add to it."""
        ...

    def submit(self, operation: PlainPublish | Publish | Change | Answer, size: int) -> None:
        """Take an operation; its connection is told the answer once."""
        ...

    def submit_plain(self, connection: Connection, topic: Topic, message: bytes, size: int) -> None:
        """Take a request with one small message."""
        ...

    def pause(self, connection: Connection) -> None:
        """More waits than may: do not read from this one until there is room."""
        ...


class Served(Protocol):
    """A log behind a port."""

    @property
    def settings(self) -> QueueSettings:
        """Bounds and times of the port."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """The loop."""
        ...

    @property
    def counters(self) -> QueueCounters:
        """What is counted."""
        ...

    @property
    def writer(self) -> Intake:
        """Who takes what is to be written."""
        ...

    @property
    def node_keys(self) -> tuple[str, ...]:
        """Whoever shows one of them is a part of Pixiu."""
        ...

    @property
    def key_refusals(self) -> KeyRefusals:
        """Told of whoever shows a wrong one."""
        ...

    def topic_to_publish(self, name: bytes, is_node: bool) -> Topic:
        """The topic of a publish. Raises why not."""
        ...


class Fed(Served, Protocol):
    """A log that appliers in other processes follow."""

    @property
    def is_leader(self) -> bool:
        """Does it take and give anything?"""
        ...

    @property
    def commit_event_id(self) -> int:
        """The newest committed event id."""
        ...

    @property
    def committed_hooks(self) -> list[Callable[[], object]]:
        """Whoever streams the log: told that there is more of it."""
        ...


class Stream(Protocol):
    """A mode in which the connection's bytes are not commands: subscribing, following."""

    def receive(self, data: bytes) -> None:
        """Bytes from the peer."""
        ...

    def close(self) -> None:
        """The connection is gone."""
        ...
