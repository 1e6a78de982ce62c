"""How a connection shows that it has the key, without saying it: a challenge, and a proof by both ends.

::

    client   Challenge                                   server   16 random bytes
    client   Prove: 16 random bytes, its proof           server   its own proof; the connection is one of the cluster's

A proof is a keyed BLAKE2b over who speaks and both random parts, so nothing that was overheard can be used again, and a
server that does not have the key cannot pretend to. Proofs are compared in constant time. Nothing is encrypted by it.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.commands import CODE_REFUSED, WRONG_KEY
from pixiu.machines.queue_wire.requests import encode_challenge, encode_prove
from pixiu.machines.queue_wire.responses import Kind, ResponseReader
from pixiu.model.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NONCE_BYTES", "PROOF_BYTES", "Prover", "accept_proof", "client_proof", "server_proof"]

NONCE_BYTES = 16
PROOF_BYTES = 32


def client_proof(key: bytes, challenge: bytes, nonce: bytes) -> bytes:
    """What the client shows."""
    return _proof(key, b"client", challenge, nonce)


def server_proof(key: bytes, challenge: bytes, nonce: bytes) -> bytes:
    """What the server answers."""
    return _proof(key, b"server", challenge, nonce)


def _proof(key: bytes, who: bytes, challenge: bytes, nonce: bytes) -> bytes:
    derived = blake2b(key, digest_size=32, person=b"pixiu queue").digest()
    return blake2b(who + challenge + nonce, digest_size=PROOF_BYTES, key=derived).digest()


def accept_proof(keys: Iterable[bytes], challenge: bytes, part: bytes) -> bytes | None:
    """The server's answer to a proof; None if it fits none of the keys. Every key is tried, whichever fits."""
    nonce, shown = part[:NONCE_BYTES], part[NONCE_BYTES:]
    answer: bytes | None = None
    for key in keys:
        if compare_digest(shown, client_proof(key, challenge, nonce)):
            answer = server_proof(key, challenge, nonce)
    return answer if challenge and len(part) == NONCE_BYTES + PROOF_BYTES else None


class Prover:
    """The client's side, for a connection that has said nothing else yet."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._key = key
        self._nonce = nonce
        self._reader = ResponseReader()
        self._challenge = b""
        self.is_done = False
        """Both ends have shown the key."""

    def start(self) -> bytes:
        """What to send first."""
        self._reader.expect(Kind.SIZED)
        return encode_challenge()

    def receive(self, data: bytes) -> bytes:
        """What to send next; nothing while an answer is incomplete, or when it is done. Raises ``NotAllowed``."""
        send = b""
        for response in self._reader.receive(data):
            if response.code == CODE_REFUSED:
                raise NotAllowed(f"refused: {response.text}")
            if not self._challenge:
                if len(response.body) != NONCE_BYTES:
                    raise NotAllowed("the server's challenge makes no sense")
                self._challenge = response.body
                self._reader.expect(Kind.SIZED)
                send = encode_prove(self._nonce + client_proof(self._key, self._challenge, self._nonce))
            elif compare_digest(response.body, server_proof(self._key, self._challenge, self._nonce)):
                self.is_done = True
            else:
                raise NotAllowed(f"{WRONG_KEY}: the server has not shown that it has the same")
        return send
