"""What one seed's world is like: settings, disk, network, and the habits of its devices.

Each seed draws its own: fixed rates hide what happens only when one of them is extreme.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pixiu.config import (
    CarrierSettings,
    HornSettings,
    InboxSettings,
    JournalSettings,
    LogSettings,
    MessagingSettings,
    QueueSettings,
    ReplicationSettings,
    Settings,
    TopicSettings,
)
from pixiu.testing.network import Links

if TYPE_CHECKING:
    import random

__all__ = ["MessagingWeather", "draw_messaging_weather"]

NEVER = 2**40
EXPIRE_MS = 90 * 86_400_000
HISTORY_MORE_MS = 2_000
HISTORY_SWEEP_MS = 700
ALWAYS = "always"


@dataclass(slots=True)
class MessagingWeather:
    """One seed's world."""

    settings: Settings
    links: Links
    block_bytes: int
    slow_us: int
    """The longest that a flush takes."""
    pause_chance: float
    """How often the loop goes on between two operations of work beside it."""
    offline_max: tuple[int, ...]
    """What inboxes keep, in one life of the node after the other: someone changes the settings."""
    is_embedded: bool
    """Stores on a simulated key-value store; else in memory, made anew from the log at every start."""
    beat_ms: int
    """How often devices say that they live; 0: never, so nothing is read again for that reason (E24)."""
    idle_ms: int
    """The node gives a silent connection up after this; 0: never."""
    answer_ms: int
    """A request without an answer is sent again after this."""
    tries_max: int
    """How often a client sends a request before it gives up."""
    liveness_ms: int
    """A node that stood still for longer than this takes itself for dead."""
    provider_errors: float
    """The chance that a notification is not taken."""
    cut_operations: int
    """A power cut comes within this many disk operations."""

    def settings_in(self, life: int) -> Settings:
        """The settings with which a node is started."""
        inbox = replace(self.settings.inbox, offline_max=self.offline_max[life % len(self.offline_max)])
        return replace(self.settings, inbox=inbox)

    @property
    def may_crash(self) -> bool:
        """Does an accepted message survive the machine? Else only the process may end."""
        return self.settings.journal.flush == ALWAYS

    def calm(self) -> None:
        """The heal phase: the network behaves."""
        self.links.loss = self.links.repeat = self.links.straggle = self.links.reorder = 0.0
        self.links.delay_ms_max = min(self.links.delay_ms_max, 10.0)
        self.provider_errors = 0.0


def draw_messaging_weather(rng: random.Random) -> MessagingWeather:
    """Draw a world."""
    has_beats = rng.random() < 0.5
    is_stream = has_beats and rng.random() < 0.5
    return MessagingWeather(
        settings=_draw_settings(rng),
        links=Links(
            loss=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)) * (0.05 if is_stream else 1.0),
            repeat=rng.choice((0.0, 0.1, 0.3)),
            delay_ms_min=0.5,
            delay_ms_max=rng.choice((2.0, 10.0, 60.0)),
            straggle=rng.choice((0.0, 0.0, 0.02)),
            reorder=rng.choice((0.0, 0.1, 0.3)),
            is_stream=is_stream,
        ),
        block_bytes=rng.choice((512, 4096)),
        slow_us=rng.choice((0, 200, 8_000, 40_000, 120_000)),
        pause_chance=rng.choice((0.0, 0.5)),
        offline_max=rng.choice(((-1,), (10_000,), (10_000,), (3,), (12, 3), (-1, 5, 2))),
        is_embedded=rng.random() < 0.8,
        beat_ms=rng.choice((300, 700)) if has_beats else 0,
        idle_ms=rng.choice((2_500, 5_000)) if has_beats else 0,
        answer_ms=rng.choice((250, 600, 1_200)),
        tries_max=rng.choice((2, 4, 6)),
        liveness_ms=rng.choice((800, 2_000)),
        provider_errors=rng.choice((0.0, 0.5)),
        cut_operations=rng.choice((5, 40, 200)),
    )


def _draw_settings(rng: random.Random) -> Settings:
    settings = Settings(
        queue=QueueSettings(
            payload_bytes_max=65536,
            open_topics_max=8,
            keys_max=rng.choice((3, 1000, 1000)),
            read_cache_bytes=0,
        ),
        journal=JournalSettings(
            segment_bytes=rng.choice((4096, 16384, 2**30)),
            flush=rng.choice(("always", "always", "always", "always", "interval")),
            flush_interval_ms=rng.choice((1, 200)),
            fill_bytes=0,  # the queue's own world does that
            free_bytes_min=0,
            checkpoint_bytes=rng.choice((4096, NEVER)),
            checkpoint_interval_ms=rng.choice((50, 1000, 3_600_000)),
        ),
        topics=TopicSettings(segment_bytes=rng.choice((4096, 2**26))),
        messaging=MessagingSettings(
            sends_per_second=0,
            group_inbox_limit=rng.choice((2, 500, 500, 500)),
            page_max=rng.choice((3, 100)),
        ),
        inbox=_draw_inbox(rng),
        carrier=CarrierSettings(
            batch_count=rng.choice((1, 4, 512)),
            commit_ms=rng.choice((1, 20, 50, 400)),
            yield_ms=rng.choice((0, 100)),
            lane_retry_ms=rng.choice((20, 300)),
            tasks_in_flight_max=rng.choice((1, 1000)),
            task_retries_max=rng.choice((0, 2)),
            task_retry_ms=rng.choice((20, 500)),
        ),
        horn=HornSettings(provider="log", collapse_ms=rng.choice((0, 200))),
        replication=ReplicationSettings(heartbeat_ms=2_000),
        log=LogSettings(sample=0),
    )
    if settings.inbox.expire_ms == EXPIRE_MS:
        return settings
    # Where what waits has an end, history has one, too. No dice: the other seeds stay what they were.
    history_ms = settings.inbox.expire_ms + HISTORY_MORE_MS
    messaging = replace(settings.messaging, history_ms=history_ms, history_sweep_ms=HISTORY_SWEEP_MS)
    return replace(settings, messaging=messaging)


def _draw_inbox(rng: random.Random) -> InboxSettings:
    expire_ms, sweep_ms = rng.choice(((EXPIRE_MS, 60_000), (EXPIRE_MS, 60_000), (EXPIRE_MS, 60_000), (6_000, 500)))
    return InboxSettings(
        expire_ms=expire_ms,
        sweep_interval_ms=sweep_ms,
        sessions_max=rng.choice((1, 3, 5)),
        sessions_max_by_platform=rng.choice(("", "ios:1")),
        window=rng.choice((1, 4, 64)),
        read_limit=rng.choice((1, 3, 64)),
        request_timeout_ms=rng.choice((30, 200)),
        ack_timeout_ms=rng.choice((250, 400, 800)),
        tries_max=rng.choice((1, 3, 6)),
    )
