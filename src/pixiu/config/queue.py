"""Settings of the queue."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Count, Milliseconds, Port, Positive, Section
from pixiu.model.errors import ConfigError

__all__ = [
    "DelaySettings",
    "JournalSettings",
    "LifetimeSettings",
    "QueueSettings",
    "ReplicationSettings",
    "TopicSettings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(Section):
    """The queue's port, and what one client may ask of it."""

    name_in_file: ClassVar[str] = "queue"

    host: str = "127.0.0.1"
    """Address to listen on. The protocol has no passwords: keep it on loopback or on a trusted network."""

    port: Port = 12301
    """Port of the queue's protocol; 0 picks a free one."""

    connections_max: Positive = 10_000
    """Connections above this many are closed at once; those that are open go on."""

    payload_bytes_max: Annotated[int, Bounds(1024, 2**31 - 1)] = 16 * 2**20
    """Largest payload of one publish or delay; a larger one is refused before any of it is kept."""

    subscriber_name_bytes_max: Annotated[int, Bounds(1, 65535)] = 1024
    """Longest name of a subscriber."""

    pending_bytes_max: Annotated[int, Bounds(65536)] = 64 * 2**20
    """Bytes that may wait for the writer over all connections. At this mark the queue stops reading from
    publishers until some are written."""

    partial_bytes_max: Annotated[int, Bounds(2**20)] = 256 * 2**20
    """Bytes of incomplete requests in memory over all connections. Beyond it a connection whose request has more than
    64 KiB so far is refused and closed."""

    idle_timeout_ms: Milliseconds = 30 * 60_000
    """A connection that sent nothing for this long, and subscribes to nothing, is closed."""

    request_timeout_ms: Milliseconds = 5_000
    """A request that has begun to arrive and brings no further byte for this long, or less than 16 KiB a second beyond
    it, is refused, and its connection is closed."""

    keep_alive_ms: Annotated[int, Bounds(1, 34_999)] = 30_000
    """How often an idle subscriber or follower hears from the server; smss's clients give up after 35 s."""

    write_timeout_ms: Milliseconds = 5_000
    """A client that takes none of its answers for this long is cut."""

    replica_write_timeout_ms: Milliseconds = 120_000
    """A follower that takes nothing for this long is cut."""

    ack_timeout_default_ms: Milliseconds = 3_000
    """How long a subscriber that named no timeout may take to ack."""

    no_cache: bool = False
    """Ask the system not to keep written segments in its page cache."""

    read_cache_bytes: Count = 8 * 2**20
    """Bytes of topic logs kept in memory for subscribers that follow closely."""

    open_topics_max: Annotated[int, Bounds(8)] = 256
    """Topic logs kept open at a time; the least used one is closed first."""

    keys_max: Positive = 100_000
    """Keys of recent conditional appends that the writer remembers."""

    node_id: Annotated[int, Bounds(0, 1023)] = 0
    """This node's number inside the message ids that it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """The one global log under the queue: order, recovery, replication."""

    name_in_file: ClassVar[str] = "journal"

    segment_bytes: Annotated[int, Bounds(4096, 2**40)] = 2**30
    """Roll to a new segment file past this size."""

    flush: Literal["none", "interval", "always"] = "always"
    """When records reach the disk: none (when the system likes), interval, or always (before each answer)."""

    flush_interval_ms: Annotated[int, Bounds(1, 60_000)] = 1_000
    """Longest time that an answered record may sit in the page cache, with flush = "interval"."""

    fill_bytes: Annotated[int, Bounds(0, 2**30)] = 4 * 2**20
    """Zeros that are kept ahead of the journal's end, with flush = "always": a flush into blocks that the file has
    already takes half the time. They are cut when the segment is full or the server stops; 0 is none."""

    retention_days: Annotated[int, Bounds(0, 36_500)] = 0
    """Remove journal segments older than this; 0 keeps them for ever."""

    retention_bytes: Count = 0
    """Remove the oldest journal segments while the journal is larger than this; 0 is no limit."""

    free_bytes_min: Count = 256 * 2**20
    """With less free space than this on the disk, publishes are refused until there is more."""

    checkpoint_bytes: Annotated[int, Bounds(4096)] = 16 * 2**20
    """Write a checkpoint after this much journal, so that a restart replays no more than that."""

    checkpoint_interval_ms: Milliseconds = 5_000
    """Write a checkpoint at least this often while records come in."""

    check_bytes_per_second: Count = 4 * 2**20
    """After a start the whole journal is read through once, at this rate, and damage is told; 0 never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Section):
    """The per-topic logs that subscribers read."""

    name_in_file: ClassVar[str] = "topics"

    segment_bytes: Annotated[int, Bounds(4096, 2**40)] = 64 * 2**20
    """Roll a topic to a new segment file past this size."""

    retention_days: Annotated[int, Bounds(0, 36_500)] = 0
    """Remove topic segments older than this; 0 keeps them for ever."""

    retention_bytes: Count = 0
    """Remove a topic's oldest segments while the topic is larger than this; 0 is no limit."""

    retention_interval_ms: Milliseconds = 300_000
    """How often to look for segments that may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySettings(Section):
    """Delayed messages."""

    name_in_file: ClassVar[str] = "delays"

    first_scan_ms: Annotated[int, Bounds(0, 86_400_000)] = 0
    """How long after the start to look for due messages for the first time."""

    scan_interval_ms: Milliseconds = 1_000
    """Look at the clock at least this often, whatever the timers say; what is due earlier has its own timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeSettings(Section):
    """Topics that end by themselves."""

    name_in_file: ClassVar[str] = "lifetimes"

    scan_interval_ms: Milliseconds = 1_000
    """Look at the clock at least this often, whatever the timers say; what ends earlier has its own timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings(Section):
    """Leader and followers of the queue."""

    name_in_file: ClassVar[str] = "replication"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"name", "secret_file"})

    name: str = ""
    """This process's name among its peers; empty: its address, or of a role of rooms its number."""

    acknowledge: Literal["local", "in-sync"] = "local"
    """When a publish is answered: once the local journal has it, or every in-sync follower as well."""

    min_isr: Annotated[int, Bounds(1, 100)] = 1
    """With acknowledge = "in-sync": fewer nodes in sync than this (the leader counts) refuse publishes."""

    in_sync_timeout_ms: Milliseconds = 10_000
    """A follower that has not caught up for this long leaves the in-sync set. With a registry: together with renew_ms
    at most 1.25 x lease_ms."""

    replicas: Annotated[int, Bounds(0, 100)] = 0
    """With a registry: how many replicas there are; 0 is unknown. With 1 the leader needs no lease."""

    heartbeat_ms: Annotated[int, Bounds(1, 30_000)] = 1_000
    """How often leader and follower tell each other how far they are."""

    reconnect_ms: Milliseconds = 2_000
    """How long a follower waits before it connects again."""

    lease_ms: Annotated[int, Bounds(200, 600_000)] = 1_200
    """With a registry: how long a leader may acknowledge after the last message that every in-sync follower answered.
    Others take over a quarter later, so clocks may differ by a quarter in speed."""

    renew_ms: Annotated[int, Bounds(20, 60_000)] = 250
    """With a registry: how often a leader without followers renews its lease there, and a follower without a leader
    looks there; at most half of lease_ms."""

    secret_file: str = ""
    """A file with the cluster's secret, at least 16 characters on its first line. A follower shows it to its leader;
    this queue accepts it, and those on further lines, from followers, backups and promotions. The node.key of this
    data directory is accepted as well. On one machine a follower may name its leader's node.key here."""

    smss_followers: bool = False
    """Serve smss's own replica command to connections that have shown no key: smss's followers cannot show one. Every
    program that reaches the port can then copy all topics but Pixiu's own."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if 2 * self.renew_ms > self.lease_ms:
            raise ConfigError(f"replication.renew_ms must be at most half of lease_ms ({self.lease_ms})")
        if self.in_sync_timeout_ms < 5 * self.heartbeat_ms:
            raise ConfigError(f"replication.in_sync_timeout_ms must be at least {5 * self.heartbeat_ms}, 5 heartbeats")
