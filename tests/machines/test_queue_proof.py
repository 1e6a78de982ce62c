"""A key that both ends show and neither says."""

from __future__ import annotations

import pytest

from pixiu.machines.queue_wire.proof import NONCE_BYTES, PROOF_BYTES, Prover, accept_proof, client_proof, server_proof
from pixiu.machines.queue_wire.responses import encode_refused, encode_sized
from pixiu.model.errors import NotAllowed

KEY = b"the secret of a cluster"
CHALLENGE, NONCE = b"c" * NONCE_BYTES, b"n" * NONCE_BYTES
HEAD = 20


def prove(key: bytes, keys: list[bytes]) -> Prover:
    """A prover against a server that takes these keys."""
    prover = Prover(key, NONCE)
    prover.start()
    asked = prover.receive(encode_sized(CHALLENGE))
    answer = accept_proof(keys, CHALLENGE, asked[HEAD:])
    assert prover.receive(encode_refused("wrong key") if answer is None else encode_sized(answer)) == b""
    return prover


def test_one_of_several_keys_fits() -> None:
    assert prove(KEY, [b"an older one of theirs", KEY]).is_done


def test_another_key_is_refused_and_the_other_end_says_so() -> None:
    with pytest.raises(NotAllowed, match="wrong key"):
        prove(b"some other secret", [KEY])
    with pytest.raises(NotAllowed, match="wrong key"):
        prove(KEY, [])


def test_a_server_that_only_echoes_is_not_believed() -> None:
    for answer in (client_proof(KEY, CHALLENGE, NONCE), b"", bytes(PROOF_BYTES), server_proof(b"x", CHALLENGE, NONCE)):
        prover = Prover(KEY, NONCE)
        prover.start()
        prover.receive(encode_sized(CHALLENGE))
        with pytest.raises(NotAllowed, match="has not shown"):
            prover.receive(encode_sized(answer))
        assert not prover.is_done


def test_a_proof_is_good_for_its_challenge_alone_and_whole() -> None:
    part = NONCE + client_proof(KEY, CHALLENGE, NONCE)
    assert accept_proof([KEY], CHALLENGE, part) == server_proof(KEY, CHALLENGE, NONCE)
    for challenge, shown in (
        (b"d" * NONCE_BYTES, part), (b"", NONCE + client_proof(KEY, b"", NONCE)), (CHALLENGE, part[:-1]),
        (CHALLENGE, part + b"0"), (CHALLENGE, b""), (CHALLENGE, NONCE + server_proof(KEY, CHALLENGE, NONCE)),
    ):  # fmt: skip
        assert accept_proof([KEY], challenge, shown) is None


def test_answers_in_pieces_are_waited_for() -> None:
    prover = Prover(KEY, NONCE)
    prover.start()
    sent = b"".join(prover.receive(bytes([byte])) for byte in encode_sized(CHALLENGE))
    assert sent.endswith(NONCE + client_proof(KEY, CHALLENGE, NONCE))
    other = Prover(KEY, NONCE)
    other.start()
    with pytest.raises(NotAllowed, match="makes no sense"):
        other.receive(encode_sized(b"short"))
