"""The numbers that name things.

A message id is a snowflake::

     63              22 21       12 11        0
    | ms since 2020-01 | node (10) | sequence (12) |

so it sorts by time, fits a signed 64-bit integer until 2089, and names the node that gave it.
"""

from typing import NewType

EventId = NewType("EventId", int)
MessageId = NewType("MessageId", int)

SNOWFLAKE_EPOCH_MS = 1_577_836_800_000
"""2020-01-01T00:00:00Z."""

NODE_BITS = 10
SEQUENCE_BITS = 12
NODE_ID_MAX = 2**NODE_BITS - 1

_SEQUENCE_END = 2**SEQUENCE_BITS


class Snowflakes:
    """Gives message ids that always rise, whatever the clock does.

    When the clock steps back, or a millisecond is used up, numbering goes on from the last id instead of waiting: ids
    then run ahead of the clock for a while, which is harmless, while a repeat or a fall is not.
    """

    __slots__ = ("_last_ms", "_node", "_sequence")

    def __init__(self, node_id: int, last: int = 0) -> None:
        if not 0 <= node_id <= NODE_ID_MAX:
            raise ValueError(f"node id must be 0 to {NODE_ID_MAX}, not {node_id}")
        self._node = node_id << SEQUENCE_BITS
        self._last_ms = 0
        self._sequence = 0
        self.observe(last)

    def observe(self, message_id: int) -> None:
        """Never again give an id that is not above this one."""
        at_ms = message_id >> (NODE_BITS + SEQUENCE_BITS)
        if message_id > 0 and at_ms >= self._last_ms:
            # The next id comes from the following millisecond: safe against any node's sequence in this one.
            self._last_ms = at_ms + 1
            self._sequence = 0

    def next(self, now_ms: int) -> MessageId:
        """The next id, at ``now_ms`` milliseconds since the epoch."""
        at_ms = now_ms - SNOWFLAKE_EPOCH_MS
        if at_ms > self._last_ms:
            self._last_ms = at_ms
            self._sequence = 0
        sequence = self._sequence
        self._sequence = sequence + 1
        if self._sequence == _SEQUENCE_END:
            self._last_ms += 1
            self._sequence = 0
            return MessageId(((self._last_ms - 1) << (NODE_BITS + SEQUENCE_BITS)) | self._node | sequence)
        return MessageId((self._last_ms << (NODE_BITS + SEQUENCE_BITS)) | self._node | sequence)

    def next_all(self, now_ms: int, count: int) -> list[int]:
        """The next ``count`` ids: the same as ``next`` gives, asked so many times at one moment."""
        ids: list[int] = []
        while len(ids) < count:
            last = self.next(now_ms)
            ids.append(last)
            if self._sequence:  # but for the last one of a millisecond they follow each other
                more = min(count - len(ids), _SEQUENCE_END - 1 - self._sequence)
                ids += range(last + 1, last + 1 + more)
                self._sequence += more
        return ids


def snowflake_time_ms(message_id: int) -> int:
    """When this id was given, in milliseconds since the epoch."""
    return (message_id >> (NODE_BITS + SEQUENCE_BITS)) + SNOWFLAKE_EPOCH_MS


def first_id_of(now_ms: int) -> int:
    """The lowest id that may be given at ``now_ms``: ids below it are older, unless the clock has stepped."""
    return (now_ms - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)
