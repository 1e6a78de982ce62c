"""Which segments may go.

By default none: the journal is kept for good. Where a limit by age or size is set, a topic segment goes when it is past
the limit, and a journal segment goes when it is past the limit *and* everything derived from it is durable: behind the
checkpoint, behind every in-sync follower, and holding no delayed publish that has yet to come. The last segment stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from pixiu.queue.engine import Engine
    from pixiu.queue.storage.topics import Topic

log = logging.getLogger(__name__)

DAY_MS = 86_400_000


class Retention:
    """Looks over all logs once in a while."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self) -> None:
        """Drop what is past its limits."""
        topics = self._engine.all_settings.topics
        if topics.retention_days or topics.retention_bytes:
            for listed in list(self._engine.topics.listed()):
                topic = self._engine.topics.get(listed.name)
                if topic is not None:
                    self._drop_from_topic(topic)
        self._drop_from_journal()

    def _drop_from_topic(self, topic: Topic) -> None:
        engine = self._engine
        settings = engine.all_settings.topics
        try:
            logs = engine.topics.log_of(topic)
            sizes = {number: _size(engine, logs.path(number)) for number in logs.numbers}
            total = sum(sizes.values())
            while len(logs.numbers) > 1:
                oldest = logs.numbers[0]
                is_old = settings.retention_days and is_outdated(engine, logs.path(oldest), settings.retention_days)
                is_much = settings.retention_bytes and total > settings.retention_bytes
                if not (is_old or is_much) or not logs.drop_oldest():
                    break
                total -= sizes[oldest]
                engine.counters.segments_dropped += 1
        except (OSError, PixiuError) as error:
            log.warning("retention skipped a topic", extra={"folder": topic.folder, "reason": str(error)})

    def _drop_from_journal(self) -> None:
        engine = self._engine
        settings = engine.all_settings.journal
        if not (settings.retention_days or settings.retention_bytes):
            return
        journal = engine.journal
        safe_through = engine.retained_from() - 1
        while len(journal.segments) > 1 and journal.segments[0].last_event_id <= safe_through:
            oldest = journal.segments[0]
            is_old = settings.retention_days and is_outdated(engine, oldest.path, settings.retention_days)
            is_much = settings.retention_bytes and journal.size > settings.retention_bytes
            if not (is_old or is_much):
                return
            engine.counters.segments_dropped += journal.drop_through(oldest.last_event_id)
            log.info("journal segment dropped", extra={"file": oldest.path, "through": oldest.last_event_id})


def is_outdated(engine: Engine, path: str, days: int) -> bool:
    """Was the file last written before the retention limit?"""
    return engine.files.modified_ms(path) < engine.clock.now_ms() - days * DAY_MS


def _size(engine: Engine, path: str) -> int:
    file = engine.files.open(path)
    try:
        return file.size()
    finally:
        file.close()
