"""The numbers that name things.

A message id is a snowflake::

     63              22 21       12 11        0
    | ms since 2020-01 | node (10) | sequence (12) |

so it sorts by time, fits a signed 64-bit integer until 2089, and names the node that gave it.

Two more layouts come from the cluster's own streams. A gateway numbers its presence events::

     63        48 47     38 37               0
    | instance 16 | epoch 10 |   counter 38    |

and a partitioned store of bodies may name its partition in the top byte (``StoreId``), in one of two orders.
"""

from typing import NamedTuple, NewType

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


class GatewayMessageId(NamedTuple):
    """The number of one presence event of one gateway. Unsigned; rises within an epoch of an instance.

    ``epoch`` takes the ten bits that were held back: an instance number that is claimed again starts a new epoch, so
    that its counter may begin at 0 without being taken for old news.
    """

    instance: int
    epoch: int
    counter: int

    def pack(self) -> int:
        """The 64 bits."""
        _check_bits("gateway instance", self.instance, 16)
        _check_bits("gateway epoch", self.epoch, 10)
        _check_bits("gateway counter", self.counter, 38)
        return (self.instance << 48) | (self.epoch << 38) | self.counter

    @classmethod
    def unpack(cls, number: int) -> "GatewayMessageId":
        """From the 64 bits."""
        _check_bits("gateway message id", number, 64)
        return cls(number >> 48, (number >> 38) & (2**10 - 1), number & (2**38 - 1))


class StoreId(NamedTuple):
    """A body's id in a partitioned store: the partition is the top byte in both layouts.

    ``pack_by_kind`` is the article's layout; within it ids of different kinds do not sort by time. ``pack_by_time``
    puts the kind last, so that they do.
    """

    partition: int
    kind: int
    counter: int

    def pack_by_kind(self) -> int:
        """Partition, kind (8 bits each), counter (48)."""
        self._check()
        return (self.partition << 56) | (self.kind << 48) | self.counter

    def pack_by_time(self) -> int:
        """Partition (8 bits), counter (48), kind (8)."""
        self._check()
        return (self.partition << 56) | (self.counter << 8) | self.kind

    @classmethod
    def unpack_by_kind(cls, number: int) -> "StoreId":
        """From ``pack_by_kind``."""
        _check_bits("store id", number, 64)
        return cls(number >> 56, (number >> 48) & 0xFF, number & (2**48 - 1))

    @classmethod
    def unpack_by_time(cls, number: int) -> "StoreId":
        """From ``pack_by_time``."""
        _check_bits("store id", number, 64)
        return cls(number >> 56, number & 0xFF, (number >> 8) & (2**48 - 1))

    @staticmethod
    def partition_of(number: int) -> int:
        """The partition, without asking which layout it is."""
        _check_bits("store id", number, 64)
        return number >> 56

    def _check(self) -> None:
        _check_bits("partition", self.partition, 8)
        _check_bits("kind", self.kind, 8)
        _check_bits("counter", self.counter, 48)


def _check_bits(what: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{what} must be 0 to {2**bits - 1}, not {value}")
