"""What a gateway process and its node say to each other, as bytes and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.room_link import Ack, Frame
from pixiu.machines.rooms import Fan
from pixiu.machines.wire import (
    FRAME_BYTES_MAX,
    VERSION,
    Acks,
    Alive,
    Answer,
    Call,
    End,
    Event,
    Find,
    Found,
    Heartbeat,
    Hello,
    Lives,
    LoggedIn,
    LogIn,
    LogOut,
    Pushes,
    PushRow,
    Refusal,
    Request,
    RoomAck,
    RoomFrame,
    Stream,
    Welcome,
    WireMessage,
    Writing,
    encode,
)
from pixiu.machines.wire.fields import ERRORS
from pixiu.model.errors import (
    NotFound,
    NotLeader,
    PixiuError,
    RemoteProtocolError,
    RequestError,
    TooLarge,
    Unavailable,
)
from pixiu.model.session import Session

numbers = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=10
)
objects = st.dictionaries(texts, values, max_size=5)
bodies = st.binary(max_size=60)
names = st.dictionaries(numbers, texts, max_size=4)
session_ids = st.lists(numbers, max_size=6)
fans = st.builds(Fan, numbers, numbers, bodies, st.booleans(), st.none() | session_ids.map(tuple), st.booleans())


@st.composite
def pushes(draw: st.DrawFn) -> Pushes:
    held = draw(st.lists(st.tuples(numbers, bodies), max_size=4))
    places, options = st.integers(0, max(len(held) - 1, 0)), st.integers(0, 7)
    row = st.builds(PushRow, numbers, numbers, numbers, places, st.booleans(), st.booleans(), numbers, options)
    return Pushes(held, draw(st.lists(row, max_size=5 if held else 0)), draw(names), draw(names))


messages: st.SearchStrategy[Any] = st.one_of(
    st.builds(Hello, st.integers(0, 65535), texts),
    st.builds(Welcome, numbers, st.integers(0, 2**32 - 1)),
    st.builds(Heartbeat, numbers, st.booleans(), objects),
    st.builds(LogIn, numbers, texts, texts, texts, numbers),
    st.builds(LoggedIn, numbers, st.builds(Session, numbers, numbers, texts, texts, numbers, texts, numbers)),
    st.builds(LogOut, numbers),
    st.builds(Request, numbers, numbers, st.booleans(), texts, objects),
    st.builds(Answer, numbers, objects),
    st.builds(Acks, st.lists(st.tuples(numbers, numbers), max_size=6)),
    st.builds(Lives, session_ids),
    st.builds(Writing, session_ids),
    pushes(),
    st.builds(Event, session_ids, objects),
    st.builds(End, numbers, texts),
    st.builds(
        RoomFrame, texts, st.builds(Frame, numbers, numbers, numbers, numbers, st.lists(fans, max_size=5))
    ),
    st.builds(RoomAck, texts, st.builds(Ack, numbers, numbers)),
    st.builds(Alive),
    st.builds(Find, numbers, texts),
    st.builds(Found, numbers, numbers),
    st.builds(Call, numbers, numbers, st.booleans(), texts, texts, texts, objects),
)  # fmt: skip


def read(data: bytes) -> WireMessage:
    (message,) = Stream().feed(data)
    return message


@given(st.lists(messages, max_size=6), st.integers(1, 50))
def test_every_message_comes_as_it_was_however_the_bytes_are_cut(sent: list[WireMessage], size: int) -> None:
    data = b"".join(map(encode, sent))
    stream = Stream()
    found: list[WireMessage] = []
    for start in range(0, len(data), size):
        found += stream.feed(data[start : start + size])
    assert found == sent
    assert [type(message) for message in found] == [type(message) for message in sent]
    assert stream.buffered == 0


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_stays_what_it_is(kind: type[PixiuError]) -> None:
    options: dict[str, Any] = {}
    if issubclass(kind, Unavailable):
        options["retry_after_ms"] = 1234
    if kind is NotLeader:
        options["leader"] = "10.0.0.7:12301"
    error = kind("it is so", **options)
    refusal = read(encode(Refusal(3, error)))
    assert isinstance(refusal, Refusal) and refusal.request == 3
    assert (type(refusal.error), str(refusal.error)) == (kind, "it is so")
    assert {name: getattr(refusal.error, name) for name in options} == options


def test_an_error_of_a_kind_that_is_not_told_is_told_as_its_base() -> None:
    class Odd(NotFound):
        """Known here only."""

    refusal = read(encode(Refusal(1, Odd("gone"))))
    assert isinstance(refusal, Refusal)
    assert (type(refusal.error), refusal.error.code) == (NotFound, "not_found")


@given(st.binary(max_size=200))
def test_garbage_is_an_error_and_nothing_else(data: bytes) -> None:
    stream = Stream(bytes_max=100)
    try:
        stream.feed(data)
    except RemoteProtocolError:
        return
    assert stream.buffered <= 104, "no more than one frame that is not whole"


@given(messages, st.data())
def test_a_damaged_frame_is_an_error_or_another_message(message: WireMessage, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    place = data.draw(st.integers(4, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):  # and cut off
        frame = frame[: data.draw(st.integers(5, len(frame)))]
        frame[:4] = (len(frame) - 4).to_bytes(4)
    try:
        read(bytes(frame))
    except RemoteProtocolError:
        pass


def test_a_claimed_length_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(RemoteProtocolError):
        Stream().feed((FRAME_BYTES_MAX + 1).to_bytes(4))


def test_a_claimed_count_allocates_nothing() -> None:
    claim = b"\x0b" + (2**32 - 1).to_bytes(4)
    with pytest.raises(RemoteProtocolError, match="no room"):
        Stream().feed(len(claim).to_bytes(4) + claim)


def test_what_cannot_be_passed_on_is_refused_where_it_is_said() -> None:
    with pytest.raises(RequestError):
        encode(Request(1, 2, False, "send", {"to": 2**70}))
    with pytest.raises(RequestError):
        encode(LogOut(2**64))
    with pytest.raises(TooLarge):
        encode(Pushes([(1, bytes(FRAME_BYTES_MAX))], [], {}, {}))


def test_a_stranger_is_not_taken_for_a_gateway() -> None:
    with pytest.raises(RemoteProtocolError):
        Stream().feed(b"GET / HTTP/1.1\r\n\r\n")
    frame = bytearray(encode(Hello(VERSION, "gateway-1")))
    frame[5:9] = b"SMSS"
    with pytest.raises(RemoteProtocolError, match="no gateway"):
        read(bytes(frame))


def test_a_body_that_many_get_is_there_once() -> None:
    body = bytes(1000)
    rows = [PushRow(session, 1, 0, 0, False, True, 0) for session in range(100)]
    assert len(encode(Pushes([(7, body)], rows, {1: "alice"}, {}))) < 1000 + 100 * 40 + 100
