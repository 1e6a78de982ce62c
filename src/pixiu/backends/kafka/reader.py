"""Reading one partition: from anywhere, committed records alone, with a bound on every wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.backends.kafka.driver import client_of, common_options, driver, error_of, unavailable
from pixiu.backends.kafka.records import found_in
from pixiu.model.errors import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from pixiu.backends.kafka.address import KafkaAddress
    from pixiu.backends.kafka.records import Found

__all__ = ["Chunk", "PartitionReader"]

FETCH_WAIT_MS = 20
"""A broker that has nothing answers after this: a reader that moves elsewhere waits no longer."""
RETRY_MS = 100.0
STEP_MS = 2_000.0
"""One wait for an answer; between two of them a stop is noticed."""
AHEAD_KIB = 16 * 1024
"""What the driver reads ahead."""


_MOVING = frozenset({
    driver.KafkaError.NOT_LEADER_FOR_PARTITION, driver.KafkaError.LEADER_NOT_AVAILABLE,
    driver.KafkaError.UNKNOWN_TOPIC_OR_PART, driver.KafkaError._UNKNOWN_PARTITION, driver.KafkaError._UNKNOWN_TOPIC,
    driver.KafkaError.OFFSET_NOT_AVAILABLE, driver.KafkaError.UNKNOWN_LEADER_EPOCH,
    driver.KafkaError.FENCED_LEADER_EPOCH,
})  # fmt: skip
"""A topic that was just made, or has another leader now: asked again."""
_SILENT = frozenset({driver.KafkaError._TRANSPORT, driver.KafkaError._TIMED_OUT, driver.KafkaError._ALL_BROKERS_DOWN})
"""Nobody has answered in the time of a step."""


class Chunk(NamedTuple):
    """What was read in one go."""

    found: list[tuple[int, Found]]
    """With their offsets; what others have written is left out."""
    next_offset: int
    is_end: bool
    """Is there no more, as of now?"""


class PartitionReader:
    """One reader of the one partition of a topic."""

    def __init__(
        self,
        address: KafkaAddress,
        options: dict[str, str],
        topic: str,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        fetch_wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        """``is_stopped`` returns whether the caller still needs the answer.

        ``fetch_wait_ms``: how long a broker holds a request when it has nothing new.
        """
        self._address = address
        self._is_stopped = is_stopped
        self._topic = address.topic(topic)
        self._consumer = client_of(driver.Consumer, {
            **common_options(address, options),
            "group.id": f"{address.prefix}.reader",  # asked for by the driver; nobody joins and nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": fetch_wait_ms,
            "fetch.queue.backoff.ms": FETCH_WAIT_MS,
            "queued.max.messages.kbytes": AHEAD_KIB,
            "fetch.max.bytes": AHEAD_KIB * 1024,
            "message.max.bytes": AHEAD_KIB * 1024,
            "receive.message.max.bytes": 2 * AHEAD_KIB * 1024,
        })  # fmt: skip

    def ends(self, wait_ms: float) -> tuple[int, int]:
        """The first offset, and the one behind the last that is committed."""
        left_ms = wait_ms
        while True:
            step_ms = min(left_ms, STEP_MS)
            try:
                low, high = self._consumer.get_watermark_offsets(self._place(), timeout=step_ms / 1000)
            except driver.KafkaException as error:
                code = error_of(error).code()
                left_ms -= RETRY_MS if code in _MOVING else step_ms
                if left_ms <= 0 or self._is_stopped() or code not in _MOVING | _SILENT:
                    raise unavailable(self._address, error_of(error)) from error
                if code in _MOVING:
                    self._consumer.poll(RETRY_MS / 1000)
            else:
                return low, high

    def seek(self, offset: int) -> None:
        """Go on reading here."""
        self._consumer.assign([self._place(offset)])

    def read(self, limit: int, wait_ms: float) -> Chunk:
        """Up to ``limit`` records. Raises ``Unavailable`` when nobody has answered in time."""
        left_ms = wait_ms
        while (first := self._consumer.poll(min(left_ms, STEP_MS) / 1000)) is None:
            left_ms -= STEP_MS
            if left_ms <= 0 or self._is_stopped():
                raise unavailable(self._address, f"{self._topic} was not read within {wait_ms:.0f} ms")
        messages = [first]
        if first.error() is None and limit > 1:
            messages += self._consumer.consume(limit - 1, 0)
        return self._chunk(messages)

    def read_new(self, limit: int, wait_ms: float) -> Chunk | None:
        """Up to ``limit`` records, for a reader that follows the end; None if none has arrived within ``wait_ms``.

        A reader that raises may have passed records: ``seek`` before the next call.
        """
        first = self._consumer.poll(wait_ms / 1000)
        if first is None:
            return None
        messages = [first]
        if first.error() is None and limit > 1:
            messages += self._consumer.consume(limit - 1, 0)
        return self._chunk(messages)

    def _chunk(self, messages: list[Message]) -> Chunk:
        found: list[tuple[int, Found]] = []
        next_offset, is_end = 0, False
        for message in messages:
            error = message.error()
            offset = message.offset() or 0
            if error is None:
                entry = found_in(message)
                if entry is not None:
                    found.append((offset, entry))
                next_offset, is_end = offset + 1, False
            elif error.code() == driver.KafkaError._PARTITION_EOF:
                next_offset, is_end = offset, True
            elif error.code() == driver.KafkaError._AUTO_OFFSET_RESET:
                raise Gone(f"{self._topic} does not have offset {offset}: Kafka has removed it, or lost its end")
            else:
                raise unavailable(self._address, error)
        return Chunk(found, next_offset, is_end)

    def first_at(self, offset: int, wait_ms: float) -> tuple[int, Found] | None:
        """The first record here or later; None if there is none."""
        self.seek(offset)
        while True:
            chunk = self.read(1, wait_ms)
            if chunk.found:
                return chunk.found[0]
            if chunk.is_end:
                return None

    def last(self, wait_ms: float) -> tuple[int, Found] | None:
        """The newest record; None if there is none."""
        low, high = self.ends(wait_ms)
        step, end = 2, high  # a commit leaves a mark behind the last record
        while end > low:
            begin = max(high - step, low)
            newest = None
            self.seek(begin)
            is_end = False
            while not is_end:
                chunk = self.read(1000, wait_ms)
                newest = chunk.found[-1] if chunk.found else newest
                is_end = chunk.is_end or chunk.next_offset >= end
            if newest is not None:
                return newest
            end, step = begin, step * 4
        return None

    def search(self, is_before: Callable[[Found], bool], wait_ms: float) -> int:
        """The offset at or before the first record that is not before what is looked for; behind all, if all are."""
        low, high = self.ends(wait_ms)
        while low < high:
            middle = (low + high) // 2
            found = self.first_at(middle, wait_ms)
            if found is not None and is_before(found[1]):
                low = found[0] + 1
            else:
                high = middle
        return low

    def close(self) -> None:
        """Let go."""
        self._consumer.close()

    def _place(self, offset: int = 0) -> Any:
        return driver.TopicPartition(self._topic, 0, offset)
