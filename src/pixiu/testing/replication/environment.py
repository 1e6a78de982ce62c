"""What one seed puts a replicated journal through: its environment, and a script of faults.

Each seed draws its own environment, since fixed rates hide races. The script is drawn first and is plain data, so a
shrinker can drop faults from it and everything else stays replayable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.config import JournalSettings, LogSettings, QueueSettings, ReplicationSettings, Settings, TopicSettings
from pixiu.machines.replication import Acknowledge, Election, ReplicaSettings
from pixiu.testing.network import Links

if TYPE_CHECKING:
    import random

__all__ = ["Blow", "Environment", "draw_environment", "draw_script"]

HEARTBEAT_MS = 100
SESSION_TIMEOUT_MS = 900.0
LEASE_MS = 500
TAKEOVER_MS = 640  # clocks differ by up to 1.1 / 0.9 = 1.22 in speed: 612 would do
NEMESIS_MS = 4_000.0


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that goes wrong: when, what, to whom, for how long."""

    at_ms: int
    kind: str
    nodes: tuple[int, ...]
    for_ms: int

    def __str__(self) -> str:
        return f"at {self.at_ms:5d} ms  {self.kind:<10} {self.nodes} for {self.for_ms} ms"


@dataclass(slots=True)
class Environment:
    """How this seed's world behaves between the blows."""

    node_count: int
    settings: ReplicaSettings
    queue_settings: Settings
    links: Links
    tick_ms: float
    flush_ms: tuple[float, float]
    append_error: float
    write_every_ms: float
    watch_loss: float
    watch_delay_ms: float
    stale_ms: float
    clock_rates: tuple[float, ...]
    settle_ms: float = 45_000.0
    kinds: tuple[str, ...] = field(default=())

    def calm(self) -> None:
        """The heal phase: links and disks behave; nodes that are up are left alone."""
        self.links.loss = self.links.straggle = 0.0
        self.links.delay_ms_max = min(self.links.delay_ms_max, 10.0)
        self.append_error = 0.0
        self.watch_loss = 0.0


def draw_environment(rng: random.Random) -> Environment:
    """Environment for one seed."""
    node_count = rng.choice((1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 5))
    election = rng.choice((Election.REGISTRY, Election.REGISTRY, Election.REGISTRY, Election.MANUAL))
    acknowledge = rng.choice((Acknowledge.IN_SYNC, Acknowledge.IN_SYNC, Acknowledge.IN_SYNC, Acknowledge.LOCAL))
    settings = ReplicaSettings(
        election=election, acknowledge=acknowledge, min_isr=rng.randint(1, min(2, node_count)),
        heartbeat_ms=HEARTBEAT_MS, in_sync_timeout_ms=rng.choice((500, 540)), silence_ms=rng.choice((350, 500)),
        reconnect_ms=rng.choice((20, 150)), control_poll_ms=100, control_retry_ms=rng.choice((150, 300)),
        lease_ms=LEASE_MS, takeover_ms=TAKEOVER_MS, stagger_ms=80, epoch_event_ids=rng.choice((1, 3)),
    )  # fmt: skip
    links = Links(
        loss=rng.choice((0.0, 0.0, 0.0002, 0.001, 0.004)),
        delay_ms_min=0.5,
        delay_ms_max=rng.choice((2.0, 8.0, 40.0, 120.0)),
        straggle=rng.choice((0.0, 0.0, 0.02)),
    )
    return Environment(
        node_count=node_count,
        settings=settings,
        queue_settings=_queue_settings(rng, settings),
        links=links,
        tick_ms=rng.choice((35.0, 50.0)),
        flush_ms=rng.choice(((0.1, 0.5), (0.5, 4.0), (4.0, 30.0))),
        append_error=rng.choice((0.0, 0.0, 0.05)),
        write_every_ms=rng.choice((8.0, 25.0, 80.0)),
        watch_loss=rng.choice((0.0, 0.3, 1.0)),
        watch_delay_ms=rng.choice((2.0, 50.0, 300.0)),
        stale_ms=rng.choice((0.0, 0.0, 100.0, 1_500.0)),
        clock_rates=tuple(rng.uniform(0.9, 1.1) for _ in range(node_count)),
        kinds=_draw_kinds(rng, election),
    )


def _queue_settings(rng: random.Random, settings: ReplicaSettings) -> Settings:
    """What the queue reads of its settings; the machine has those above."""
    return Settings(
        queue=QueueSettings(keys_max=1_000),
        journal=JournalSettings(
            segment_bytes=rng.choice((4_096, 2**30)), fill_bytes=rng.choice((0, 8_192)), free_bytes_min=0,
            checkpoint_interval_ms=rng.choice((500, 5_000)),
        ),
        topics=TopicSettings(segment_bytes=2**26),
        replication=ReplicationSettings(
            acknowledge=settings.acknowledge.value, min_isr=settings.min_isr, heartbeat_ms=HEARTBEAT_MS,
            in_sync_timeout_ms=500, reconnect_ms=settings.reconnect_ms, lease_ms=600, renew_ms=100,
        ),
        log=LogSettings(sample=0),
    )  # fmt: skip


def _draw_kinds(rng: random.Random, election: Election) -> tuple[str, ...]:
    """A mix of blows, different for each seed: some kinds often, some never."""
    kinds = ["crash", "freeze", "split", "split", "deafen", "slow", "disk", "trim", "crash-all", "bounce", "orphan"]
    kinds += ["reset", "stumble", "stumble", "strand"]
    elected = ["outage", "exile", "dethrone", "doze", "doze", "leave", "pause", "pause", "bereft", "unheard", "relapse"]
    elected += ["late-claim", "late-claim", "skew", "suspend", "stranger", "ghost"]
    kinds += ["failover", "failover"] if election is Election.MANUAL else elected
    return tuple(kind for kind in kinds for _ in range(rng.choice((0, 1, 1, 4))))


def draw_script(rng: random.Random, environment: Environment) -> tuple[Blow, ...]:
    """The blows, in order of time."""
    if not environment.kinds:
        return ()
    blows = []
    for _ in range(rng.choice((0, 3, 6, 9, 12, 15))):
        kind = rng.choice(environment.kinds)
        count = rng.randint(1, environment.node_count) if kind in ("split", "exile") else 1
        nodes = tuple(sorted(rng.sample(range(environment.node_count), count)))
        at_ms = int(rng.uniform(300, NEMESIS_MS))
        blows.append(Blow(at_ms, kind, nodes, int(rng.choice((60, 300, 900, 2_000)) * rng.uniform(0.5, 1.5))))
    return tuple(sorted(blows, key=lambda blow: blow.at_ms))
