"""A real Kafka for tests, and the log on it driven by hand."""

import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pixiu.backends.kafka.address import KafkaAddress
from pixiu.backends.kafka.log import KafkaLog
from pixiu.backends.kafka.topics import Identity
from pixiu.config import KafkaSettings
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler
from tests.loops import DrivenLoop
from tools.jars import JarsMissing
from tools.kafka_server import KafkaServer

__all__ = ["Driven", "new_prefix", "require_kafka"]

_PREFIXES = count(1)


def require_kafka(folder: Path, *, nodes: int = 1, **more: Any) -> KafkaServer:
    """A server, not started; skips where its jars cannot be had, and fails in CI where they could."""
    try:
        return KafkaServer(folder, nodes=nodes, **more)
    except JarsMissing as error:
        if os.environ.get("CI") == "true" and error.can_be_had:
            pytest.fail(str(error))
        pytest.skip(f"Kafka: {error}")


def new_prefix() -> str:
    """Topics that nobody else has on the server."""
    return f"t{os.getpid()}-{next(_PREFIXES)}"


class Driven(DrivenLoop):
    """One log on a loop of its own that runs while a test waits."""

    def __init__(
        self,
        hosts: str,
        prefix: str,
        *,
        name: str = "one",
        settings: KafkaSettings | None = None,
        clock: SystemClock | None = None,
        keys_max: int = 1000,
    ) -> None:
        super().__init__()
        self.scheduler, self.thread = LoopScheduler(self.loop), LoopScheduler(self.loop)
        self.clock = clock or SystemClock()
        self._is_closed = False
        self.log = KafkaLog(
            KafkaAddress(hosts, prefix), {}, settings or KafkaSettings(), self.clock, self.scheduler, self.thread,
            name=name, token=os.urandom(8).hex(), node_id=1, keys_max=keys_max,
        )  # fmt: skip

    def open(self, *, applied: int = 0, finished: int = 0) -> KafkaLog:
        """Claim the log; raises what that brings."""
        opened: list[object] = []
        self.log.open(opened.append, applied=applied, finished=finished)
        self.until(lambda: bool(opened))
        if isinstance(opened[0], Exception):
            raise opened[0]
        return self.log

    def stand_by(self, known: Identity | None, *, applied: int = 0) -> KafkaLog:
        """Follow the log that another node owns."""
        self.log._known = known
        self.log.stand_by(applied)
        return self.log

    def close(self) -> None:
        """As a process that ends: nothing is finished, nothing is flushed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.log.close()
        self.thread.close()
        self.scheduler.close()
        super().close()
