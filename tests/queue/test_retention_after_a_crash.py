"""Retention removes nothing that a restart after a power loss has to replay."""

import random

from pixiu.config import Settings
from pixiu.config.queue import JournalSettings, TopicSettings
from pixiu.ports.log import MAIN
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.queue.replication.driver import Replication
from pixiu.queue.storage.state import State
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.world import NoLinks
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

SETTINGS = Settings(
    journal=JournalSettings(fill_bytes=0, segment_bytes=4096, retention_bytes=1, checkpoint_interval_ms=1000),
    topics=TopicSettings(retention_interval_ms=1100),
)


def flushed(content: StoreContent) -> StoreContent:
    """What the disk has of a store if the machine goes down now, at the least."""
    copy = StoreContent()
    copy._flushed = dict(content._flushed)
    return copy


def test_the_journal_keeps_what_is_behind_the_last_checkpoint_that_is_on_the_disk() -> None:
    rng = random.Random(1)
    clock, disk, content = SimulatedClock(), SimulatedDisk(rng), StoreContent()
    scheduler = SimulatedScheduler(clock, rng, slow_us=0, pause_chance=0)
    engine = Engine(SETTINGS, disk, SimulatedKeyValue(content), clock, scheduler)
    engine.recover()
    engine.replication = Replication(engine, name="alone", follow=None, links=NoLinks(), restart=lambda: None)
    engine.start()
    engine.replication.start()
    log = EngineLog(engine)
    log.open(lambda _error: None)
    scheduler.run_for(10)
    for _ in range(60):
        log.publish(MAIN, b"x" * 1000)
        scheduler.run_for(70)
        applied = State(SimulatedKeyValue(flushed(content)), engine.topics).applied
        assert engine.journal.first_event_id <= applied + 1
    assert engine.journal.first_event_id > 1, "retention has removed something"
    scheduler.close()
