"""Snapshots of carriers: a replica that needs more of the log than is kept takes the stores of another one.

Whoever gives sends what its stores hold at one moment, with the event through which they are applied, over a sealed
stream of its own. Whoever takes writes it beside its own stores and checks it to the last byte; then it takes their
place in one step, and the log is applied from there. Whatever breaks before that leaves what was.

A partition that is new takes it from the one that it comes of, which has its users until the flip, and forgets the
rest.

Bounds: a giver sends to ``GIVES_MAX`` at a time, beyond which it says so, and one piece of ``PIECE_BYTES`` in a turn.
Who takes gives up after ``SILENCE_SECONDS`` without a byte; who gives, after ``STUCK_MS`` in which the taker took
nothing: a process that stands still would keep others from taking any, and old files from going.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from pixiu.backends.embedded.layout import LAYOUT
from pixiu.machines.snapshots import Ask, End, Frames, Head, No, Pairs, Summing, encode, fits
from pixiu.model.errors import Conflict, CorruptData, PixiuError, RemoteProtocolError, Unavailable
from pixiu.node.processes.carrier.stores import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.model.partitions import Share
    from pixiu.node.processes.carrier.stores import StoreHome
    from pixiu.ports.keyvalue import KeyValue
    from pixiu.ports.registry import Folder
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.transport import WatchedLink, WatchedReceiver

__all__ = ["BULK", "Giving", "Hangs", "givers_in", "take_snapshot"]

log = logging.getLogger(__name__)

BULK = "bulk"
"""Where a replica gives snapshots, in its entry of the registry."""
PIECE_BYTES = 2**18
PIECE_PAIRS = 512
GIVES_MAX = 2
SILENCE_SECONDS = 10.0
STUCK_MS = 30_000
WRITE_PAIRS = 4_096


class Hangs(Protocol):
    """A connection that is being made, or is there."""

    def close(self) -> object:
        """Give it up."""
        ...


class Giving:
    """What one life of a replica gives to others."""

    def __init__(
        self, store: KeyValue, scheduler: Scheduler, *, commit: Callable[[], object], head: Callable[[], Head]
    ) -> None:
        """``commit`` makes the store hold what is applied; ``head`` says what it is."""
        self.given = 0
        """Snapshots that went out whole."""
        self.piece_pairs = PIECE_PAIRS
        """At most so many in one piece."""
        self.refusal = ""
        """Why none is given; empty if some are."""
        self._store = store
        self._scheduler = scheduler
        self._commit = commit
        self._head = head
        self._gives: set[_Give] = set()

    def accept(self) -> WatchedReceiver:
        """Somebody comes for one."""
        give = _Give(self._scheduler, self._begin, self._over, self.piece_pairs)
        self._gives.add(give)
        return give

    def stop(self) -> None:
        """Hang up."""
        for give in list(self._gives):
            give.stop()

    def _begin(self, ask: Ask) -> tuple[Head, Iterator[tuple[bytes, bytes]]]:
        """Raises ``Conflict`` if this is not what is asked for."""
        if self.refusal:
            raise Conflict(self.refusal)
        if sum(give.is_busy for give in self._gives) >= GIVES_MAX:
            raise Conflict(f"{GIVES_MAX} snapshots are on their way already")
        self._commit()
        head = self._head()
        if not fits(ask, head):
            raise Conflict(
                f"partition {ask.partition} of {ask.partitions} is not in "
                f"partition {head.partition} of {head.partitions}"
            )
        return head, self._store.dump()

    def _over(self, give: _Give, *, is_whole: bool) -> None:
        self._gives.discard(give)
        self.given += is_whole


class _Give:
    """One snapshot on its way out."""

    def __init__(
        self,
        scheduler: Scheduler,
        begin: Callable[[Ask], tuple[Head, Iterator[tuple[bytes, bytes]]]],
        over: Callable[..., object],
        piece_pairs: int,
    ) -> None:
        self.is_busy = False
        self._scheduler = scheduler
        self._begin = begin
        self._over = over
        self._piece_pairs = piece_pairs
        self._frames = Frames()
        self._link: WatchedLink | None = None
        self._pairs: Iterator[tuple[bytes, bytes]] | None = None
        self._sum = Summing()
        self._is_paused = False
        self._stuck: Timer | None = None
        self._is_due = False

    def opened(self, link: WatchedLink) -> None:
        """There is a connection; what is wanted comes."""
        self._link = link

    def received(self, data: bytes) -> None:
        """What is wanted. More than one wish makes no sense."""
        try:
            for said in self._frames.feed(data):
                if not isinstance(said, Ask) or self._pairs is not None:
                    raise RemoteProtocolError("whoever takes a snapshot asks for one")
                head, self._pairs = self._begin(said)
                self.is_busy = True
                self._say(encode(head))
                self._go_on()
        except PixiuError as error:
            log.info("no snapshot", extra={"reason": str(error)})
            self._say(encode(No(str(error))))
            self.stop()

    def paused(self) -> None:
        """More waits than the taker takes."""
        self._is_paused = True
        if self._stuck is None:
            self._stuck = self._scheduler.after(STUCK_MS, self._is_stuck)

    def resumed(self) -> None:
        """It takes it again."""
        self._is_paused = False
        self._cancel_stuck()
        self._go_on()

    def lost(self, reason: str) -> None:
        """The taker is gone: perhaps with all of it."""
        self._link = None
        self._cancel_stuck()
        self._over(self, is_whole=False)

    def _is_stuck(self) -> None:
        log.warning("a snapshot is not taken any more", extra={"ms": STUCK_MS})
        self.stop()

    def _cancel_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def stop(self) -> None:
        """Hang up."""
        self._cancel_stuck()
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._over(self, is_whole=False)

    def _go_on(self) -> None:
        if not self._is_due and not self._is_paused and self._pairs is not None and self._link is not None:
            self._is_due = True
            self._scheduler.soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        pairs = self._pairs
        if self._link is None or pairs is None:
            return
        piece: list[tuple[bytes, bytes]] = []
        size = 0
        try:
            for pair in islice(pairs, self._piece_pairs):
                piece.append(pair)
                size += len(pair[0]) + len(pair[1])
                if size >= PIECE_BYTES:
                    break
        except PixiuError as error:
            log.warning("a snapshot cannot be read", extra={"reason": str(error)})
            self.stop()
            return
        if piece:
            self._say(encode(self._sum.made(piece)))
            self._go_on()
        else:
            self._pairs = None
            self._say(encode(self._sum.end()))
            self._over(self, is_whole=True)

    def _say(self, data: bytes) -> None:
        if self._link is not None:
            self._link.write(data)


class _Take:
    """One snapshot on its way in."""

    def __init__(self, home: StoreHome, share: Share, applied: int) -> None:
        self.came = asyncio.Event()
        self.head: Head | None = None
        self.is_complete = False
        self.error: PixiuError | None = None
        self._home = home
        self._share = share
        self._applied = applied
        self._frames = Frames()
        self._sum = Summing()
        self._store: KeyValue | None = None
        self._waiting: list[tuple[bytes, bytes]] = []

    def opened(self, link: WatchedLink) -> None:
        """There is a connection: say what is wanted."""
        link.write(encode(Ask(self._share.partition, self._share.count)))
        self.came.set()

    def received(self, data: bytes) -> None:
        """A part of it."""
        self.came.set()
        if self.error is not None or self.is_complete:
            return
        try:
            for said in self._frames.feed(data):
                self._take(said)
        except PixiuError as error:
            self.error = error

    def paused(self) -> None:
        """Nothing is sent."""

    def resumed(self) -> None:
        """Nothing is sent."""

    def lost(self, reason: str) -> None:
        """It has ended, or could not be made."""
        if not self.is_complete and self.error is None:
            self.error = Unavailable(f"the snapshot did not come: {reason}")
        self.came.set()

    def close(self) -> None:
        """Let go of the store; what is in it counts only if it was complete."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _take(self, said: Head | Pairs | End | No | Ask) -> None:
        match said:
            case Head() if self.head is None:
                self._begin(said)
            case Pairs() if self._store is not None:
                self._waiting += self._sum.came(said)
                if len(self._waiting) >= WRITE_PAIRS:
                    self._write()
            case End() if self._store is not None and self.head is not None:
                self._write()
                if said != self._sum.end():
                    raise CorruptData("the snapshot is not what was sent")
                seal(self._store, None if self.head.partition == self._share.partition else self._share)
                self.is_complete = True
            case No(reason):
                raise Unavailable(f"there is no snapshot: {reason}")
            case _:
                raise RemoteProtocolError(f"a snapshot does not go on with {type(said).__name__}")

    def _begin(self, head: Head) -> None:
        share = self._share
        if head.layout != LAYOUT:
            raise Unavailable(f"the snapshot has layout {head.layout}, not {LAYOUT}")
        if not fits(Ask(share.partition, share.count), head):
            raise Unavailable(f"the snapshot is of partition {head.partition} of {head.partitions}")
        if head.applied <= self._applied:
            raise Unavailable(f"the snapshot is at event {head.applied}, and this replica is at {self._applied}")
        self.head = head
        self._store = self._home.fresh()

    def _write(self) -> None:
        if self._waiting and self._store is not None:
            self._store.write(self._waiting)
            self._waiting = []


