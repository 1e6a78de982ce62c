"""Rot: one bit of a queue's files turns over while nobody looks, or one block of the journal is zeros.

The queue may refuse to start, or refuse to serve, and must then name the file and the byte; it may serve what is right.
It must never serve anything else, nor leave anything out in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import requests as wire
from pixiu.model.errors import CorruptData
from pixiu.testing.queue.clients import Publisher, Request, Subscriber, Wire
from pixiu.testing.queue.oracle import Model, Violation, journal_frames
from pixiu.testing.queue.world import QueueWorld

if TYPE_CHECKING:
    from pixiu.queue.storage.record import Frame

__all__ = ["RotWorld"]

REQUESTS = 60


class RotWorld(QueueWorld):
    """Work, an end of the process, one flipped bit, a start, and a look at everything."""

    def __init__(self, seed: int, kinds: tuple[str, ...] = ("journal.log", "journal.idx", "topics.log", "topics.idx")):
        super().__init__(seed)
        self._kinds = kinds
        self.flipped = ""
        self.kind = ""
        self.position = 0
        self._size = 1
        """How many bytes were changed, from there on."""
        self._is_ahead = False
        """Was it one of the zeros that lie ahead of the journal's end, of which nobody asks anything?"""
        self.verdict = ""
        """What came of it: refused, reported, cut, harmless, or ahead of the journal's end."""

    def rot(self) -> str:
        """Run. Returns the verdict; raises ``Violation`` if rot was served or passed over."""
        try:
            self.boot()
            self._live_well()
            if self.rng.random() < 0.5:
                self.stop()
            self.scheduler.close()
            frames = journal_frames(self.disk)
            if self._flip():
                self._start_and_look(frames)
        finally:
            self.scheduler.close()
        return self.verdict

    def _live_well(self) -> None:
        while len(self.requests) < REQUESTS:
            self._live()
        self.settle()
        self.scheduler.run_for(50)
        self.take_answers()
        self.settle()

    def _make_trouble(self) -> None:
        """One kind of trouble is enough."""

    def _flip(self) -> bool:
        """Turn over one bit of one file, or lose a block of it. False if there is no file of that kind."""
        self.kind = self.rng.choice(self._kinds)
        folder, ending = self.kind.split(".")
        paths = [path for path in self.disk.files(f"queue/{folder}") if path.endswith(ending)]
        paths = [path for path in paths if self.disk.content(path)]
        if not paths:
            return False
        self.flipped = self.rng.choice(paths)
        bit = self.rng.randrange(len(self.disk.content(self.flipped)) * 8)
        self.position = bit // 8
        is_last = self.flipped == paths[-1]
        self._is_ahead = is_last and self.position >= len(self.disk.content(self.flipped).rstrip(b"\0"))
        if self.kind == "journal.log" and self.rng.random() < 0.4:
            self.note("blank", self.flipped, bit)
            return self._blank()
        self.disk.flip(self.flipped, bit)
        self.note("flip", self.flipped, bit)
        return True

    def _blank(self) -> bool:
        """A block that the disk said it had, and never wrote: zeros, with frames before and behind it."""
        size = self.weather.block_bytes
        self.position = self.position // size * size
        before = self.disk.content(self.flipped)
        blank = bytes(min(size, len(before) - self.position))
        self._size = len(blank)
        self.disk.open(self.flipped).write(blank, self.position)
        self.disk.open(self.flipped).flush()
        return self.disk.content(self.flipped) != before

    def _start_and_look(self, frames: list[Frame]) -> None:
        try:
            self.boot()
        except CorruptData as error:
            self._judge(str(error), "refused")
            return
        kept = [frame for frame in frames if frame.last_event_id <= self.engine.journal.last_event_id]
        if len(kept) < len(frames):
            self._check_cut(frames)
        self._look_at_topics(Model(kept))
        self._look_at_keys(Model(kept))
        self._look_at_journal(kept)
        if not self.verdict:
            self.verdict = "harmless"
        if self._is_ahead and len(kept) == len(frames):
            self.verdict = "ahead"
        if self.verdict == "harmless" and self.kind == "journal.log":
            raise Violation(f"{self.flipped} byte {self.position}: nobody noticed")

    def _check_cut(self, frames: list[Frame]) -> None:
        """A start may take rot in the very last write for an unfinished one; nothing before that may go.

        Where a lost block has taken every frame that could say so, nobody can know.
        """
        last = self.engine.journal.last_event_id
        gone = [frame for frame in self._whole(frames) if frame.last_event_id > last]
        proof = max((frame.flushed_through for frame in gone), default=0)
        if proof > last or self.engine.state.applied > last:
            raise Violation(f"events behind {last} were cut off, though event {proof} was known to be flushed")
        self.verdict = "cut"

    def _whole(self, frames: list[Frame]) -> list[Frame]:
        """The frames that rot has not touched."""
        first_event_id = int(self.flipped.rpartition("/")[2].partition(".")[0])
        found, begin = [frame for frame in frames if frame.event_id < first_event_id], 0
        for frame in frames[len(found) :]:
            end = begin + frame.size
            if end <= self.position or begin >= self.position + self._size:
                found.append(frame)
            begin = end
        return found

    def _judge(self, text: str, verdict: str) -> None:
        """Did it name the place?"""
        stem = self.flipped.rpartition(".")[0]
        if "byte" not in text or stem not in text:
            raise Violation(f"{self.flipped} byte {self.position} was reported as {text!r}")
        self.verdict = verdict

    def _look_at_topics(self, model: Model) -> None:
        for name, topic in model.topics.items():
            if 0 < topic.expires_at <= self.clock.now_ms():
                continue
            subscriber = Subscriber(Wire(self.server, self.scheduler), name, b"look")
            subscriber.wire.send(wire.encode_sub(name, b"look", after=0, batch=self.rng.choice([1, 255])))
            self.scheduler.run_ready()
            subscriber.take_pushes()
            while subscriber.unacked:
                subscriber.ack()
                self.scheduler.run_ready()
                subscriber.take_pushes()
            got = [(item.event_id, item.time_ms, item.message) for item in subscriber.items]
            if got != topic.log[: len(got)]:
                raise Violation(f"{self.flipped} byte {self.position}: {name!r} serves what was never published")
            if subscriber.text:
                self._judge(subscriber.text, "reported")
            elif len(got) < len(topic.log):
                raise Violation(f"{self.flipped} byte {self.position}: {name!r} ends early, in silence")
            subscriber.wire.hang_up()
            self.scheduler.run_ready()

    def _look_at_keys(self, model: Model) -> None:
        for key, numbers in list(model.keys.items())[:5]:
            publisher = Publisher(Wire(self.server, self.scheduler), self.rng, self.clock.monotonic_us)
            topic = next(iter(model.topics), b"none")
            request = Request("append", topic, key=key)
            publisher.send([(request, wire.encode_append(topic, self.make.body()[1], key=key))])
            self.scheduler.run_for(200)
            publisher.take_answers()
            if request.outcome == "open":
                raise Violation(f"{self.flipped} byte {self.position}: {request} was not answered")
            if request.outcome == "ok" and (request.event_id, request.message_id) != numbers and not self.verdict:
                raise Violation(f"{self.flipped} byte {self.position}: key {key!r} is now {request}, was {numbers}")
            publisher.wire.hang_up()

    def _look_at_journal(self, frames: list[Frame]) -> None:
        """Read it as a follower does."""
        try:
            found = [frame for _, _, frame in self.engine.journal.scan_after(0)]
        except CorruptData as error:
            self._judge(str(error), "reported")
            return
        if found[: len(frames)] != frames:
            raise Violation(f"{self.flipped} byte {self.position}: the journal serves what was never written")
