"""Requests of the queue's protocol as bytes, one function per command.

::

    request   := u8 command | u16 name length | 16 bytes of the command | u8 trace id length
                 | topic name | trace id | the command's own part
    extension := u8 command | u16 name length | u32 part size | u8 flags | 11 x 0 | u8 trace id length
                 | topic name | trace id | part

What does not fit its field is refused here with LocalProtocolError, before a byte of it is on the wire: a
trace id of 256 bytes sent with a length of 0 would turn the rest of the connection into noise.
"""

import struct

from pixiu.machines.queue_wire.commands import (
    ALIVE,
    APPEND,
    AUTHORIZE,
    BATCH_MAX,
    CANCEL_DELAY,
    CHALLENGE,
    CREATE_TOPIC,
    DELAY,
    DELAYS,
    DELETE_TOPIC,
    FEED,
    FLAG_REMEMBER,
    FLAG_TAKE_OVER,
    FLAG_WANT_EVENT_ID,
    FLUSH,
    FOLLOW,
    HELLO,
    JOIN,
    LIST,
    POSITIONS,
    PROMOTE,
    PROVE,
    PUB,
    REPLICA,
    SET_POSITION,
    SNAPSHOT,
    SNAPSHOT_STORES,
    START_AFTER,
    STATUS,
    SUB,
    SUBSCRIBE,
    TOPIC_INFO,
    TRACE_ID_BYTES_MAX,
    VALID_LIST,
)
from pixiu.model.errors import LocalProtocolError

__all__ = [
    "encode_alive",
    "encode_append",
    "encode_authorize",
    "encode_cancel_delay",
    "encode_challenge",
    "encode_create_topic",
    "encode_delay",
    "encode_delays",
    "encode_delete_topic",
    "encode_extension",
    "encode_feed",
    "encode_flush",
    "encode_follow",
    "encode_follow_progress",
    "encode_hello",
    "encode_join",
    "encode_list",
    "encode_positions",
    "encode_promote",
    "encode_prove",
    "encode_pub",
    "encode_replica",
    "encode_set_position",
    "encode_snapshot",
    "encode_status",
    "encode_string",
    "encode_sub",
    "encode_subscribe",
    "encode_topic_info",
    "encode_valid_list",
]

NAME_BYTES_MAX = 2**16 - 1
PAYLOAD_BYTES_MAX = 2**32 - 1
EVENT_ID_MAX = 2**63 - 1

# All but Sub: a u32 size at 3 (0 for the commands of smss that have none), flags at 7.
_header = struct.Struct("<BHIB11xB")
_sub_header = struct.Struct("<BHBB14xB")
_i64 = struct.Struct("<q")
_u32 = struct.Struct("<I")
_u16 = struct.Struct("<H")
_subscribe_part = struct.Struct("<BqBq")
_follow_tail = struct.Struct("<qIIB")
_delays_part = struct.Struct("<qI")
_progress = struct.Struct("<qI")
_stamped_progress = struct.Struct("<qIq")


def _start(command: int, topic: bytes, trace_id: bytes, *, size: int = 0, flags: int = 0) -> bytes:
    """Header, name and trace id of any command but Sub."""
    if len(topic) > NAME_BYTES_MAX:
        raise LocalProtocolError(f"a topic name has at most {NAME_BYTES_MAX} bytes, not {len(topic)}")
    if len(trace_id) > TRACE_ID_BYTES_MAX:
        raise LocalProtocolError(f"a trace id has at most {TRACE_ID_BYTES_MAX} bytes, not {len(trace_id)}")
    if size > PAYLOAD_BYTES_MAX:
        raise LocalProtocolError(f"a payload has at most {PAYLOAD_BYTES_MAX} bytes, not {size}")
    return _header.pack(command, len(topic), size, flags, len(trace_id)) + topic + trace_id


def _number(value: int, what: str) -> bytes:
    if not -EVENT_ID_MAX <= value <= EVENT_ID_MAX:
        raise LocalProtocolError(f"{what} must fit 64 bits, not {value}")
    return _i64.pack(value)


def _batch(batch: int) -> int:
    if not 0 <= batch <= BATCH_MAX:
        raise LocalProtocolError(f"a batch has 1 to {BATCH_MAX} messages, not {batch}")
    return batch


def _flags(want_event_id: bool) -> int:
    return FLAG_WANT_EVENT_ID if want_event_id else 0


# The commands of smss.


