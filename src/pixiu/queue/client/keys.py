"""How a client shows the key: neither end says it."""

from __future__ import annotations

import secrets
from hmac import compare_digest
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.proof import NONCE_BYTES, Prover, client_proof, server_proof
from pixiu.machines.queue_wire.requests import encode_challenge, encode_prove
from pixiu.model.errors import NotAllowed, Unavailable

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from pixiu.queue.client.servers import Address

__all__ = ["key_bytes", "show_key", "show_key_blocking"]

RECEIVE_BYTES = 4096


def key_bytes(text: str) -> bytes:
    """A key, or the text of ``node.key``, whose first line it is."""
    return text.strip().partition("\n")[0].strip().encode()


async def show_key(ask: Callable[[bytes], Awaitable[bytes]], key: bytes, address: Address) -> None:
    """Prove the key, and have the server prove it. Raises ``NotAllowed``."""
    challenge = await ask(encode_challenge())
    nonce = secrets.token_bytes(NONCE_BYTES)
    answer = await ask(encode_prove(nonce + client_proof(key, challenge, nonce)))
    if not compare_digest(answer, server_proof(key, challenge, nonce)):
        raise NotAllowed(f"{address} has not shown that it has the same key")


def show_key_blocking(connection: socket.socket, key: str) -> None:
    """The same on a socket that nothing was said on yet. Raises ``NotAllowed`` or ``Unavailable``."""
    prover = Prover(key.encode(), secrets.token_bytes(NONCE_BYTES))
    connection.sendall(prover.start())
    while not prover.is_done:
        data = connection.recv(RECEIVE_BYTES)
        if not data:
            raise Unavailable("the queue ended the connection before it had shown its key")
        connection.sendall(prover.receive(data))
