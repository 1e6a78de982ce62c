"""The queue's bytes, built by hand from the specification.

Nothing here uses the project's own codec: were both sides written by the same code, a mistake in it would
agree with itself. Every builder spells its fields in wire order, as the tables of docs/protocol-queue.md do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

SUB, PUB, CREATE, DELETE, DELAY, ALIVE = 0, 1, 2, 3, 16, 17
REPLICA, TOPIC_INFO, VALID_LIST, LIST, DELAY_APPLY = 64, 65, 99, 100, 101
HELLO, APPEND, SUBSCRIBE, POSITIONS, SET_POSITION = 128, 129, 130, 131, 132
DELAYS, CANCEL_DELAY, FOLLOW, PROMOTE, STATUS = 133, 134, 135, 136, 137
AUTHORIZE, SNAPSHOT, FLUSH = 138, 139, 140

OK = bytes.fromhex("c8 00 00 00 00 00 00 00 00 00")
ALIVE_ANSWER = bytes.fromhex("c9 00 00 00 00 00 00 00 00 00")
SUB_END = bytes.fromhex("ff 00 00 00 00 00 00 00 00 00")

ACK_GO_ON = b"\x00\x00"
ACK_END = b"\x01\x00"

SECOND_NS = 1_000_000_000

NAME_TEXT = "topic name MUST be less than 128 char and NOT contains space/enter/tab"


def u8(value: int) -> bytes:
    """One byte."""
    return value.to_bytes(1, "little")


def u16(value: int) -> bytes:
    """Two bytes, little-endian."""
    return value.to_bytes(2, "little")


def u32(value: int) -> bytes:
    """Four bytes, little-endian."""
    return value.to_bytes(4, "little")


def i64(value: int) -> bytes:
    """Eight bytes, signed, little-endian."""
    return value.to_bytes(8, "little", signed=True)


def from_i64(raw: bytes) -> int:
    """The reverse of `i64`."""
    assert len(raw) == 8
    return int.from_bytes(raw, "little", signed=True)


def now_ms() -> int:
    """Unix milliseconds, as the server stamps them (it runs on this machine)."""
    return time.time_ns() // 1_000_000


# Requests.


def request(command: int, name: bytes = b"", special: bytes = b"", trace: bytes = b"", part: bytes = b"") -> bytes:
    """A request: the 20-byte header, then name, trace id and the command's own part.

    `special` is header bytes 3..18, filled up with zeros.
    """
    assert len(special) <= 16
    head = u8(command) + u16(len(name)) + special.ljust(16, b"\x00") + u8(len(trace))
    assert len(head) == 20
    return head + name + trace + part


def alive(name: bytes = b"", trace: bytes = b"") -> bytes:
    """Alive (17)."""
    return request(ALIVE, name, trace=trace)


def create(name: bytes, expire_at: int = 0, *, trace: bytes = b"", wants_id: bool = False) -> bytes:
    """CreateTopic (2)."""
    return request(CREATE, name, _wants(wants_id), trace, i64(expire_at))


def delete(name: bytes, *, trace: bytes = b"", wants_id: bool = False) -> bytes:
    """DeleteTopic (3)."""
    return request(DELETE, name, _wants(wants_id), trace)


def _wants(event_id: bool) -> bytes:
    return bytes(4) + u8(1) if event_id else b""


def pub(name: bytes, payload: bytes, *, size: int | None = None, trace: bytes = b"", wants_id: bool = False) -> bytes:
    """Pub (1); `size` overrides the announced payload size."""
    special = u32(len(payload) if size is None else size) + u8(wants_id)
    return request(PUB, name, special, trace, payload)


def delay(
    name: bytes,
    delay_ms: int,
    payload: bytes,
    *,
    size: int | None = None,
    trace: bytes = b"",
    wants_id: bool = False,
) -> bytes:
    """Delay (16); the announced size does not count the eight bytes of the delay."""
    special = u32(len(payload) if size is None else size) + u8(wants_id)
    return request(DELAY, name, special, trace, i64(delay_ms) + payload)


def sub(
    name: bytes,
    event_id: int = 0,
    who: bytes = b"g",
    *,
    batch: int = 1,
    ack_timeout_ns: int | None = 60 * SECOND_NS,
    flag: int | None = None,
    trace: bytes = b"",
) -> bytes:
    """Sub (0); without `ack_timeout_ns` the field is left out."""
    if flag is None:
        flag = 0 if ack_timeout_ns is None else 1
    part = i64(event_id)
    if ack_timeout_ns is not None:
        part += i64(ack_timeout_ns)
    part += u32(len(who)) + who
    return request(SUB, name, u8(batch) + u8(flag), trace, part)


def replica(event_id: int, *, trace: bytes = b"") -> bytes:
    """Replica (64)."""
    return request(REPLICA, trace=trace, part=i64(event_id))


def topic_info(name: bytes, *, trace: bytes = b"") -> bytes:
    """TopicInfo (65)."""
    return request(TOPIC_INFO, name, trace=trace)


def valid_list(event_id: int = 0, *, name: bytes = b"", trace: bytes = b"") -> bytes:
    """ValidList (99)."""
    return request(VALID_LIST, name, trace=trace, part=i64(event_id))


def list_topics(*, name: bytes = b"", trace: bytes = b"") -> bytes:
    """List (100)."""
    return request(LIST, name, trace=trace)


# Extensions: their part's size is a u32 at header byte 3, flags at 7.


def extension(command: int, name: bytes = b"", part: bytes = b"", *, flags: int = 0, trace: bytes = b"") -> bytes:
    """Any extension request (128..159)."""
    return request(command, name, u32(len(part)) + u8(flags), trace, part)


def string(text: bytes) -> bytes:
    """An extension's `string`: u16 length, then the bytes."""
    return u16(len(text)) + text


