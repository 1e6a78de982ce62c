"""The journal says where each epoch began, whatever the store has lost with the power."""

import random

from pixiu.config import Settings
from pixiu.config.queue import JournalSettings
from pixiu.queue.engine import Engine
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler


def test_a_replica_finds_epochs_in_its_journal_that_its_store_has_lost() -> None:
    rng = random.Random(1)
    clock, disk = SimulatedClock(), SimulatedDisk(rng)
    scheduler = SimulatedScheduler(clock, rng, slow_us=0, pause_chance=0)
    settings = Settings(journal=JournalSettings(fill_bytes=0))
    engine = Engine(settings, disk, SimulatedKeyValue(StoreContent()), clock, scheduler)
    engine.recover(is_follower=True)
    for epoch in (1, 2):
        engine.lead(epoch)
        engine.open_epoch(epoch, 10, "one")
        scheduler.run_for(100)
    known = engine.state.epochs
    assert known == [(1, 1), (2, 11)]

    disk.crash()  # the journal was flushed, the store was not
    again = Engine(settings, disk, SimulatedKeyValue(StoreContent()), clock, scheduler)
    again.recover(is_follower=True)
    assert (again.journal.last_event_id, again.commit_event_id) == (20, 0)
    assert again.state.epochs == known
    scheduler.close()
