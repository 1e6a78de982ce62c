"""Reading the log for those who are behind memory: in one thread, a few readers that stand where they ended.

A place is read on without a search while its reader is there; of more places than readers, the one that was left alone
the longest is given up, and found again by a search.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pixiu.backends.kafka.reader import PartitionReader
from pixiu.backends.kafka.reading import searched
from pixiu.backends.kafka.records import LOG, VIEW_OF
from pixiu.backends.kafka.served.frames import Piece, entry_of, pieces_of
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.ports.log import LogRecord

__all__ = ["READERS_MAX", "BehindReading", "TopicPage"]

READERS_MAX = 8
"""Each is a client of Kafka's, which reads up to 16 MiB ahead."""
READ_COUNT = 1_000
"""Entries at a time; the driver has no more than 16 MiB of them."""
WALK_MAX = 20_000
"""Rows of one topic at a time: a second's work at most."""
WAIT_MS = 2_000.0
"""One reading; then it is asked again later."""


class _Place(NamedTuple):
    topic: str
    reached: int


class TopicPage(NamedTuple):
    """Rows of one topic, and the event through which they are all."""

    records: list[LogRecord]
    through: int


class BehindReading:
    """All of it blocks, and is for one thread alone."""

    def __init__(self, address: KafkaAddress, options: dict[str, str]) -> None:
        self._address = address
        self._options = options
        self._readers: dict[_Place, PartitionReader] = {}
        """Those that were used last are last."""

    def frames(self, after: int, hint: int | None, through: int) -> list[Piece]:
        """The next pieces of the log, not beyond ``through``; none when what is committed cannot be read yet.

        Kafka may have committed what its owner does not know of yet: whoever was given that would be ahead of the
        owner, and refused by it when it comes back.

        ``hint`` is an offset at or before the event behind ``after``, if one is known. Raises ``Gone`` where Kafka has
        removed the beginning, ``Unavailable`` when it does not answer.
        """
        reader = self._at(LOG, after, hint)
        with _closed_unless_kept(reader) as kept:
            while True:
                chunk = reader.read(READ_COUNT, WAIT_MS)
                entries = [entry_of(found) for _, found in chunk.found if found.record.event_id <= through]
                is_passed = len(entries) < len(chunk.found)
                pieces = list(pieces_of(after, entries))
                if pieces or chunk.is_end or is_passed:
                    break
            if not chunk.is_end and not is_passed:
                # At the end it would wait for more, and everyone else for it; and beyond it memory goes on.
                kept.append(self._keep(_Place(LOG, pieces[-1].last), reader))
        return pieces

    def topic(self, topic: str, after: int, limit: int, through: int, needed: int) -> TopicPage:
        """Rows of a topic behind ``after``, not beyond ``through``; event ``needed`` is one of them, if it is behind.

        A page ends early when ``WALK_MAX`` rows were walked, which are mostly users of a push: whoever else reads has
        its turn. What was committed a moment ago may not be readable yet: then it raises ``Unavailable``.
        """
        view = VIEW_OF[topic]
        reader = self._at(view, after, None)
        records: list[LogRecord] = []
        reached, walked = after, 0
        with _closed_unless_kept(reader) as kept:
            while len(records) < limit and walked < WALK_MAX:
                chunk = reader.read(min(limit - len(records), WALK_MAX - walked), WAIT_MS)
                walked += len(chunk.found)
                for _, found in chunk.found:
                    reached = max(reached, found.record.event_id)
                    if found.record.topic == topic and after < found.record.event_id <= through:
                        records.append(found.record)
                if reached < needed and chunk.is_end:
                    raise Unavailable(f"Kafka gives {topic} through event {reached}, and {needed} was committed")
                if reached >= through or chunk.is_end:
                    return TopicPage(records, through)
            if walked >= WALK_MAX and not records:  # one push, perhaps, and its last row may be far
                reader.seek(searched(self._address, reader, reached, WAIT_MS, is_log=False))
            kept.append(self._keep(_Place(view, reached), reader))
        return TopicPage(records, reached)

    def _at(self, topic: str, after: int, hint: int | None) -> PartitionReader:
        """A reader before the first record behind an event. It is taken out: one that fails is not used again."""
        reader = self._readers.pop(_Place(topic, after), None)
        if reader is not None:
            return reader
        reader = PartitionReader(self._address, self._options, topic)
        try:
            is_log = topic == LOG
            reader.seek(searched(self._address, reader, after, WAIT_MS, is_log=is_log) if hint is None else hint)
        except BaseException:
            reader.close()
            raise
        return reader

    def _keep(self, place: _Place, reader: PartitionReader) -> bool:
        before = self._readers.pop(place, None)
        if before is not None:
            before.close()
        self._readers[place] = reader
        while len(self._readers) > READERS_MAX:
            self._readers.pop(next(iter(self._readers))).close()
        return True

    def close(self) -> None:
        """Let go of all readers."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


@contextmanager
def _closed_unless_kept(reader: PartitionReader) -> Iterator[list[bool]]:
    """Close a reader that is not put back in the end."""
    kept: list[bool] = []
    try:
        yield kept
    finally:
        if not kept:
            reader.close()
