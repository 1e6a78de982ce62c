"""The way over a network: messages packed into sealed datagrams, and what is too large over a stream.

A peer to which something large was sent gets everything over the stream until that has been quiet for a while: so what
was sent first is not overtaken by what came after it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pixiu.machines.links.handshake import FRAME_BYTES_MAX
from pixiu.machines.links.packing import encoded, frames, pack, unframe, unpack
from pixiu.machines.links.sealing import Opened, Opener, Sealer
from pixiu.model.errors import PixiuError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.links.bulk import Bulk
    from pixiu.machines.links.packing import Encoded
    from pixiu.machines.links.sealing import Secrets
    from pixiu.ports.clock import Clock
    from pixiu.ports.datagrams import Datagrams

__all__ = ["BULK_MS", "WireWay"]

log = logging.getLogger(__name__)

BULK_MS = 2_000
"""How long after something large everything else takes the stream, too."""
BULK_PEERS_MAX = 4_096
_ENCODED = {tuple}


class WireWay:
    """Sealed datagrams and streams. ``datagrams`` is set by whoever has the socket, which calls ``datagram``."""

    def __init__(self, secrets: Secrets, boot: int, clock: Clock, bulk: Bulk | None = None) -> None:
        self.datagrams: Datagrams | None = None
        self.when_free: Callable[[], object] = lambda: None
        self.receive: Callable[[int, str, Sequence[Any]], object] = lambda _boot, _address, _messages: None
        self.refused: dict[str, int] = {}
        """Datagrams that were not taken, by reason."""
        self.lost = 0
        """Datagrams that the system did not take, and large messages that no stream took."""
        self.datagrams_in = 0
        self.datagrams_out = 0
        self._sealer = Sealer(secrets, boot)
        self._opener = Opener(secrets, boot)
        self._clock = clock
        self._bulk = bulk
        self._bulky: dict[int, int] = {}
        if bulk is not None:
            bulk.receive = self._framed

    @property
    def is_full(self) -> bool:
        """Does the system take no more for now?"""
        return self.datagrams is not None and self.datagrams.is_full

    def change_secrets(self, secrets: Secrets) -> None:
        """Use these from now on."""
        self._sealer.secrets = self._opener.secrets = secrets
        if self._bulk is not None:
            self._bulk.secrets = secrets

    # Out.

    def send(self, boot: int, address: str, messages: Sequence[Any]) -> None:
        """Send messages, in order."""
        sent = messages if _are_encoded(messages) else _encoded(messages)
        if not address or (self._bulky and self._is_bulky(boot)):
            self._send_bulk(boot, address, sent)
            return
        contents, large = pack(sent)
        if large:
            self._send_bulk(boot, address, sent)
            return
        datagrams, at = self.datagrams, self._clock.now_ms() // 1000
        if datagrams is None:
            return
        self.datagrams_out += len(contents)
        for content in contents:
            if not datagrams.send(address, self._sealer.seal(boot, content, at)):
                self.lost += 1

    def _is_bulky(self, boot: int) -> bool:
        until_ms = self._bulky.get(boot)
        if until_ms is None:
            return False
        if self._clock.monotonic_us() // 1000 < until_ms:
            return True
        del self._bulky[boot]
        return False

    def _send_bulk(self, boot: int, address: str, messages: Sequence[Encoded]) -> None:
        has_large = bool(pack(messages)[1])
        if self._bulk is None or not self._bulk.send(boot, address, frames(messages, FRAME_BYTES_MAX)):
            self.lost += len(messages)
        elif has_large:
            self._bulky[boot] = self._clock.monotonic_us() // 1000 + BULK_MS
            if len(self._bulky) > BULK_PEERS_MAX:
                del self._bulky[next(iter(self._bulky))]

    # In.

    def datagram(self, data: bytes, address: str) -> None:
        """One datagram has come."""
        opened = self._opener.open(data, self._clock.now_ms() // 1000)
        if not isinstance(opened, Opened):
            self.refused[opened.reason] = self.refused.get(opened.reason, 0) + 1
            return
        self.datagrams_in += 1
        try:
            messages = unpack(opened.content)
        except RemoteProtocolError:
            self.refused["malformed"] = self.refused.get("malformed", 0) + 1
            return
        self.receive(opened.source, address, messages)

    def _framed(self, boot: int, address: str, content: bytes) -> None:
        """A frame of a stream; where it comes from is no place to send datagrams to, unless we have called there."""
        self.receive(boot, address, unframe(content))


def _are_encoded(messages: Sequence[Any]) -> bool:
    """What a proxy passes on is as it came."""
    return set(map(type, messages)) == _ENCODED


def _encoded(messages: Sequence[Any]) -> list[Encoded]:
    sent: list[Encoded] = []
    for message in messages:
        if type(message) is tuple:
            sent.append(message)
        else:
            try:
                sent += encoded(message)
            except PixiuError as error:
                log.error("a message could not be passed on", extra={"reason": str(error)})
    return sent
