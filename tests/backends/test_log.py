"""The log's contract in memory and on the queue's engine, simulated and on a real loop.

tests/backends/test_kafka.py has it on Kafka.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.node.stopped import open_store
from pixiu.ports.log import Log
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.memory_log import MemoryLog
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.contracts.log import LogContract
from tests.loops import DrivenLoop


class Simulated(LogContract):
    """A log on a simulated clock."""

    def begin(self) -> None:
        self.rng = random.Random(1)
        self.clock = SimulatedClock()
        self.new_scheduler()

    def new_scheduler(self) -> None:
        self.scheduler = SimulatedScheduler(self.clock, self.rng, slow_us=100, pause_chance=0)

    def stop(self) -> None:
        self.scheduler.close()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            if condition():
                return
            self.scheduler.run_for(5)
        raise AssertionError("it never came")

    def pass_ms(self, milliseconds: float) -> None:
        self.scheduler.run_for(milliseconds)

    def now_ms(self) -> int:
        return self.clock.now_ms()


class TestMemoryLog(Simulated):
    def start(self) -> Log:
        self.begin()
        self.memory = MemoryLog(self.clock, self.scheduler)
        return self.memory

    def restart(self) -> Log:
        self.scheduler.close()
        self.new_scheduler()
        self.memory.move(self.scheduler)
        return self.memory


class TestEngineLog(Simulated):
    def start(self) -> Log:
        self.begin()
        self.disk = SimulatedDisk(self.rng, now_ms=self.clock.now_ms)
        self.content = StoreContent()
        return self.boot()

    def boot(self) -> Log:
        settings = Settings(
            queue=QueueSettings(open_topics_max=8), journal=JournalSettings(free_bytes_min=0, segment_bytes=4096),
            log=LogSettings(sample=0),
        )  # fmt: skip
        engine = Engine(settings, self.disk, SimulatedKeyValue(self.content), self.clock, self.scheduler)
        engine.recover()
        engine.start()
        log = EngineLog(engine)
        opened: list[object] = []
        log.open(opened.append)
        self.until(lambda: opened == [None])
        return log

    def restart(self) -> Log:
        self.scheduler.close()
        self.new_scheduler()
        return self.boot()


class Looped(LogContract):
    """A log on a real loop and a real disk; a process that ends leaves the directory behind."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def boot(self) -> Engine:
        self.driven = DrivenLoop()
        self.clock = SystemClock()
        self.scheduler = LoopScheduler(self.driven.loop)
        settings = Settings(log=LogSettings(sample=0))
        self.engine = Engine(settings, SystemFiles(self.path), open_store(self.path), self.clock, self.scheduler)
        self.engine.recover()
        self.engine.start()
        return self.engine

    def restart(self) -> Log:
        self.stop()
        return self.start()

    def stop(self) -> None:
        self.engine.background.stop()
        self.scheduler.close()
        self.engine.stop()
        self.driven.close()

    def until(self, condition: Callable[[], bool]) -> None:
        self.driven.until(condition)

    def pass_ms(self, milliseconds: float) -> None:
        self.driven.pass_ms(milliseconds)

    def now_ms(self) -> int:
        return self.clock.now_ms()


class TestEngineLogOnALoop(Looped):
    def start(self) -> Log:
        log = EngineLog(self.boot())
        opened: list[object] = []
        log.open(opened.append)
        self.until(lambda: opened == [None])
        return log
