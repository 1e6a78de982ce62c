"""Messages, packed and unpacked: nothing is lost, nothing is larger than a datagram, rubbish is refused."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.machines.links.codec import TALK, TALK_HEAD, decode, encode, kind_of
from pixiu.machines.links.messages import (
    AskRoutes,
    Beat,
    BeatBack,
    ClusterMessage,
    Declined,
    News,
    Reach,
    RoomAck,
    RoomFrame,
    Routes,
    Settled,
    SliceSettled,
    StreamKey,
    Taken,
    Talk,
    Want,
)
from pixiu.machines.links.packing import (
    CONTENT_BYTES_MAX,
    DATAGRAM_BYTES_MAX,
    encoded,
    frames,
    pack,
    unframe,
    unpack,
)
from pixiu.machines.links.sealing import HEAD_BYTES
from pixiu.machines.room_link import Ack, Frame
from pixiu.machines.rooms import Fan
from pixiu.machines.routes import Digest, RouteRow
from pixiu.machines.scheduling import Priority
from pixiu.machines.seqlog import Missing
from pixiu.machines.view import PeerState
from pixiu.model.errors import PixiuError, RemoteProtocolError, RequestError

numbers = st.integers(0, 2**64 - 1)
smalls = st.integers(0, 2**32 - 1)
ids = st.lists(numbers, max_size=400).map(tuple)
keys = st.builds(StreamKey, st.integers(0, 1), st.integers(0, 255), st.sampled_from([1, 2, 4, 256]))
rows = st.builds(RouteRow, numbers, st.text(max_size=20), numbers, numbers, numbers, numbers, st.booleans())
row_lists = st.lists(rows, max_size=40).map(tuple)
digests = st.builds(Digest, smalls, numbers)
fans = st.builds(
    Fan, numbers, numbers, st.binary(max_size=100), st.booleans(),
    st.none() | st.lists(numbers, max_size=4).map(tuple), st.booleans(),
)  # fmt: skip
MESSAGES: dict[type, st.SearchStrategy[ClusterMessage]] = {
    Beat: st.builds(Beat, numbers),
    BeatBack: st.builds(BeatBack, numbers, st.sampled_from(PeerState), smalls),
    Talk: st.builds(
        Talk, smalls, numbers, numbers, numbers, st.integers(0, 255), st.sampled_from(Priority),
        st.booleans(), st.binary(max_size=3000),
    ),
    Taken: st.builds(Taken, ids),
    Settled: st.builds(Settled, numbers, ids),
    SliceSettled: st.builds(SliceSettled, numbers, numbers, ids),
    Declined: st.builds(Declined, numbers, numbers, st.text(max_size=20), smalls, smalls, smalls),
    RoomFrame: st.builds(
        RoomFrame, st.builds(Frame, numbers, numbers, numbers, numbers, st.lists(fans, max_size=5))
    ),
    RoomAck: st.builds(RoomAck, st.builds(Ack, numbers, numbers)),
    News: st.builds(News, keys, numbers, st.integers(0, 2**40), row_lists),
    Reach: st.builds(Reach, keys, numbers, numbers, numbers, digests),
    Want: st.builds(
        Want, keys, numbers, numbers, st.lists(st.builds(Missing, numbers, numbers), max_size=64).map(tuple)
    ),
    AskRoutes: st.builds(AskRoutes, keys, smalls),
    Routes: st.builds(
        Routes, keys, numbers, numbers, smalls, st.integers(0, 3), st.integers(4, 9),
        st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple), row_lists,
    ),
}  # fmt: skip
any_message = st.one_of(list(MESSAGES.values()))


def test_every_message_has_a_strategy() -> None:
    assert set(MESSAGES) == set(get_args(ClusterMessage))


@given(any_message)
@settings(max_examples=150)
def test_there_and_back(message: ClusterMessage) -> None:
    assert decode(kind_of(message), encode(message)) == message


@pytest.mark.parametrize(
    ("message", "kind", "golden"),
    [
        (Beat(5), 1, "0000000000000005"),
        (BeatBack(5, PeerState.RUNNING, 3), 2, "0000000000000005 01 00000003"),
        (
            Talk(7, 1, 2, 3, 0, Priority.CHAT, is_reliable=True, body=b"hi"), 3,
            "00000007 0000000000000001 0000000000000002 0000000000000003 00 02 01 6869",
        ),
        (
            News(StreamKey(1, 1, 4), 9, 5, (RouteRow(1, "r", 2, 3, 4, 6, is_in=True),)), 9,
            (
                "01 0001 0004 0000000000000009 0000000000000005 00000001 0000000000000001 0000000000000002"
                " 0000000000000003 0000000000000004 0000000000000006 01 00000001 72"
            ),
        ),
        (Want(StreamKey(0, 0, 1), 9, 5, (Missing(6, 7),)), 11,
            "00 0000 0001 0000000000000009 0000000000000005 00000001 0000000000000006 0000000000000007"),
    ],
)  # fmt: skip
def test_golden_bytes(message: ClusterMessage, kind: int, golden: str) -> None:
    assert kind_of(message) == kind
    assert encode(message).hex() == golden.replace(" ", "")


def test_what_a_proxy_reads_of_a_talk() -> None:
    talk = Talk(7, 123, 2, 3, 0, Priority.CHAT, is_reliable=False, body=b"hi")
    assert kind_of(talk) == TALK
    assert TALK_HEAD.unpack_from(encode(talk))[1] == 123


@given(st.lists(any_message, max_size=12))
@settings(max_examples=60)
def test_a_batch_is_whole_again_and_no_datagram_is_too_large(messages: list[ClusterMessage]) -> None:
    sent = [each for message in messages for each in encoded(message)]
    contents, large = pack(sent)
    assert all(len(content) + HEAD_BYTES <= DATAGRAM_BYTES_MAX for content in contents)
    assert all(len(body) + 3 > CONTENT_BYTES_MAX for _, body in large)
    small = [each for each in sent if each not in large]
    assert [each for content in contents for each in unpack(content) if each not in large] == small
    assert [each for part in frames(large, 2_000) for each in unframe(part)] == large
    assert all(len(part) <= 2_000 or len(unframe(part)) == 1 for part in frames(large, 2_000))
    rows_sent = [row for message in messages if isinstance(message, News) for row in message.rows]
    came = [decode(*each) for each in [*small, *large]]
    assert sorted(row for message in came if isinstance(message, News) for row in message.rows) == sorted(rows_sent)


def test_rows_are_divided_and_keep_their_numbers() -> None:
    many = tuple(RouteRow(n, "a room", n, n, 1, n, is_in=True) for n in range(500))
    parts = [decode(*each) for each in encoded(News(StreamKey(0, 0, 1), 1, 100, many))]
    assert len(parts) > 1
    numbered = [(part.first + at, row) for part in parts if isinstance(part, News) for at, row in enumerate(part.rows)]
    assert numbered == list(enumerate(many, 100))
    _, large = pack([each for part in parts for each in encoded(part)])
    assert not large


@given(st.integers(0, 16), st.binary(max_size=200))
@settings(max_examples=150)
def test_rubbish_is_refused_or_read(kind: int, data: bytes) -> None:
    for read in (lambda: decode(kind, data), lambda: unpack(data), lambda: unframe(data)):
        try:
            read()
        except PixiuError as error:
            assert isinstance(error, RemoteProtocolError)


def test_numbers_that_have_no_place_are_refused() -> None:
    with pytest.raises(RequestError):
        encode(Beat(2**64))