def encode_sub(
    topic: bytes,
    subscriber: bytes,
    *,
    after: int,
    batch: int = 1,
    ack_timeout_ns: int | None = None,
    trace_id: bytes = b"",
) -> bytes:
    """Sub: push what follows ``after``. Without an ack timeout the server takes its default."""
    if len(topic) > NAME_BYTES_MAX:
        raise LocalProtocolError(f"a topic name has at most {NAME_BYTES_MAX} bytes, not {len(topic)}")
    if len(trace_id) > TRACE_ID_BYTES_MAX:
        raise LocalProtocolError(f"a trace id has at most {TRACE_ID_BYTES_MAX} bytes, not {len(trace_id)}")
    header = _sub_header.pack(SUB, len(topic), _batch(batch), ack_timeout_ns is not None, len(trace_id))
    timeout = b"" if ack_timeout_ns is None else _number(ack_timeout_ns, "the ack timeout")
    tail = timeout + _u32.pack(len(subscriber)) + subscriber
    return b"".join((header, topic, trace_id, _number(after, "an event id"), tail))


def encode_pub(topic: bytes, payload: bytes, *, want_event_id: bool = False, trace_id: bytes = b"") -> bytes:
    """Pub: the packed messages go into the topic together."""
    return _start(PUB, topic, trace_id, size=len(payload), flags=_flags(want_event_id)) + payload


def encode_create_topic(
    topic: bytes, *, expires_at_ms: int = 0, want_event_id: bool = False, trace_id: bytes = b""
) -> bytes:
    """CreateTopic: 0 is for ever."""
    start = _start(CREATE_TOPIC, topic, trace_id, flags=_flags(want_event_id))
    return start + _number(expires_at_ms, "the end of a topic")


def encode_delete_topic(topic: bytes, *, want_event_id: bool = False, trace_id: bytes = b"") -> bytes:
    """DeleteTopic."""
    return _start(DELETE_TOPIC, topic, trace_id, flags=_flags(want_event_id))


def encode_delay(
    topic: bytes, payload: bytes, *, delay_ms: int, want_event_id: bool = False, trace_id: bytes = b""
) -> bytes:
    """Delay: publish this later. The size does not count the 8 bytes of the delay."""
    start = _start(DELAY, topic, trace_id, size=len(payload), flags=_flags(want_event_id))
    return b"".join((start, _number(delay_ms, "a delay"), payload))


def encode_alive(*, trace_id: bytes = b"") -> bytes:
    """Alive."""
    return _start(ALIVE, b"", trace_id)


def encode_replica(*, after: int, trace_id: bytes = b"") -> bytes:
    """Replica: stream every record after this event id, in the form of smss."""
    return _start(REPLICA, b"", trace_id) + _number(after, "an event id")


def encode_topic_info(topic: bytes, *, trace_id: bytes = b"") -> bytes:
    """TopicInfo."""
    return _start(TOPIC_INFO, topic, trace_id)


def encode_valid_list(*, through: int = 0, trace_id: bytes = b"") -> bytes:
    """ValidList: living topics, created at or before event ``through`` unless it is 0."""
    return _start(VALID_LIST, b"", trace_id) + _number(through, "an event id")


def encode_list(*, trace_id: bytes = b"") -> bytes:
    """List."""
    return _start(LIST, b"", trace_id)


# The extensions.


def encode_string(value: bytes) -> bytes:
    """``u16 length | bytes``, the string of the extensions."""
    if len(value) > 2**16 - 1:
        raise LocalProtocolError(f"a string has at most {2**16 - 1} bytes, not {len(value)}")
    return _u16.pack(len(value)) + value


def encode_extension(
    command: int, part: bytes = b"", *, topic: bytes = b"", flags: int = 0, trace_id: bytes = b""
) -> bytes:
    """Any extension command from its ready part."""
    return _start(command, topic, trace_id, size=len(part), flags=flags) + part


def encode_hello(*, trace_id: bytes = b"") -> bytes:
    """Hello: which version, which role, how far."""
    return encode_extension(HELLO, trace_id=trace_id)


def encode_append(
    topic: bytes, message: bytes, *, key: bytes = b"", unless_after: int = 0, trace_id: bytes = b""
) -> bytes:
    """Append one message, unless its key came after event ``unless_after`` already."""
    part = _number(unless_after, "an event id") + encode_string(key) + message
    return encode_extension(APPEND, part, topic=topic, trace_id=trace_id)


