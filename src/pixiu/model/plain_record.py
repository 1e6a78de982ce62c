"""The log's record of a plain text message, written by hand.

Nine of ten records are of this one shape. Making the two protobuf objects for it takes longer than everything else that
a send needs; putting their bytes together takes a quarter of that. The bytes are those that protobuf writes, which a
test checks.

::

    Record  at 08  actor 10  chat 1a  to 20 | group 28  options 30  session 38
    MsgChat        from 18  to 20  tm 28  device 32  send_id 3a  data 4a  priority 50  chat type 88 01
"""

from functools import lru_cache

from pixiu.model.pixiu_pb2 import GROUP, NORMAL, P2P

__all__ = ["plain_record"]

_SHORT = [
    *(bytes([number]) for number in range(128)),
    *(bytes([number & 127 | 128, number >> 7]) for number in range(128, 16384)),
]
"""Every varint of one or two bytes."""
_SEND_IDS = [b"\x3a" + _SHORT[length] for length in range(128)]
_DATA = [b"\x4a" + varint for varint in _SHORT]
"""Field and length of what is of this length."""


def varint(number: int) -> bytes:
    """Seven bits to a byte, lowest first."""
    if number < 16384:
        return _SHORT[number]
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


@lru_cache(maxsize=65536)
def _ends(
    user: int, to: int, group: int, device: str, options: int, session: int
) -> tuple[bytes, bytes, bytes, bytes, int]:
    """What is the same for all messages of one session to one place: before and behind what differs.

    Then how long that of the chat is together.
    """
    device_bytes = device.encode()
    actor = varint(user) if user else b""
    chat_head = (b"\x18" + actor if user else b"") + b"\x20" + varint(to or group)
    chat_device = b"\x32" + varint(len(device_bytes)) + device_bytes if device else b""
    chat_tail = b"\x50" + varint(NORMAL) + b"\x88\x01" + varint(P2P if to else GROUP)
    record_tail = (
        (b"\x20" + varint(to) if to else b"\x28" + varint(group))
        + (b"\x30" + varint(options) if options else b"")
        + (b"\x38" + varint(session) if session else b"")
    )
    record_actor = (b"\x10" + actor if user else b"") + b"\x1a"
    size = len(chat_head) + len(chat_device) + len(chat_tail)
    return record_actor, chat_head, chat_device, chat_tail + record_tail, size


@lru_cache(maxsize=256)
def _times(at: int) -> tuple[bytes, bytes]:
    """The record's and the chat's time: the same for all that is said in one millisecond."""
    time = varint(at)
    return b"\x08" + time, b"\x28" + time


def plain_record(
    data: bytes, send_id: bytes, at: int, user: int, to: int, group: int, device: str, options: int, session: int
) -> bytes:
    """An encoded Record whose chat is a text of normal priority, ``to`` a user or in a ``group``."""
    record_actor, chat_head, chat_device, tail, size = _ends(user, to, group, device, options, session)
    record_time, chat_time = _times(at)
    send_id_head = _SEND_IDS[len(send_id)] if send_id else b""
    length = len(data)
    data_head = b"" if not length else _DATA[length] if length < 16384 else b"\x4a" + varint(length)
    size += len(chat_time) + len(send_id_head) + len(send_id) + len(data_head) + length
    chat_size = _SHORT[size] if size < 16384 else varint(size)
    return b"".join((
        record_time, record_actor, chat_size,
        chat_head, chat_time, chat_device, send_id_head, send_id, data_head, data, tail,
    ))  # fmt: skip
