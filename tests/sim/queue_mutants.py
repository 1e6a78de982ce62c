"""Literal errors of the queue's storage, each of which the simulated world must catch.

A simulator proves little until it has caught something. Each entry puts one error back, as a change of one method.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.queue.background import Background
from pixiu.queue.batch import Batch
from pixiu.queue.delays import HEAD, Delayed
from pixiu.queue.engine import Engine
from pixiu.queue.storage import recovery
from pixiu.queue.storage.changes import Changes
from pixiu.queue.storage.journal import FOLDER, Journal
from pixiu.queue.storage.keys import Numbers
from pixiu.queue.storage.record import HEADER_BYTES, Damage, Frame, Kind, Record
from pixiu.queue.storage.segment import BLOCK_BYTES, Segment
from pixiu.queue.storage.state import State
from pixiu.queue.storage.topic_log import End, TopicLog, Window
from pixiu.queue.storage.topics import Topic, Topics
from pixiu.queue.writer import Writer
from pixiu.testing.disk import SimulatedDisk

Patch = Callable[[pytest.MonkeyPatch], None]


def answers_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    inline, beside = Writer._flush_inline, Writer._flush_beside

    def early_inline(self: Writer, through: int) -> None:
        self._release_flushed(through)
        inline(self, through)

    def early_beside(self: Writer, through: int) -> None:
        self._release_flushed(through)
        beside(self, through)

    patch.setattr(Writer, "_flush_inline", early_inline)
    patch.setattr(Writer, "_flush_beside", early_beside)


def rolls_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Journal, next_event_id: int) -> int:
        if not self.segments or self.tail.size >= self._segment_bytes:
            self.segments.append(Segment(self._files, FOLDER, next_event_id, create=True))
            self._files.flush_folder(FOLDER)
        return self.tail.size

    patch.setattr(Journal, "begin", begin)
    patch.setattr(Journal, "is_full", False)


def believes_whatever_a_topic_log_holds(patch: pytest.MonkeyPatch) -> None:
    def believe(self: TopicLog, end: End) -> None:
        if self.numbers:
            self._load_tail()

    patch.setattr(TopicLog, "_cut_to", believe)


def saves_the_checkpoint_before_it_is_true(patch: pytest.MonkeyPatch) -> None:
    original = Background.checkpoint

    def checkpoint(self: Background) -> None:
        engine = self._engine
        if not self._is_checkpointing and not self._is_stopped:
            engine.state.save_checkpoint(engine.commit_event_id, engine.topics.unflushed()[1])
        original(self)

    patch.setattr(Background, "checkpoint", checkpoint)


def takes_written_for_committed(patch: pytest.MonkeyPatch) -> None:
    original = Background.checkpoint

    def checkpoint(self: Background) -> None:
        engine = self._engine
        before, engine.commit_event_id = engine.commit_event_id, engine.journal.last_event_id
        try:
            original(self)
        finally:
            engine.commit_event_id = before

    patch.setattr(Background, "checkpoint", checkpoint)


def fires_first_and_forgets_later(patch: pytest.MonkeyPatch) -> None:
    """The delay goes in a batch of its own, a while after its firing."""
    original = Background._sequence_fire

    def sequence(self: Background, delayed: Delayed, batch: Batch) -> None:
        original(self, delayed, batch)
        fired = batch.changes._commits.pop()
        rows = Changes()
        self._engine.state.delays.remove(delayed.due_ms, delayed.event_id, rows)
        for key in rows.deletes:
            batch.changes._batch.pop(key, None)

        def later() -> None:
            self._engine.state.store.write([], rows.deletes)
            fired()

        batch.changes.on_commit(lambda: self._engine.scheduler.after(300, later))

    patch.setattr(Background, "_sequence_fire", sequence)


def replays_a_firing_without_ending_its_delay(patch: pytest.MonkeyPatch) -> None:
    original = State._apply_messages

    def apply(
        self: State, record: Record, topic: Topic | None, messages: list[bytes], changes: Changes
    ) -> tuple[Topic, Window] | None:
        return original(self, record, topic, messages, Changes())

    patch.setattr(State, "_apply_messages", apply)


def forgets_keys_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: Engine, after: int, through: int) -> Iterator[tuple[bytes, Numbers]]:
        return iter(())

    patch.setattr(Engine, "_keys_between", nothing)


def does_not_flush_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "flush_folder", lambda self, folder: None)


def lets_the_store_run_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Changes, "is_empty", True)


def believes_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_make_durable", lambda tail, position: None)


def finds_deleted_topics_in_the_store(patch: pytest.MonkeyPatch) -> None:
    class Nothing(dict[bytes, Topic]):
        def __setitem__(self, name: bytes, topic: Topic) -> None:
            """Keep nothing."""

    original = Topics.__init__

    def init(self: Topics, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._ending = Nothing()

    patch.setattr(Topics, "__init__", init)


def answers_many_with_one_error(patch: pytest.MonkeyPatch) -> None:
    def answer_all(self: Writer, batches: Any, reason: str) -> None:
        for batch in batches:
            for reply in batch.replies:
                reply[0].answered(encode_refused(reason))

    patch.setattr(Writer, "_answer_all", answer_all)


def removes_files_before_the_end_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = Topics._discard

    def discard(self: Topics, topic: Topic) -> None:
        original(self, topic)
        self._files.remove_folder(topic.folder)
        self._files.flush_folder(topic.folder.rpartition("/")[0])

    patch.setattr(Topics, "_discard", discard)


def numbers_a_delay_too_early(patch: pytest.MonkeyPatch) -> None:
    original = Batch.change

    def change(self: Batch, kind: Kind, topic: bytes, payload: bytes, **named: Any) -> int:
        if kind == Kind.DELAY and self.next_event_id > 3:
            due_ms, event_id = HEAD.unpack_from(payload)
            payload = HEAD.pack(due_ms, event_id - 1) + payload[HEAD.size :]
        return original(self, kind, topic, payload, **named)

    patch.setattr(Batch, "change", change)


def resumes_behind_the_segment(patch: pytest.MonkeyPatch) -> None:
    """A chunk that reaches beyond the end of a segment: whoever resumes within it misses its rest."""
    original = TopicLog.find

    def find(self: TopicLog, event_id: int) -> tuple[int, int]:
        number, position = original(self, event_id)
        if position >= self._segment_bytes and number < self.file_number:
            return number + 1, 0
        return number, position

    patch.setattr(TopicLog, "find", find)


def fills_from_the_block_of_the_end(patch: pytest.MonkeyPatch) -> None:
    """Rounded down where it must be rounded up: the newest records are in that block."""
    fill = Segment.fill

    def overlapping(self: Segment, zeros: bytes, limit: int) -> bool:
        if self._filled <= self.size:
            self.log.write(zeros, self.size // BLOCK_BYTES * BLOCK_BYTES)
        return fill(self, zeros, limit)

    patch.setattr(Segment, "fill", overlapping)


def rolls_with_zeros_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "cut_zeros", lambda self: None)


MUTANTS: dict[str, Patch] = {
    patch.__name__: patch
    for patch in (
        answers_before_the_flush,
        rolls_without_a_flush,
        believes_whatever_a_topic_log_holds,
        saves_the_checkpoint_before_it_is_true,
        takes_written_for_committed,
        fires_first_and_forgets_later,
        replays_a_firing_without_ending_its_delay,
        forgets_keys_at_a_restart,
        does_not_flush_names,
        lets_the_store_run_ahead,
        believes_the_page_cache,
        finds_deleted_topics_in_the_store,
        answers_many_with_one_error,
        removes_files_before_the_end_is_durable,
        numbers_a_delay_too_early,
        resumes_behind_the_segment,
        fills_from_the_block_of_the_end,
        rolls_with_zeros_at_the_end,
    )
}


def cuts_at_the_first_damage(patch: pytest.MonkeyPatch) -> None:
    """Recovery without the rule that tells rot from an unfinished write."""
    patch.setattr(recovery, "_refuse_rot", lambda tail, damage, expected: None)
    original = recovery.find_end

    def find_end(journal: Journal, applied: int, flushed: int = 0) -> recovery.Recovered:
        return original(journal, applied)

    patch.setattr("pixiu.queue.engine.find_end", find_end)


def serves_topics_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicLog, "_check", lambda self, number, data, chunk, begin: None)


def takes_the_first_zeros_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """As if zeros could only have been laid ahead: a lost write with sound frames behind it is the end, too."""
    scan = Segment.scan

    def up_to_zeros(self: Segment, position: int = 0) -> Iterator[tuple[int, Frame | Damage]]:
        for at, frame in scan(self, position):
            if isinstance(frame, Damage) and not any(self.log.read(at, HEADER_BYTES)):
                return
            yield at, frame

    patch.setattr(Segment, "scan", up_to_zeros)


ROT_MUTANTS: dict[str, Patch] = {
    "takes_the_first_zeros_for_the_end": takes_the_first_zeros_for_the_end,
    "cuts_at_the_first_damage": cuts_at_the_first_damage,
    "serves_topics_unchecked": serves_topics_unchecked,
}
