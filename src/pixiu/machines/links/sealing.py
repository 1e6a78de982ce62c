"""Who may talk in a cluster: every datagram carries a tag that only holders of the cluster's secret can make.

A sealed datagram is a head, a tag over head and content, and the content (numbers have the highest byte first)::

    | "PX" 2 | version 1 | key 1 | from 8 | to 8 | number 8 | at 4 | tag 16 | content … |

``from`` and ``to`` are boot ids: the number that a process takes when it starts, which the registry lists. What is for
an earlier life of this process, or for another one, is refused. ``number`` rises with each datagram of a sender;
a window of the last ones tells what has come already. ``at`` is the second in which it was sent: what is older than the
windows are kept is refused, so an old datagram cannot come back once its window is forgotten. So every datagram counts
once, for one process, for a short time.

Two secrets are accepted and the first one is used, so that a secret can be changed while everything runs: add the new
one behind the old one everywhere, then put it first everywhere, then take the old one out.

The tag is keyed BLAKE2b, cut to 16 bytes. The content is not hidden: who needs that runs the cluster in a network of
its own.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "HEAD_BYTES",
    "PEERS_MAX",
    "SECRETS_MAX",
    "SECRET_BYTES_MIN",
    "SKEW_SECONDS",
    "Opened",
    "Opener",
    "Refusal",
    "Sealer",
    "Secrets",
    "tag_of",
]

VERSION = 1
TAG_BYTES = 16
SECRET_BYTES_MIN = 16
SECRETS_MAX = 2
WINDOW = 1_024
"""Datagrams of one sender that may be overtaken; one that is further behind is refused."""
SKEW_SECONDS = 120
"""How far the clocks of two machines may be apart, the way included."""
PEERS_MAX = 16_384
"""Senders whose windows are kept. At the bound a new one is refused until an old one has been silent long enough."""

_MAGIC = b"PX"
_HEAD = Struct(">2sBBQQQI")
_TAGGED = Struct(">2sBBQQQI16s")
HEAD_BYTES = _TAGGED.size

_FULL = (1 << WINDOW) - 1


class Refusal(NamedTuple):
    """Why a datagram is not taken; ``reason`` is one of few words, for counting."""

    reason: str


class Opened(NamedTuple):
    """A datagram that is what it says."""

    source: int
    """The sender's boot id."""
    content: bytes


def tag_of(key: bytes, *parts: bytes) -> bytes:
    """The tag of some bytes under a key."""
    hash_ = _keyed(key).copy()
    for part in parts:
        hash_.update(part)
    return hash_.digest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> blake2b:
    """A hash that has the key already: a copy of it is cheaper than another one. Nobody else may add to it."""
    return blake2b(key=key, digest_size=TAG_BYTES)


class Secrets:
    """The secrets of a cluster, the one to use first."""

    __slots__ = ("_by_number", "key", "keys", "number")

    def __init__(self, secrets: Iterable[bytes]) -> None:
        """Raises ``ConfigError`` for what is no good as secrets."""
        given = list(secrets)
        if not 1 <= len(given) <= SECRETS_MAX:
            raise ConfigError(f"a cluster has one secret, or {SECRETS_MAX} while it changes, not {len(given)}")
        for each in given:
            if len(each) < SECRET_BYTES_MIN:
                raise ConfigError(f"a cluster's secret has at least {SECRET_BYTES_MIN} bytes, not {len(each)}")
        self.keys = [blake2b(each, person=b"pixiu links", digest_size=32).digest() for each in given]
        numbers = [key[0] ^ key[1] for key in self.keys]
        if len(set(numbers)) < len(numbers):
            raise ConfigError("these two secrets cannot be told apart by their number; take another new one")
        self.key, self.number = self.keys[0], numbers[0]
        self._by_number = dict(zip(numbers, self.keys, strict=True))

    @classmethod
    def from_text(cls, text: str) -> Secrets:
        """One secret per line; empty lines and those that begin with # are skipped."""
        lines = (line.strip() for line in text.splitlines())
        return cls([line.encode() for line in lines if line and not line.startswith("#")])

    def named(self, number: int) -> bytes | None:
        """The key that a datagram or a stream names."""
        return self._by_number.get(number)


class Sealer:
    """One process's outgoing datagrams."""

    __slots__ = ("_boot", "_number", "secrets")

    def __init__(self, secrets: Secrets, boot: int) -> None:
        self.secrets = secrets
        self._boot = boot
        self._number = 0

    def seal(self, to: int, content: bytes, at_seconds: int) -> bytes:
        """A datagram for the process with the boot id ``to``."""
        self._number += 1
        secrets = self.secrets
        head = _HEAD.pack(_MAGIC, VERSION, secrets.number, self._boot, to, self._number, at_seconds & 0xFFFFFFFF)
        return head + tag_of(secrets.key, head, content) + content


class _Window:
    """Which numbers of one sender have come."""

    __slots__ = ("bits", "heard_seconds", "highest")

    def __init__(self) -> None:
        self.highest = 0
        self.bits = 0
        self.heard_seconds = 0

    def take(self, number: int) -> str:
        """Count a number. Returns why not, if not."""
        ahead = number - self.highest
        if ahead > 0:
            self.bits = ((self.bits << min(ahead, WINDOW)) | 1) & _FULL
            self.highest = number
            return ""
        if -ahead >= WINDOW:
            return "too_late"
        bit = 1 << -ahead
        if self.bits & bit:
            return "repeated"
        self.bits |= bit
        return ""


class Opener:
    """One process's incoming datagrams. Time is an argument, in seconds of the wall clock."""

    def __init__(self, secrets: Secrets, boot: int, *, peers_max: int = PEERS_MAX) -> None:
        self.secrets = secrets
        self._boot = boot
        self._peers_max = peers_max
        self._windows: dict[int, _Window] = {}
        self._swept_seconds = 0

    def __len__(self) -> int:
        return len(self._windows)

    def open(self, datagram: bytes, now_seconds: int) -> Opened | Refusal:
        """Check it, in this order: form, address, time, tag, repeat. Nothing is kept of one that fails before that."""
        if len(datagram) < HEAD_BYTES:
            return Refusal("malformed")
        magic, version, key_number, source, to, number, at, tag = _TAGGED.unpack_from(datagram)
        if magic != _MAGIC or version != VERSION or not number:
            return Refusal("malformed")
        if to != self._boot:
            return Refusal("misdirected")
        if abs((now_seconds - at + 2**31) % 2**32 - 2**31) > SKEW_SECONDS:
            return Refusal("wrong_time")
        content = datagram[HEAD_BYTES:]
        head = datagram[: _HEAD.size]
        key = self.secrets.named(key_number)
        if key is None or not compare_digest(tag_of(key, head, content), tag):
            return Refusal("unauthentic")
        window = self._windows.get(source)
        if window is None:
            window = self._new(source, now_seconds)
            if window is None:
                return Refusal("too_many_peers")
        reason = window.take(number)
        if reason:
            return Refusal(reason)
        window.heard_seconds = now_seconds
        return Opened(source, content)

    def _new(self, source: int, now_seconds: int) -> _Window | None:
        """A window for a new sender. Those that no datagram can still pass are forgotten when it is time for that."""
        if len(self._windows) >= self._peers_max and now_seconds != self._swept_seconds:
            self._swept_seconds = now_seconds
            kept_from = now_seconds - 2 * SKEW_SECONDS
            self._windows = {boot: each for boot, each in self._windows.items() if each.heard_seconds >= kept_from}
        if len(self._windows) >= self._peers_max:
            return None
        window = self._windows[source] = _Window()
        return window