def encode_subscribe(
    topic: bytes,
    subscriber: bytes,
    *,
    start: int = START_AFTER,
    value: int = 0,
    batch: int = 1,
    ack_timeout_ms: int = 0,
    take_over: bool = False,
    remember: bool = False,
    trace_id: bytes = b"",
) -> bytes:
    """Subscribe: like Sub, with more ways to begin, a queue for the name, and a memory."""
    if not 0 <= start <= 3:
        raise LocalProtocolError(f"a subscription starts in one of four ways, 0 to 3, not {start}")
    part = _subscribe_part.pack(start, value, _batch(batch), ack_timeout_ms) + encode_string(subscriber)
    flags = (FLAG_TAKE_OVER if take_over else 0) | (FLAG_REMEMBER if remember else 0)
    return encode_extension(SUBSCRIBE, part, topic=topic, flags=flags, trace_id=trace_id)


def encode_positions(topic: bytes, *, trace_id: bytes = b"") -> bytes:
    """Positions: the named subscribers of a topic and where they are."""
    return encode_extension(POSITIONS, topic=topic, trace_id=trace_id)


def encode_set_position(topic: bytes, subscriber: bytes, *, event_id: int, trace_id: bytes = b"") -> bytes:
    """SetPosition: -1 forgets the subscriber."""
    part = encode_string(subscriber) + _number(event_id, "an event id")
    return encode_extension(SET_POSITION, part, topic=topic, trace_id=trace_id)


def encode_delays(*, after: int = 0, limit: int = 1000, trace_id: bytes = b"") -> bytes:
    """Delays: what waits for its time, a page after event id ``after``."""
    if not 0 <= limit < 2**32:
        raise LocalProtocolError(f"a limit must fit 32 bits, not {limit}")
    return encode_extension(DELAYS, _delays_part.pack(after, limit), trace_id=trace_id)


def encode_cancel_delay(event_id: int, *, trace_id: bytes = b"") -> bytes:
    """CancelDelay, by the event id of the Delay request."""
    return encode_extension(CANCEL_DELAY, _number(event_id, "an event id"), trace_id=trace_id)


def encode_follow(follower: bytes, *, last_event_id: int, last_epoch: int, highest_epoch: int, flags: int = 0) -> bytes:
    """Follow: send journal frames after this event id, if its epoch is the one you know."""
    tail = _follow_tail.pack(last_event_id, last_epoch, highest_epoch, flags)
    return encode_extension(FOLLOW, encode_string(follower) + tail)


def encode_follow_progress(*, durable_event_id: int, epoch: int, stamp_ms: int = -1) -> bytes:
    """What a follower sends back inside its stream: through here everything is on its disk.

    In a stream with stamps it echoes the newest one, which is not negative.
    """
    if stamp_ms >= 0:
        return _stamped_progress.pack(durable_event_id, epoch, stamp_ms)
    return _progress.pack(durable_event_id, epoch)


def encode_promote(*, force: bool = False, trace_id: bytes = b"") -> bytes:
    """Promote: become the leader."""
    return encode_extension(PROMOTE, b"\x01" if force else b"\x00", trace_id=trace_id)


def encode_status(*, topic: bytes = b"", trace_id: bytes = b"") -> bytes:
    """Status of the node, or how much a topic holds."""
    return encode_extension(STATUS, topic=topic, trace_id=trace_id)


def encode_authorize(key: bytes, *, trace_id: bytes = b"") -> bytes:
    """Authorize this connection with the node's key."""
    return encode_extension(AUTHORIZE, key, trace_id=trace_id)


def encode_challenge(*, trace_id: bytes = b"") -> bytes:
    """Challenge: ask for something to prove the key with."""
    return encode_extension(CHALLENGE, trace_id=trace_id)


def encode_prove(part: bytes, *, trace_id: bytes = b"") -> bytes:
    """Prove: the key, by what the challenge was."""
    return encode_extension(PROVE, part, trace_id=trace_id)


def encode_join(registry: bytes, secret_file: bytes, *, trace_id: bytes = b"") -> bytes:
    """Join: bring the log that this node leads to a registry."""
    return encode_extension(JOIN, encode_string(registry) + encode_string(secret_file), trace_id=trace_id)


def encode_snapshot(*, with_stores: bool = False, trace_id: bytes = b"") -> bytes:
    """Snapshot: stream the files of the queue; ``with_stores``, also the messaging stores made from it."""
    return encode_extension(SNAPSHOT, topic=SNAPSHOT_STORES if with_stores else b"", trace_id=trace_id)


def encode_flush(*, trace_id: bytes = b"") -> bytes:
    """Flush: answer when everything accepted so far is on disk."""
    return encode_extension(FLUSH, trace_id=trace_id)


def encode_feed(*, after: int, trace_id: bytes = b"") -> bytes:
    """Feed: the committed journal behind this event, as it comes."""
    return encode_extension(FEED, _number(after, "an event id"), trace_id=trace_id)