async def take_snapshot(
    dial: Callable[[WatchedReceiver], Hangs], home: StoreHome, share: Share, *, applied: int
) -> int:
    """Take the stores of whoever is dialled, put them in place. Returns the event through which they are applied.

    The stores in place are closed; they stay as they are when this raises ``PixiuError``. ``applied`` is how far they
    are: what is not ahead of that is refused.
    """
    take = _Take(home, share, applied)
    hangs = dial(take)
    try:
        while not take.is_complete:
            take.came.clear()
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await take.came.wait()
            except TimeoutError:
                raise Unavailable(f"the snapshot stopped coming for {SILENCE_SECONDS:g} s") from None
            if take.error is not None:
                raise take.error
    finally:
        hangs.close()
        take.close()
    assert take.head is not None
    home.adopt()
    return take.head.applied


def givers_in(folder: Folder, name: str, partitions: list[int]) -> list[tuple[str, int]]:
    """Addresses and boot ids of those who give snapshots of these partitions, but for this one.

    Whoever stands by comes before whoever serves. ``folder`` is the role's.
    """
    found: list[tuple[int, bool, str, int]] = []
    for place, partition in enumerate(partitions):
        path = f"partition{partition}/"
        leader = folder.get(f"{path}leader")
        serves = None if leader is None else leader.data.get("name")
        for entry_path, entry in folder.items():
            number = entry_path.removeprefix(path)
            bulk, boot, other = (entry.data.get(key) for key in (BULK, "boot", "name"))
            if not (entry_path.startswith(path) and number.isdecimal() and isinstance(bulk, str)) or other == name:
                continue
            if entry.data.get("state") == "Running":
                found.append((place, other == serves, bulk, int(str(boot), 16)))
    return [(bulk, boot) for _, _, bulk, boot in sorted(found)]
