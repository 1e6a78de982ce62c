"""The proxy of rooms: takes what is said anywhere, and passes it to the broker that has the room.

Three stages, each for all that has come in a turn: read (the room of each message, nothing else), route (which broker),
send (one batch per broker, one confirmation per publisher). The article gives each stage threads of its own; here a
batch goes through all three, and a second core gets a second proxy.

A message is passed on in the bytes in which it came. The proxy copies nothing and keeps nothing (X72): what has to be
sent again is sent again by the publisher. A big room is the exception: its message becomes one for each slice.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pixiu.machines.bigrooms import SPLIT, SliceAcks
from pixiu.machines.links.codec import TALK, TALK_HEAD
from pixiu.machines.links.messages import Declined, Settled, SliceSettled, Taken, Talk
from pixiu.machines.links.packing import MESSAGE_BYTES_MAX
from pixiu.machines.scheduling import Priority
from pixiu.model.partitions import PROBE_ROOMS_BEGIN, SLICES, ranked, replica_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pixiu.links.bigrooms import BigRooms
    from pixiu.links.directory import Directory
    from pixiu.links.endpoint import Endpoint, Lanes
    from pixiu.machines.bigrooms import BigRoom
    from pixiu.machines.links.packing import Encoded
    from pixiu.ports.scheduler import Scheduler

__all__ = ["RoomProxy"]

log = logging.getLogger(__name__)

CHOICES_MAX = 100_000
"""Rooms whose broker is remembered; then all are looked up again."""
WEIGH_MS = 5_000
RETRY_MS = 100
WHOLE_ROOM = 0
"""No slice: a big room as the room that it was."""
SLICES_PER_TURN = 16
"""Of a big room, in one turn of the loop."""
SPREADING_MAX = 4_096
"""Messages of big rooms that wait for their turns; more are declined as busy."""
LAST = int(Priority.BULK)
IDS_MAX = (MESSAGE_BYTES_MAX - 4) // 8
"""Ids of messages in one confirmation."""


class RoomProxy:
    """One proxy."""

    def __init__(
        self, endpoint: Endpoint, directory: Directory, scheduler: Scheduler, bigs: BigRooms | None = None
    ) -> None:
        """``bigs``: the rooms that are big."""
        self.passed = 0
        self.declined = 0
        self.when_ready: Callable[[], object] = lambda: None
        """Told once, when every partition of the brokers has somebody: only then it may be found (E1)."""
        self._endpoint = endpoint
        self._directory = directory
        self._scheduler = scheduler
        self._brokers = directory.follow("broker")
        self._choices: dict[tuple[int, int], int] = {}
        self._weights: dict[int, dict[int, float]] = {}
        self._is_ready = False
        self._bigs = bigs
        self._split: dict[int, BigRoom] = {}
        self._acks = SliceAcks()
        self._spreading: deque[tuple[BigRoom, int, int, Any]] = deque()
        self._is_spreading = False
        if bigs is not None:
            bigs.when_changed.append(self._bigs_changed)
        endpoint.on(SliceSettled, self._slice_settled)
        directory.when_changed.append(self._changed)
        endpoint.on_talks(self.talks)
        endpoint.on(Settled, self._settled)
        endpoint.on(Declined, self._declined)

    def start(self) -> None:
        """Begin."""
        self._weigh()

    @property
    def is_complete(self) -> bool:
        """Is there a broker for every room?"""
        count = self._brokers.counts.count
        if self._bigs is not None and not self._bigs.is_read:
            return False
        return self._brokers.counts.version >= 0 and all(self._brokers.usable(each) for each in range(count))

    def talks(self, talks: list[tuple[int, Encoded | Talk]]) -> None:
        """What has come in a turn: who sent it, and what."""
        routed: dict[int, Lanes] = {}
        taken: dict[int, list[int]] = {}
        version = max(self._brokers.counts.version, 0)
        stamp = version.to_bytes(4, "big")
        choices, split, read = self._choices, self._split, TALK_HEAD.unpack_from
        for boot, talk in talks:
            if not isinstance(talk, Talk):
                body = talk[1]
                if len(body) < TALK_HEAD.size:
                    continue
                _, room, message_id, publisher, copy, priority, _ = read(body)
                passed: Any = talk if body.startswith(stamp) else (TALK, stamp + body[4:])
                if priority > LAST:
                    priority = LAST
            else:
                _, room, message_id, publisher, copy, priority, _, _ = talk
                passed = talk._replace(count_version=version)
            if room >= PROBE_ROOMS_BEGIN:
                passed = self._stamped(passed)
            elif room in split:
                big = split[room]
                has_whole = self._bigs is not None and self._bigs.has_whole(big)
                if not self._spread(big, talk, (message_id, publisher, copy), has_whole=has_whole):
                    self.declined += 1
                    self._endpoint.send(boot, Declined(publisher, message_id, "busy", RETRY_MS, 0, 0))
                    continue
                if not has_whole:
                    taken.setdefault(boot, []).append(message_id)
                    continue
            broker = choices.get((room, copy)) or self._choose(room, copy)
            if not broker:
                self.declined += 1
                self._endpoint.send(boot, Declined(publisher, message_id, "unavailable", RETRY_MS, 0, 0))
                continue
            lanes = routed.get(broker)
            if lanes is None:
                lanes = routed[broker] = ([], [], [], [])
            lanes[priority].append(passed)
            ids = taken.get(boot)
            if ids is None:
                ids = taken[boot] = []
            ids.append(message_id)
        self._pass_on(routed, taken)

    def _pass_on(self, routed: dict[int, Lanes], taken: dict[int, list[int]]) -> None:
        """The last stage: one batch per broker, and confirmations that fill a datagram each."""
        for broker, lanes in routed.items():
            self.passed += sum(map(len, lanes))
            self._endpoint.send_all(broker, lanes)
        for boot, ids in taken.items():
            for begin in range(0, len(ids), IDS_MAX):
                self._endpoint.send(boot, Taken(ids[begin : begin + IDS_MAX]))

    def _stamped(self, passed: Any) -> Any:
        if isinstance(passed, Talk):
            return passed._replace(body=self._endpoint.stamp("proxy", passed.body))
        return (TALK, self._endpoint.stamp("proxy", passed[1]))  # the body is the last field

    # Big rooms.

    def _spread(self, room: BigRoom, talk: Encoded | Talk, head: tuple[int, int, int], *, has_whole: bool) -> bool:
        """One message becomes 64, some in each turn: what is said in other rooms meanwhile goes between them.

        False if too many wait already.
        """
        if len(self._spreading) >= SPREADING_MAX:
            return False
        message_id, publisher, copy = head
        self._acks.sent(publisher, message_id, has_whole=has_whole)
        self._spreading.append((room, copy, 0, talk))
        if not self._is_spreading:
            self._is_spreading = True
            self._scheduler.soon(self._spread_some)
        return True

    def _spread_some(self) -> None:
        room, copy, begin, talk = self._spreading.popleft()
        version = max(self._brokers.counts.version, 0)
        for piece in room.rooms[begin : begin + SLICES_PER_TURN]:
            broker = self._choices.get((piece, copy)) or self._choose(piece, copy)
            if not broker:
                self.declined += 1  # nobody has this slice: whoever waits for all of them sends it again
                continue
            passed: Any = (
                talk._replace(count_version=version, room=piece)
                if isinstance(talk, Talk)
                else (TALK, version.to_bytes(4, "big") + piece.to_bytes(8, "big") + talk[1][12:])
            )
            self.passed += 1
            self._endpoint.send(broker, passed, Priority.BULK)
        if begin + SLICES_PER_TURN < SLICES:
            # In front: what one publisher says stays in order in each slice.
            self._spreading.appendleft((room, copy, begin + SLICES_PER_TURN, talk))
        self._is_spreading = bool(self._spreading)
        if self._is_spreading:
            self._scheduler.soon(self._spread_some)

    def _bigs_changed(self) -> None:
        assert self._bigs is not None
        self._split = {number: room for number, room in self._bigs.map.rooms.items() if room.phase == SPLIT}
        self._changed()

    def _slice_settled(self, _broker: int, settled: SliceSettled) -> None:
        for message_id in settled.message_ids:
            if self._acks.settled(settled.publisher, message_id, settled.room):
                self._endpoint.send(settled.publisher, Settled(settled.publisher, (message_id,)))

    # Which broker.

    def _choose(self, room: int, copy: int) -> int:
        """The replica that has a room; copies go to different ones, in the order in which the room prefers them."""
        partition = self._brokers.counts.reads_from(room)
        usable = self._brokers.usable(partition)
        if not usable:
            return 0
        first = replica_of(room, usable, self._weights.get(partition))
        ways = [first, *(boot for boot in ranked(room, usable) if boot != first)]
        if len(self._choices) >= CHOICES_MAX:
            self._choices.clear()
        chosen = self._choices[room, copy] = ways[copy % len(ways)]
        return chosen

    def _changed(self) -> None:
        self._choices.clear()
        if not self._is_ready and self.is_complete:
            self._is_ready = True
            self.when_ready()

    def _weigh(self) -> None:
        """Take over the shares, which change slowly: whenever they do, few rooms move."""
        weights = {partition: self._brokers.weights(partition) for partition in self._brokers.partitions}
        if weights != self._weights:
            self._weights = weights
            self._choices.clear()
        self._scheduler.after(WEIGH_MS, self._weigh)

    # Answers on their way back.

    def _settled(self, _broker: int, settled: Settled) -> None:
        publisher, acks = settled.publisher, self._acks
        if not len(acks):
            self._endpoint.send(publisher, settled)
            return
        done = [
            message_id for message_id in settled.message_ids
            if not acks.has(publisher, message_id) or acks.settled(publisher, message_id, WHOLE_ROOM)
        ]  # fmt: skip
        if done:
            self._endpoint.send(publisher, Settled(publisher, done))

    def _declined(self, _broker: int, declined: Declined) -> None:
        if declined.code == "not_owner" and declined.count_version > self._brokers.counts.version:
            self._directory.refresh("broker")
        self._endpoint.send(declined.publisher, declined)
