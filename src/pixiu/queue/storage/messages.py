"""The number and the key that Pixiu puts in front of an appended message.

An appended message begins with two headers of ours, ``pixiu.id`` (8 bytes) and ``pixiu.key``, so that the number and
the key travel with the message through topics, followers and old clients alike.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct, unpack

from pixiu.machines.queue_wire.commands import HEADER_KEY, HEADER_MESSAGE_ID, MESSAGE_HEADER_BYTES

KEY_DIGEST_BYTES = 16

_HEAD = Struct("<II")
_LENGTH = Struct("<I")
_ID_PREFIX = Struct(f"<II I{len(HEADER_MESSAGE_ID)}s I q I{len(HEADER_KEY)}s I")
_ID_HEAD = _LENGTH.pack(len(HEADER_MESSAGE_ID)) + HEADER_MESSAGE_ID + _LENGTH.pack(8)
_KEY_HEAD = _LENGTH.pack(len(HEADER_KEY)) + HEADER_KEY
_pack_prefix = Struct(f"<II{len(_ID_HEAD)}sq{len(_KEY_HEAD)}sI").pack
_PREFIX_REST = _ID_PREFIX.size - MESSAGE_HEADER_BYTES
_FIRST_64 = Struct("<Q")


def split_head(message: bytes) -> tuple[int, bytes]:
    """How many headers a message has, and everything behind its head."""
    return _HEAD.unpack_from(message)[1], message[MESSAGE_HEADER_BYTES:]


def plain(body: bytes) -> bytes:
    """A message without headers."""
    return _HEAD.pack(len(body), 0) + body


def body_of(message: bytes) -> bytes:
    """What a message says, without its headers."""
    _, headers = _HEAD.unpack_from(message)
    at = MESSAGE_HEADER_BYTES
    for _ in range(2 * headers):
        at += 4 + _LENGTH.unpack_from(message, at)[0]
    return message[at:]


def numbered(headers: int, content: bytes, message_id: int, key: bytes) -> bytes:
    """A message with its id and key as its first two headers, before the ``headers`` that ``content`` begins with."""
    key_bytes = len(key)
    size = _PREFIX_REST + key_bytes + len(content)
    return _pack_prefix(size, headers + 2, _ID_HEAD, message_id, _KEY_HEAD, key_bytes) + key + content


def number_and_key(message: bytes) -> tuple[int, bytes]:
    """The id and the key of a message made by ``numbered``."""
    fields = _ID_PREFIX.unpack_from(message)
    if fields[3] != HEADER_MESSAGE_ID or fields[7] != HEADER_KEY:
        raise ValueError("message carries no number")
    return fields[5], message[_ID_PREFIX.size : _ID_PREFIX.size + fields[8]]


def number_key_and_body(message: bytes) -> tuple[int, bytes, bytes]:
    """All that a message made by ``numbered`` carries."""
    _, headers, _, id_name, _, message_id, _, key_name, key_bytes = _ID_PREFIX.unpack_from(message)
    if id_name != HEADER_MESSAGE_ID or key_name != HEADER_KEY:
        raise ValueError("message carries no number")
    end = _ID_PREFIX.size + key_bytes
    body = message[end:] if headers == 2 else body_of(message)
    return message_id, message[_ID_PREFIX.size : end], body


def is_numbered(message: bytes) -> bool:
    """Was this message made by ``numbered``?"""
    at = MESSAGE_HEADER_BYTES + 4
    return message[at : at + len(HEADER_MESSAGE_ID)] == HEADER_MESSAGE_ID


def key_digest(key: bytes) -> bytes:
    """What the writer remembers of a key: 128 bits, so that two keys never pass for one."""
    return blake2b(key, digest_size=KEY_DIGEST_BYTES).digest()


def hoisted(message: bytes) -> tuple[int, int]:
    """The message id and the key's first 64 digest bits, for the index."""
    message_id, key = number_and_key(message)
    return message_id, first_64(key_digest(key)) if key else 0


def first_64(digest: bytes) -> int:
    """As much of a key's digest as the index has room for; 0 for no key."""
    return int(_FIRST_64.unpack_from(digest)[0]) if digest else 0


def all_first_64(digests: Sequence[bytes]) -> Sequence[int]:
    """``first_64`` of many, without a call for each."""
    if b"" in digests:
        return list(map(first_64, digests))
    return unpack(f"<{2 * len(digests)}Q", b"".join(digests))[::2]