def append(name: bytes, key: bytes, packed: bytes, unless_after: int = 0) -> bytes:
    """Append (129)."""
    return extension(APPEND, name, i64(unless_after) + string(key) + packed)


AFTER_ID, FROM_NOW, STORED, SINCE_TIME = 0, 1, 2, 3
TAKE_OVER, REMEMBER = 1, 2


def subscribe(
    name: bytes,
    who: bytes,
    start: int = AFTER_ID,
    value: int = 0,
    *,
    batch: int = 1,
    ack_timeout_ms: int = 60_000,
    flags: int = 0,
) -> bytes:
    """Subscribe (130)."""
    part = u8(start) + i64(value) + u8(batch) + i64(ack_timeout_ms) + string(who)
    return extension(SUBSCRIBE, name, part, flags=flags)


# Messages.


def message(body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """One packed message."""
    packed = b"".join(u32(len(key)) + key + u32(len(value)) + value for key, value in headers)
    return u32(len(packed) + len(body)) + u32(len(headers)) + packed + body


@dataclass(frozen=True)
class Item:
    """One message of a push."""

    time: int
    event_id: int
    next_file: int
    next_position: int
    message: bytes

    @property
    def body(self) -> bytes:
        """What follows the headers."""
        return self.parts[1]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Keys and values in wire order."""
        return self.parts[0]

    @property
    def parts(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Headers and body."""
        count = int.from_bytes(self.message[4:8], "little")
        position = 8
        headers = []
        for _ in range(count):
            pair = []
            for _ in range(2):
                length = int.from_bytes(self.message[position : position + 4], "little")
                pair.append(self.message[position + 4 : position + 4 + length])
                position += 4 + length
            headers.append((pair[0], pair[1]))
        return headers, self.message[position:]


def items_of(body: bytes, count: int) -> list[Item]:
    """Take a push body apart; it must be used up exactly."""
    items = []
    position = 0
    for _ in range(count):
        content = int.from_bytes(body[position + 32 : position + 36], "little")
        end = position + 40 + content
        assert end <= len(body), "an item reaches past the body"
        written, event_id, file, place = (from_i64(body[at : at + 8]) for at in range(position, position + 32, 8))
        items.append(Item(written, event_id, file, place, body[position + 32 : end]))
        position = end
    assert position == len(body), "bytes left over after the last item"
    return items


# Replica blocks.


@dataclass(frozen=True)
class Block:
    """One record of the replica stream."""

    raw: bytes
    write_time: int
    command: int
    event_id: int
    receive_time: int
    topic: bytes
    payload_size: int
    payload: bytes
    """Without its trailing LF."""

    @property
    def messages(self) -> list[bytes]:
        """The packed messages of a record that publishes."""
        rest = self.payload[16:] if self.command == DELAY_APPLY else self.payload
        found = []
        while rest and self.command in (PUB, DELAY_APPLY):
            size = 8 + int.from_bytes(rest[:4], "little")
            found.append(rest[:size])
            rest = rest[size:]
        return found

    @property
    def last_event_id(self) -> int:
        """A record of N messages has N ids, of which its line shows the first."""
        return self.event_id + max(len(self.messages), 1) - 1


def block_of(raw: bytes) -> Block:
    """Take a block apart and check every length that the specification states."""
    line_length = int.from_bytes(raw[:4], "little")
    line = raw[4 : 4 + line_length]
    assert len(line) == line_length
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    fields = line[:-1].split(b"\t")
    assert len(fields) == 6
    rest = raw[4 + line_length :]
    assert len(rest) == int(fields[5])
    if rest:
        assert rest.endswith(b"\n")
    return Block(
        raw=raw,
        write_time=int(fields[0]),
        command=int(fields[1]),
        event_id=int(fields[2]),
        receive_time=int(fields[3]),
        topic=fields[4],
        payload_size=int(fields[5]),
        payload=rest[:-1],
    )


# Comparing with the worked examples.


def matches(got: bytes, pattern: str) -> bool:
    """Compare bytes with the specification's hex, where ``..`` is any byte and ``00x8`` is eight of them."""
    wanted = []
    for word in pattern.replace("|", " ").split():
        byte, _, count = word.partition("x")
        wanted += [byte] * int(count or 1)
    return len(got) == len(wanted) and all(
        byte == ".." or int(byte, 16) == value for byte, value in zip(wanted, got, strict=True)
    )


def hexed(pattern: str) -> bytes:
    """The specification's hex as bytes, with the same ``00x8`` shorthand."""
    pieces = []
    for word in pattern.replace("|", " ").split():
        byte, _, count = word.partition("x")
        pieces.append(bytes.fromhex(byte) * int(count or 1))
    return b"".join(pieces)
