"""What one seed puts a queue through: its settings, its disk, and how its lives end.

Each seed draws its own: fixed rates hide what happens only when one of them is extreme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pixiu.config import (
    DelaySettings,
    JournalSettings,
    LogSettings,
    QueueSettings,
    ReplicationSettings,
    Settings,
    TopicSettings,
)

if TYPE_CHECKING:
    import random

__all__ = ["QueueWeather", "draw_queue_weather"]

NEVER = 2**40


@dataclass(frozen=True, slots=True)
class QueueWeather:
    """One seed's world."""

    settings: Settings
    block_bytes: int
    slow_us: int
    """The longest that a flush takes."""
    pause_chance: float
    """How often the loop goes on between two operations of work beside it."""
    topics: int
    publishers: int
    subscribers: int
    lives: int
    actions: int
    quiet_ms: float
    """The longest pause between two actions."""
    kill_chance: float
    """That a life ends with the process only, not the machine."""
    stop_chance: float
    cut_operations: int
    """A life that is cut within a disk operation is cut within this many."""
    trouble: Literal["", "full", "write", "flush", "topic", "store", "clock"]

    @property
    def flush(self) -> str:
        """The flush level."""
        return self.settings.journal.flush


def draw_queue_weather(rng: random.Random) -> QueueWeather:
    """Draw a world."""
    journal = JournalSettings(
        segment_bytes=rng.choice([4096, 4096, 16384, 2**30]),
        flush=rng.choice(["always", "always", "always", "interval", "none"]),
        flush_interval_ms=rng.choice([1, 20, 1000]),
        fill_bytes=rng.choice([0, 1000, 8192, 8192, 65536]),
        free_bytes_min=0,
        checkpoint_bytes=rng.choice([4096, 20_000, NEVER]),
        checkpoint_interval_ms=rng.choice([5, 50, 1000, 1000, 3_600_000]),
    )
    settings = Settings(
        queue=QueueSettings(
            payload_bytes_max=65536,
            open_topics_max=8,
            keys_max=rng.choice([3, 1000, 1000]),
            read_cache_bytes=rng.choice([0, 8 * 2**20]),
        ),
        journal=journal,
        topics=TopicSettings(segment_bytes=rng.choice([4096, 4096, 16384, 2**26])),
        delays=DelaySettings(),
        replication=ReplicationSettings(heartbeat_ms=1_000),
        log=LogSettings(sample=0),
    )
    return QueueWeather(
        settings=settings,
        block_bytes=rng.choice([512, 4096]),
        slow_us=rng.choice([0, 200, 10_000]),
        pause_chance=rng.choice([0.0, 0.5, 1.0]),
        topics=rng.choice([1, 2, 4, 12]),
        publishers=rng.choice([1, 3]),
        subscribers=rng.choice([0, 2, 4]),
        lives=rng.randint(2, 5),
        actions=rng.choice([6, 25, 60]),
        quiet_ms=rng.choice([0.0, 2.0, 30.0, 600.0]),
        kill_chance=rng.choice([0.0, 0.5, 1.0]),
        stop_chance=rng.choice([0.0, 0.3]),
        cut_operations=rng.choice([30, 200, 1000]),
        trouble=rng.choice(["", "", "", "", "full", "write", "flush", "topic", "store", "clock"]),
    )
