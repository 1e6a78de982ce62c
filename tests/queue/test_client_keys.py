"""How the client shows a key, against servers that do what a test tells them."""

import asyncio

import pytest

from pixiu.machines.queue_wire import commands
from pixiu.machines.queue_wire import responses as answer
from pixiu.machines.queue_wire.proof import NONCE_BYTES, PROOF_BYTES, accept_proof
from pixiu.model.errors import NotAllowed
from pixiu.queue.client import Client
from tests.queue.scripted import Peer, ScriptedQueue
from tests.queue.test_client import answering, counting


async def test_the_key_is_shown_first_on_every_connection() -> None:
    async def script(peer: Peer) -> None:
        assert (await peer.request()).command == commands.CHALLENGE
        peer.send(answer.encode_sized(b"c" * NONCE_BYTES))
        asked = await peer.request()
        proven = accept_proof([b"other", b"secret"], b"c" * NONCE_BYTES, asked.part)
        assert asked.command == commands.PROVE and proven is not None
        assert b"secret" not in asked.part, "it is shown, and not said"
        peer.send(answer.encode_sized(proven))
        await counting(peer)

    async with ScriptedQueue(script) as server, Client(server.address, key="secret\n", pool=2) as client:
        await asyncio.gather(*(client.publish(f"pixiu.{number}", b"x") for number in range(8)))
    assert len(server.peers) == 2


async def test_a_wrong_key_is_not_allowed() -> None:
    script = answering(answer.encode_refused(commands.WRONG_KEY))
    async with ScriptedQueue(script) as server, Client(server.address, key="secret") as client:
        with pytest.raises(NotAllowed, match="wrong key"):
            await client.publish("pixiu.x", b"x")


async def test_a_server_without_the_key_is_not_trusted_with_anything() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(answer.encode_sized(b"c" * NONCE_BYTES))
        await peer.request()
        peer.send(answer.encode_sized(b"p" * PROOF_BYTES))
        assert (await peer.request()).command != commands.PUB

    async with ScriptedQueue(script) as server, Client(server.address, key="secret") as client:
        with pytest.raises(NotAllowed, match="has not shown that it has the same key"):
            await client.publish("pixiu.x", b"x")
