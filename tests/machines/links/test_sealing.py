"""Seals: what is authentic counts once, for the process it was meant for, for a short time."""

from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.machines.links.handshake import SecureStream
from pixiu.machines.links.sealing import HEAD_BYTES, SKEW_SECONDS, WINDOW, Opened, Opener, Refusal, Sealer, Secrets
from pixiu.model.errors import ConfigError, RemoteProtocolError

OLD, NEW = b"the secret of last year", b"the secret of this year"
NOW = 1_760_000_000


def ends(secrets: Secrets | None = None) -> tuple[Sealer, Opener]:
    secrets = secrets or Secrets([OLD])
    return Sealer(secrets, 7), Opener(secrets, 8)


def test_golden_bytes() -> None:
    # docs/cluster.md shows these bytes: a datagram with one Beat, number 5.
    content = bytes.fromhex("01 0008 0000000000000005")
    sealed = Sealer(Secrets([b"0123456789abcdef"]), 0x1122334455667788).seal(0x99AABBCCDDEEFF00, content, NOW)
    head = bytes.fromhex("5058 01 d8 1122334455667788 99aabbccddeeff00 0000000000000001 68e77800")
    key = blake2b(b"0123456789abcdef", person=b"pixiu links", digest_size=32).digest()
    tag = blake2b(head + content, key=key, digest_size=16).digest()
    assert sealed == head + tag + content
    assert tag.hex() == "3a5d9055a7e2015c4810ceb37a79c56f"


def test_what_is_sealed_is_opened_once() -> None:
    sealer, opener = ends()
    sealed = sealer.seal(8, b"content", NOW)
    assert len(sealed) == HEAD_BYTES + 7
    assert opener.open(sealed, NOW) == Opened(7, b"content")
    assert opener.open(sealed, NOW) == Refusal("repeated")


