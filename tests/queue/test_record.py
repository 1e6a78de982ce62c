"""Frames and blocks: what is written is read, anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.queue.storage.record import (
    HEADER_BYTES,
    Damage,
    Frame,
    decode_block,
    encode_block,
    encode_frame,
    first_event_id,
    read_frame,
    read_frames,
)

names = st.binary(max_size=128).filter(lambda name: not set(name) & set(b" \t\n\0"))
ids = st.integers(1, 2**62)
times = st.integers(0, 2**45)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([1, 2, 3, 16, 101, 129, 132, 134, 136]))
    payload = draw(st.binary(max_size=300))
    return encode_block(kind, draw(ids), draw(names), payload, write_ms=draw(times), receive_ms=draw(times))


@given(kind=st.integers(1, 255), event_id=ids, topic=names, payload=st.binary(max_size=500), at=times)
def test_a_block_says_what_was_put_in(kind: int, event_id: int, topic: bytes, payload: bytes, at: int) -> None:
    block = encode_block(kind, event_id, topic, payload, write_ms=at, receive_ms=at + 1)
    record = decode_block(block)
    assert (record.kind, record.event_id, record.topic, record.payload) == (kind, event_id, topic, payload)
    assert (record.write_ms, record.receive_ms) == (at, at + 1)
    assert block[record.payload_offset :][: len(payload)] == payload
    assert first_event_id(block) == event_id


@given(block=blocks(), epoch=st.integers(0, 2**32 - 1), count=st.integers(1, 2**31), through=st.integers(0, 2**62))
def test_a_frame_holds_its_block(block: bytes, epoch: int, count: int, through: int) -> None:
    data = encode_frame(block, epoch=epoch, count=count, flushed_through=through)
    frame = read_frame(b"before" + data + b"behind", 6)
    assert frame == Frame(epoch, count, through, block)
    assert frame.size == len(data) == HEADER_BYTES + len(block)
    assert frame.last_event_id == frame.event_id + count - 1


@pytest.mark.feature("X47")
@given(block=blocks(), data=st.data())
def test_one_flipped_bit_is_damage(block: bytes, data: st.DataObject) -> None:
    whole = bytearray(encode_frame(block, epoch=1, count=1, flushed_through=0))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert not isinstance(read_frame(bytes(whole), 0), Frame)


@given(block=blocks(), data=st.data())
def test_a_cut_frame_says_how_much_is_missing(block: bytes, data: st.DataObject) -> None:
    whole = encode_frame(block, epoch=1, count=1, flushed_through=0)
    size = data.draw(st.integers(0, len(whole) - 1))
    missing = read_frame(whole[:size], 0)
    assert isinstance(missing, int)
    assert 0 < missing <= len(whole) - size
    if size >= HEADER_BYTES:
        assert missing == len(whole) - size


@given(data=st.binary(max_size=200), position=st.integers(0, 50))
def test_noise_is_never_a_frame(data: bytes, position: int) -> None:
    found = read_frame(data, min(position, len(data)))
    assert isinstance(found, int | Damage)


def test_zeros_are_damage() -> None:
    assert isinstance(read_frame(bytes(100), 0), Damage)


@given(many=st.lists(blocks(), max_size=8), junk=st.binary(min_size=1, max_size=40))
def test_frames_back_to_back(many: list[bytes], junk: bytes) -> None:
    frames = [encode_frame(block, epoch=1, count=1, flushed_through=0) for block in many]
    buffer = b"".join(frames)
    found = list(read_frames(buffer))
    assert [frame.block for _, frame in found] == many
    assert [position for position, _ in found] == [sum(map(len, frames[:n])) for n in range(len(frames))]
    with pytest.raises(ValueError, match=f"byte {len(buffer)}: "):
        list(read_frames(buffer + junk))


@given(data=st.binary(max_size=120))
def test_noise_is_never_a_block_that_breaks_the_reader(data: bytes) -> None:
    try:
        record = decode_block(data)
    except ValueError:
        return
    assert len(data) >= record.payload_offset


@pytest.mark.parametrize(
    "line",
    [
        b"1\t1\t1\t1\ttopic\n",
        b"1\t1\t1\t1\ttopic\t0\textra\n",
        b"x\t1\t1\t1\ttopic\t0\n",
        b"1\t1\t1\t1\ttopic\t5\n",
        b"1\t1\t1\t1\ttopic\t0",
    ],
)
def test_blocks_that_are_none(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode_block(len(line).to_bytes(4, "little") + line)
