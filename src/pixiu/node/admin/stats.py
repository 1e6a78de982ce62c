"""What goes on in a node, in one answer: for ``pixiu top`` and the console.

Everything is raw and counted from the start: whoever asks twice divides the difference by the time between, and gets
the rates and the latencies of just that time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.metric import HOP_SECONDS
from pixiu.model.version import __version__
from pixiu.ports.stores import Lane
from pixiu.runtime.process import process_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pixiu.api.metrics import HttpCounters
    from pixiu.im.draft import Answer
    from pixiu.model.metric import Histogram
    from pixiu.node.admin.topics import TopicViews
    from pixiu.node.host import MessagingHost
    from pixiu.roles.broker.broker import Broker
    from pixiu.roles.broker.hot import HotRooms
    from pixiu.roles.gateway.metrics import GatewayCounters

__all__ = ["Doors", "Sample", "Stats"]

HOT_ROOMS = 20
TOPICS = 30
SIZES_KEPT_US = 5_000_000
"""Files are counted at most this often."""


@dataclass(slots=True)
class Doors:
    """What clients come through. A node inside a program has none."""

    gateway: GatewayCounters | None = None
    broker: Broker | None = None
    hot_rooms: HotRooms | None = None
    http: HttpCounters | None = None


class Sample(NamedTuple):
    """The numbers of a moment that a history of them needs."""

    at: int
    monotonic_us: int
    connections: int
    sessions: int
    counters: Mapping[str, int]
    hops: Mapping[str, list[int]]
    """Counts of each hop's histogram."""


class Stats:
    """Reads the counters of all parts of one node."""

    def __init__(self, host: MessagingHost, topics: TopicViews, doors: Doors) -> None:
        self._host = host
        self._topics = topics
        self._doors = doors
        self._engine = host.engine
        self._clock = self._engine.clock
        self.started_at = self._clock.now_ms()
        self._started_us = self._clock.monotonic_us()
        self._sizes: dict[str, int] = {}
        self._sized_us = -SIZES_KEPT_US

    def read(self) -> Answer:
        """All of it, as of now."""
        doors, messaging = self._doors, self._host.messaging
        broker, hot = doors.broker, doors.hot_rooms
        return {
            "version": __version__,
            "at": self._clock.now_ms(),
            "started_at": self.started_at,
            "uptime_ms": (self._clock.monotonic_us() - self._started_us) // 1000,
            "process": process_numbers(),
            "counters": self._counters(),
            "hops": self._hops(),
            "connections": 0 if doors.gateway is None else doors.gateway.connections,
            "connections_max": 0 if doors.gateway is None else doors.gateway.connections_max,
            "sessions": messaging.relay.counters.sessions,
            "rooms": 0 if broker is None else len(broker.rooms),
            "room_sessions": 0 if broker is None else broker.rooms.sessions,
            "hot_rooms": [] if hot is None else [each._asdict() for each in hot.top(HOT_ROOMS)],
            "queue": self._queue(),
            "lanes": [self._lane(lane) for lane in Lane],
            "topics": self._topics.busiest(TOPICS),
            "stores": self._stores(),
            "problems": [*self._engine.problems(), *self._host.problems(), *self._host.door_problems()],
        }

    def sample(self) -> Sample:
        """What a history of the node keeps of now; cheap enough for every other second."""
        gateway = self._doors.gateway
        return Sample(
            at=self._clock.now_ms(),
            monotonic_us=self._clock.monotonic_us(),
            connections=0 if gateway is None else gateway.connections,
            sessions=self._host.messaging.relay.counters.sessions,
            counters=self._counters(),
            hops={name: list(histogram.counts) for name, histogram in self._histograms().items()},
        )

    def _counters(self) -> dict[str, int]:
        """What only rises."""
        doors, messaging = self._doors, self._host.messaging
        proxy, carrier, relay = messaging.proxy, messaging.carrier.counters, messaging.relay.counters
        gateway, broker = doors.gateway, doors.broker
        return {
            "actions": sum(proxy.actions.values()),
            "refused": sum(proxy.refused.values()),
            "accepted": proxy.appends.accepted,
            "repeats": proxy.appends.repeats,
            "applied": carrier.records,
            "entries": carrier.entries,
            "delivered": relay.pushes + relay.copies,
            "resent": relay.resends,
            "acked": relay.acked,
            "logins": relay.logins,
            "kicks": relay.kicks,
            "expired": relay.expired,
            "notifications": carrier.notifications,
            "dead_letters": carrier.dead_letters,
            "room_messages": 0 if broker is None else sum(broker.counters.messages.values()),
            "room_deliveries": 0 if broker is None else broker.counters.deliveries,
            "room_dropped": 0 if broker is None else broker.rooms.dropped,
            "written_bytes": 0 if gateway is None else gateway.written_bytes,
            "http_answers": 0 if doors.http is None else sum(doors.http.by_status.values()),
            "queue_requests": self._engine.counters.requests,
            "queue_events": self._engine.counters.events,
            "queue_bytes": self._engine.counters.bytes_written,
        }

    def _histograms(self) -> Mapping[str, Histogram]:
        """With the same bounds, in the order of a message's way."""
        messaging = self._host.messaging
        relay = messaging.relay.counters
        return {
            "accept": messaging.proxy.appends.accept_seconds,
            "apply": messaging.carrier.counters.apply_seconds,
            "deliver": relay.deliver_seconds,
            "ack": relay.ack_seconds,
        }

    def _hops(self) -> Answer:
        shown: Answer = {"bounds": list(HOP_SECONDS)}
        for name, histogram in self._histograms().items():
            shown[name] = {"counts": list(histogram.counts), "sum": round(histogram.total, 6)}
        return shown

    def _queue(self) -> Answer:
        engine = self._engine
        return {
            "last_event_id": str(engine.journal.last_event_id),
            "flushed_event_id": str(engine.journal.flushed_through),
            "commit_event_id": str(engine.commit_event_id),
            "journal_bytes": engine.journal.size,
            "pending_bytes": engine.writer.pending_bytes,
            "subscribers": engine.counters.subscribers,
            "followers": engine.counters.followers,
            "is_leader": engine.is_leader,
        }

    def _lane(self, lane: Lane) -> Answer:
        applied = self._host.messaging.carrier.applied(lane)
        return {"name": lane.value, "event_id": str(applied), "lag": max(self._host.log.committed - applied, 0)}

    def _stores(self) -> Answer:
        """Sizes on the disk."""
        now_us = self._clock.monotonic_us()
        if now_us - self._sized_us >= SIZES_KEPT_US:
            self._sized_us = now_us
            root = self._host.root
            self._sizes = {
                "stores_bytes": _folder_bytes(root / "stores"),
                "queue_store_bytes": _folder_bytes(root / "queue" / "state"),
                "free_bytes": _free_bytes(root),
            }
        return dict(self._sizes)


def _folder_bytes(folder: Path) -> int:
    """Of the files in a folder. One that goes away meanwhile counts nothing."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                total += entry.stat().st_size if entry.is_file() else 0
    return total


def _free_bytes(root: Path) -> int:
    with suppress(OSError):
        found = os.statvfs(root)
        return found.f_bavail * found.f_frsize
    return 0