@given(content=st.binary(max_size=1152), where=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_can_be_changed(content: bytes, where: int, bit: int) -> None:
    sealer, opener = ends()
    sealed = bytearray(sealer.seal(8, content, NOW))
    sealed[where % len(sealed)] ^= 1 << bit
    assert isinstance(opener.open(bytes(sealed), NOW), Refusal)
    assert len(opener) == 0, "nothing is kept of what is not authentic"


@given(st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes) -> None:
    assert isinstance(ends()[1].open(data, NOW), Refusal)


def test_it_is_for_one_process_and_one_time() -> None:
    sealer, opener = ends()
    assert opener.open(sealer.seal(9, b"", NOW), NOW) == Refusal("misdirected"), "for another one, or an earlier life"
    for skew in (SKEW_SECONDS + 1, -SKEW_SECONDS - 1):
        assert opener.open(sealer.seal(8, b"", NOW), NOW + skew) == Refusal("wrong_time")
    for skew in (SKEW_SECONDS, -SKEW_SECONDS):
        assert isinstance(opener.open(sealer.seal(8, b"", NOW), NOW + skew), Opened)


@settings(max_examples=30)
@given(st.permutations(range(40)), st.lists(st.integers(0, 39), max_size=40))
def test_any_order_counts_each_once(order: list[int], again: list[int]) -> None:
    sealer, opener = ends()
    sealed = [sealer.seal(8, bytes([number]), NOW) for number in range(40)]
    came = [opener.open(sealed[number], NOW) for number in [*order, *again]]
    assert sorted(each.content[0] for each in came if isinstance(each, Opened)) == list(range(40))


def test_one_that_is_far_behind_is_refused() -> None:
    sealer, opener = ends()
    first, second = sealer.seal(8, b"1", NOW), sealer.seal(8, b"2", NOW)
    for _ in range(WINDOW - 1):
        last = sealer.seal(8, b"", NOW)
    assert isinstance(opener.open(last, NOW), Opened)
    assert isinstance(opener.open(second, NOW), Opened), "the oldest of the window"
    assert opener.open(first, NOW) == Refusal("too_late")


def test_senders_are_bounded_and_forgetting_one_lets_nothing_back_in() -> None:
    secrets = Secrets([OLD])
    opener = Opener(secrets, 8, peers_max=2)
    datagrams = {boot: Sealer(secrets, boot).seal(8, b"", NOW) for boot in (1, 2, 3)}
    assert isinstance(opener.open(datagrams[1], NOW), Opened)
    assert isinstance(opener.open(datagrams[2], NOW), Opened)
    assert opener.open(datagrams[3], NOW) == Refusal("too_many_peers")
    later = NOW + 2 * SKEW_SECONDS + 1
    assert isinstance(opener.open(Sealer(secrets, 3).seal(8, b"", later), later), Opened)
    assert len(opener) == 1
    assert opener.open(datagrams[1], later) == Refusal("wrong_time"), "its window is gone, and so is its time"


def test_a_secret_is_changed_in_three_steps_while_everything_runs() -> None:
    before, both, turned, after = Secrets([OLD]), Secrets([OLD, NEW]), Secrets([NEW, OLD]), Secrets([NEW])
    for one, other in ((before, both), (both, turned), (turned, after)):
        for here, there in ((one, other), (other, one)):
            assert isinstance(Opener(there, 8).open(Sealer(here, 7).seal(8, b"", NOW), NOW), Opened)
    assert Opener(after, 8).open(Sealer(before, 7).seal(8, b"", NOW), NOW) == Refusal("unauthentic")


def test_secrets_are_read_from_lines() -> None:
    text = "# the cluster's\n\n0123456789abcdef\nfedcba9876543210 \n"
    assert Secrets.from_text(text).keys == Secrets([b"0123456789abcdef", b"fedcba9876543210"]).keys
    for bad in ("", "short", "0123456789abcdef\n" * 3):
        with pytest.raises(ConfigError):
            Secrets.from_text(bad)


def streams(
    here: Secrets | None = None, there: Secrets | None = None, *, to: int = 8
) -> tuple[SecureStream, SecureStream]:
    caller = SecureStream(here or Secrets([OLD]), 7, b"c" * 16, to=to)
    return caller, SecureStream(there or Secrets([OLD]), 8, b"a" * 16)


def open_streams(caller: SecureStream, called: SecureStream) -> None:
    proof, _ = called.feed(caller.begin())
    answer, _ = caller.feed(called.begin() + proof)
    called.feed(answer)


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 64))
def test_streams_carry_frames_in_any_pieces(frames: list[bytes], size: int) -> None:
    caller, called = streams()
    open_streams(caller, called)
    assert (caller.peer, called.peer, caller.is_open, called.is_open) == (8, 7, True, True)
    for one, other in ((caller, called), (called, caller)):
        data = b"".join(one.seal(frame) for frame in frames)
        came = [frame for at in range(0, len(data), size) for frame in other.feed(data[at : at + size])[1]]
        assert came == frames


@pytest.mark.parametrize("step", [(Secrets([OLD]), Secrets([OLD, NEW])), (Secrets([NEW, OLD]), Secrets([OLD, NEW]))])
def test_streams_open_while_a_secret_changes(step: tuple[Secrets, Secrets]) -> None:
    for here, there in (step, step[::-1]):
        caller, called = streams(here, there)
        open_streams(caller, called)
        assert caller.is_open and called.is_open


def test_streams_of_strangers_and_changed_frames_end() -> None:
    caller, called = streams(there=Secrets([NEW]))
    with pytest.raises(RemoteProtocolError):
        open_streams(caller, called)
    caller, called = streams(to=9)
    with pytest.raises(RemoteProtocolError, match="another process"):
        open_streams(caller, called)
    caller, called = streams()
    open_streams(caller, called)
    first, second = caller.seal(b"first"), caller.seal(b"second")
    with pytest.raises(RemoteProtocolError, match="not what the peer has sent"):
        called.feed(second + first)
    mirror = SecureStream(Secrets([OLD]), 7, b"c" * 16, to=8)
    with pytest.raises(RemoteProtocolError):
        mirror.feed(mirror.begin())
