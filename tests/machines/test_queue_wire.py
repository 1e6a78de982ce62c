"""The codec of the queue's protocol: exact bytes, any split of them, and no way to crash or bloat it."""

import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.queue_wire import (
    Kind,
    Message,
    ResponseReader,
    SubscribeReader,
    follow,
    is_one_message,
    pack,
    requests,
    responses,
    split_messages,
    streams,
    unpack,
)
from pixiu.machines.queue_wire.unread import Unread
from pixiu.model.errors import CorruptData, LocalProtocolError, RemoteProtocolError

pairs = st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=40))
Encode = Callable[[], bytes]

headers = st.lists(pairs, max_size=4).map(tuple)
messages = st.builds(Message, st.binary(max_size=100), headers).filter(lambda m: bool(m.body or m.headers))


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


class TestMessages:
    @given(st.lists(messages, min_size=1, max_size=6))
    def test_unpacking_gives_back_what_was_packed(self, sent: list[Message]) -> None:
        payload = pack(sent)
        assert unpack(payload) == sent
        assert split_messages(payload) == [message.encode() for message in sent]
        assert is_one_message(payload) == (len(sent) == 1)

    @given(st.binary(max_size=200))
    def test_garbage_is_refused_or_is_whole_messages(self, payload: bytes) -> None:
        parts = split_messages(payload)
        if parts is None:
            with pytest.raises(RemoteProtocolError):
                unpack(payload)
        else:
            assert b"".join(parts) == payload
            assert pack(unpack(payload)) == payload

    @given(st.lists(messages, min_size=1, max_size=3), st.data())
    def test_a_truncated_payload_never_passes_for_the_whole(self, sent: list[Message], data: st.DataObject) -> None:
        payload = pack(sent)
        cut = data.draw(st.integers(0, len(payload) - 1))
        parts = split_messages(payload[:cut])
        assert parts is None or len(parts) < len(sent)

    @pytest.mark.feature("W16", "QD3")
    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param("", id="empty"),
            pytest.param("0100000000000000", id="eight bytes"),
            pytest.param("0000000000000000 61", id="content length 0"),
            pytest.param("0200000000000000 61", id="content length past the end"),
            pytest.param("0100000000000000 61 00", id="one byte left over"),
            pytest.param("0100000000000000 61 0100000000000000", id="eight bytes left over"),
            pytest.param("0100000001000000 61", id="a header that is not there"),
            pytest.param("08000000ffffffff 0000000000000000", id="header count beyond reason"),
            pytest.param("0900000001000000 0100000061 01000000", id="value length past the end"),
            pytest.param("0900000001000000 ffffffff61 00000000", id="key length past the end"),
            pytest.param("0800000002000000 0000000000000000", id="one header too few"),
        ],
    )
    def test_a_payload_that_lies_is_refused(self, payload: str) -> None:
        assert split_messages(hexed(payload)) is None

    @pytest.mark.feature("W15")
    def test_headers_only_and_body_only_are_fine_neither_is_not(self) -> None:
        assert split_messages(Message(b"", ((b"k", b""),)).encode()) is not None
        assert split_messages(Message(b"x").encode()) is not None
        with pytest.raises(LocalProtocolError, match="neither"):
            Message().encode()

    @pytest.mark.feature("QG")
    def test_an_empty_header_name_is_refused_before_it_reaches_a_java_client(self) -> None:
        with pytest.raises(LocalProtocolError, match="needs a name"):
            Message.of(b"x", {"": "v"})

    def test_an_appended_message_tells_its_number_and_key(self) -> None:
        number = (123456789).to_bytes(8, "little")
        message = Message(b"x", ((b"pixiu.id", number), (b"pixiu.key", b"k1"), (b"own", b"1")))
        assert (message.message_id, message.key, message.header("own")) == (123456789, b"k1", b"1")
        assert Message(b"x").message_id is None


class TestRequests:
    """The captured examples of the original, byte for byte."""

    zeros = "00" * 16

    @pytest.mark.feature("W04")
    def test_the_examples_of_the_original(self) -> None:
        order = b"order"
        two = pack([Message(b"hello", ((b"k", b"v"),)), Message(b"world!")])
        late = Message(b"late").encode()
        expected = {
            f"11 0000 {self.zeros} 00": requests.encode_alive(),
            f"02 0500 {self.zeros} 02 6f72646572 7431 0000000000000000": requests.encode_create_topic(
                order, trace_id=b"t1"
            ),
            f"02 0300 {self.zeros} 00 746d70 007c291f94010000": requests.encode_create_topic(
                b"tmp", expires_at_ms=1735689600000
            ),
            f"03 0500 {self.zeros} 00 6f72646572": requests.encode_delete_topic(order),
            f"01 0500 25000000 {'00' * 12} 00 6f72646572 0f00000001000000 010000006b0100000076 68656c6c6f"
            " 0600000000000000 776f726c6421": requests.encode_pub(order, two),
            f"00 0500 05 01 {'00' * 14} 00 6f72646572 0000000000000000 005ed0b200000000 02000000 6731": (
                requests.encode_sub(order, b"g1", after=0, batch=5, ack_timeout_ns=3_000_000_000)
            ),
            f"00 0500 01 00 {'00' * 14} 00 6f72646572 0700000000000000 02000000 6731": requests.encode_sub(
                order, b"g1", after=7
            ),
            f"10 0500 0c000000 {'00' * 12} 00 6f72646572 dc05000000000000 0400000000000000 6c617465": (
                requests.encode_delay(order, late, delay_ms=1500)
            ),
            f"64 0000 {self.zeros} 02 7431": requests.encode_list(trace_id=b"t1"),
            f"41 0500 {self.zeros} 00 6f72646572": requests.encode_topic_info(order),
            f"63 0000 {self.zeros} 00 0000000000000000": requests.encode_valid_list(),
            f"40 0000 {self.zeros} 00 0000000000000000": requests.encode_replica(after=0),
        }
        for text, request in expected.items():
            assert request == hexed(text)

    def test_an_extension_tells_the_size_of_its_part(self) -> None:
        tail = "00" * 11
        assert requests.encode_hello() == hexed(f"80 0000 00000000 00 {tail} 00")
        assert requests.encode_set_position(b"t", b"g1", event_id=-1) == hexed(
            f"84 0100 0c000000 00 {tail} 00 74 0200 6731 ffffffffffffffff"
        )
        assert requests.encode_append(b"t", Message(b"x").encode(), key=b"k", unless_after=5) == hexed(
            f"81 0100 14000000 00 {tail} 00 74 0500000000000000 0100 6b 0100000000000000 78"
        )
        assert requests.encode_subscribe(
            b"t", b"g", start=3, value=9, batch=255, ack_timeout_ms=1, take_over=True, remember=True
        ) == hexed(f"82 0100 15000000 03 {tail} 00 74 03 0900000000000000 ff 0100000000000000 0100 67")
        assert requests.encode_follow(b"f", last_event_id=4, last_epoch=2, highest_epoch=3) == hexed(
            f"87 0000 14000000 00 {tail} 00 0100 66 0400000000000000 02000000 03000000 00"
        )
        assert requests.encode_delays(after=3, limit=10)[20:] == hexed("0300000000000000 0a000000")
        assert requests.encode_promote(force=True)[20:] == b"\x01"

    def test_the_event_id_is_asked_for_in_a_free_byte(self) -> None:
        assert requests.encode_pub(b"t", b"123456789", want_event_id=True)[7] == 1
        assert requests.encode_create_topic(b"t", want_event_id=True)[7] == 1

    @pytest.mark.feature("QG")
    def test_a_trace_id_longer_than_its_length_field_is_refused_here(self) -> None:
        assert requests.encode_list(trace_id=b"x" * 255)[19] == 255
        cases: list[Encode] = [
            lambda: requests.encode_list(trace_id=b"x" * 256),
            lambda: requests.encode_sub(b"t", b"g", after=0, trace_id=b"x" * 256),
        ]
        for encode in cases:
            with pytest.raises(LocalProtocolError, match="at most 255 bytes, not 256"):
                encode()

    def test_what_does_not_fit_its_field_is_refused_here(self) -> None:
        cases: list[Encode] = [
            lambda: requests.encode_delete_topic(b"x" * 65536),
            lambda: requests.encode_sub(b"x" * 65536, b"g", after=0),
            lambda: requests.encode_sub(b"t", b"g", after=0, batch=256),
            lambda: requests.encode_sub(b"t", b"g", after=2**63),
            lambda: requests.encode_string(b"x" * 65536),
            lambda: requests.encode_subscribe(b"t", b"g", start=4),
            lambda: requests.encode_delays(limit=2**32),
        ]
        for encode in cases:
            with pytest.raises(LocalProtocolError):
                encode()


class TestResponses:
    answers: ClassVar = [
        (Kind.DONE, responses.encode_done(17), (200, 17, b"")),
        (Kind.DONE, responses.encode_refused("topic exist"), (400, 0, b"topic exist")),
        (Kind.SIZED, responses.encode_sized(b"[{}]"), (200, 0, b"[{}]")),
        (Kind.SIZED, responses.encode_sized(b""), (200, 0, b"")),
        (Kind.DONE, responses.ANSWER_ALIVE, (201, 0, b"")),
        (Kind.SIZED, responses.encode_append_answer(5, 6, True), (200, 0, struct.pack("<qqB", 5, 6, 1))),
    ]

    @given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 1000), max_size=8))
    def test_any_split_gives_the_same_answers_in_order(self, picks: list[int], cuts: list[int]) -> None:
        reader = ResponseReader()
        for pick in picks:
            reader.expect(self.answers[pick][0])
        data = b"".join(self.answers[pick][1] for pick in picks)
        received = [response for piece in in_pieces(data, cuts) for response in reader.receive(piece)]
        assert [tuple(response) for response in received] == [self.answers[pick][2] for pick in picks]
        assert reader.outstanding == 0

    @pytest.mark.feature("QG")
    def test_an_answer_that_nobody_asked_for_breaks_the_connection(self) -> None:
        reader = ResponseReader()
        reader.expect(Kind.DONE)
        with pytest.raises(RemoteProtocolError, match="nobody asked"):
            reader.receive(responses.encode_done() + responses.encode_done())
        with pytest.raises(RemoteProtocolError, match="earlier"):
            reader.receive(responses.encode_done())

    def test_the_beginning_of_an_unasked_answer_is_enough(self) -> None:
        reader = ResponseReader()
        reader.expect(Kind.DONE)
        with pytest.raises(RemoteProtocolError, match="nobody asked"):
            reader.receive(responses.encode_done() + b"\xc8")

    def test_a_server_that_turns_us_away_unasked_is_quoted(self) -> None:
        with pytest.raises(RemoteProtocolError, match="nobody asked for: too many connections"):
            ResponseReader().receive(responses.encode_refused("too many connections"))

    def test_a_length_past_the_bound_is_refused_before_the_body_comes(self) -> None:
        reader = ResponseReader(body_bytes_max=1000)
        reader.expect(Kind.SIZED)
        with pytest.raises(RemoteProtocolError, match="an answer of 1001 bytes; the bound is 1000"):
            reader.receive(struct.pack("<HI4x", 200, 1001))

    @given(st.binary(max_size=300), st.lists(st.sampled_from(Kind), max_size=5))
    def test_garbage_raises_nothing_but_remote_protocol_errors(self, data: bytes, kinds: list[Kind]) -> None:
        reader = ResponseReader(body_bytes_max=100)
        for kind in kinds:
            reader.expect(kind)
        try:
            for byte in data:
                reader.receive(bytes([byte]))
        except RemoteProtocolError:
            pass

    def test_the_numbers_of_an_append(self) -> None:
        body = responses.encode_append_answer(7, 9, False)[10:]
        assert responses.decode_append_answer(body) == (7, 9, False)
        with pytest.raises(RemoteProtocolError):
            responses.decode_append_answer(body + b"x")

    @pytest.mark.feature("W07")
    def test_an_error_text_stays_readable_for_a_signed_length(self) -> None:
        frame = responses.encode_refused("x" * 40_000)
        assert struct.unpack_from("<h", frame, 2)[0] == 32767 == len(frame) - 10


class TestSubscribeStream:
    items: ClassVar = [
        streams.Item(1794705511873, 2, 0, 68, Message(b"hello", ((b"k", b"v"),)).encode()),
        streams.Item(1794705511873, 3, 0, 127, Message(b"world!").encode()),
    ]
    whole = streams.encode_batch(items)

    @pytest.mark.feature("W04", "W28")
    def test_the_captured_push(self) -> None:
        frame = hexed(
            "c800 02 00 65000000 0000"
            "c1d5c8dca1010000 0200000000000000 0000000000000000 4400000000000000"
            "0f00000001000000010000006b010000007668656c6c6f"
            "c1d5c8dca1010000 0300000000000000 0000000000000000 7f00000000000000"
            "0600000000000000776f726c6421"
        )
        assert streams.encode_batch(self.items) == frame
        assert SubscribeReader().receive(frame) == [streams.BatchPushed(self.items)]

    @given(st.lists(st.integers(0, 2000), max_size=10))
    def test_any_split_gives_the_same_events(self, cuts: list[int]) -> None:
        data = b"".join(
            (
                streams.encode_batch(self.items),
                responses.ANSWER_ALIVE,
                streams.encode_batch(self.items[:1]),
                streams.encode_ended(),
            )
        )
        reader = SubscribeReader()
        events = [event for piece in in_pieces(data, cuts) for event in reader.receive(piece)]
        assert events == [
            streams.BatchPushed(self.items),
            streams.KeptAlive(),
            streams.BatchPushed(self.items[:1]),
            streams.Ended(),
        ]
        assert reader.is_finished

    def test_a_refusal_ends_the_stream_and_bytes_after_it_break_it(self) -> None:
        reader = SubscribeReader()
        assert reader.receive(responses.encode_refused("EOF")) == [streams.Refused("EOF")]
        with pytest.raises(RemoteProtocolError, match="after the end"):
            reader.receive(b"\x00")

    @pytest.mark.parametrize(
        "frame",
        [
            pytest.param(struct.pack("<HBxI2x", 200, 0, 0), id="no message"),
            pytest.param(struct.pack("<HBxI2x", 200, 1, 40) + bytes(40), id="content length 0"),
            pytest.param(whole[:2] + b"\x03" + whole[3:], id="3 of 2"),
            pytest.param(whole[:2] + b"\x01" + whole[3:], id="1 of 2"),
            pytest.param(struct.pack("<H8x", 202), id="unknown code"),
        ],
    )
    def test_a_push_that_lies_is_refused(self, frame: bytes) -> None:
        reader = SubscribeReader()
        with pytest.raises(RemoteProtocolError):
            reader.receive(frame)
        with pytest.raises(RemoteProtocolError, match="earlier"):
            reader.receive(responses.ANSWER_ALIVE)

    def test_a_batch_past_the_bound_is_refused_before_it_comes(self) -> None:
        with pytest.raises(RemoteProtocolError, match="the bound is 1000"):
            SubscribeReader(bytes_max=1000).receive(struct.pack("<HBxI2x", 200, 1, 1001))

    @given(st.binary(max_size=300))
    def test_garbage_raises_nothing_but_remote_protocol_errors(self, data: bytes) -> None:
        for reader in (SubscribeReader(bytes_max=200), streams.ReplicaReader(bytes_max=200)):
            try:
                for start in range(0, len(data), 7):
                    reader.receive(data[start : start + 7])
            except RemoteProtocolError:
                pass


class TestFollowerStreams:
    @given(st.lists(st.integers(0, 500), max_size=8))
    def test_replica_blocks_in_any_split(self, cuts: list[int]) -> None:
        blocks = [b"", b"first", b"second" * 20]
        data = b"".join(streams.encode_block(block) for block in blocks) + responses.ANSWER_ALIVE
        reader = streams.ReplicaReader()
        events = [event for piece in in_pieces(data, cuts) for event in reader.receive(piece)]
        assert events == [*(streams.BlockSent(block) for block in blocks), streams.KeptAlive()]

    def test_a_replica_stream_has_no_end_frame(self) -> None:
        with pytest.raises(RemoteProtocolError, match="code 255"):
            streams.ReplicaReader().receive(streams.encode_ended())

    @given(st.lists(st.integers(0, 500), max_size=8))
    def test_follow_frames_in_any_split(self, cuts: list[int]) -> None:
        data = b"".join(
            (
                follow.encode_frames(9, b"frames"),
                follow.encode_truncate(7, 2),
                follow.encode_too_far(100),
                follow.encode_state(3, 9, in_sync=True, leader="a:1"),
                follow.encode_frames(9, b"frames", 700),
                follow.encode_state(3, 9, in_sync=False, leader="a:1", stamp_ms=0),
                responses.encode_refused("fenced, epoch 4"),
            )
        )
        reader = follow.FollowReader()
        events = [event for piece in in_pieces(data, cuts) for event in reader.receive(piece)]
        assert events == [
            follow.FramesSent(9, b"frames"),
            follow.TruncateTold(7, 2),
            follow.TooFarBehind(100),
            follow.StateTold(3, 9, True, "a:1"),
            follow.FramesSent(9, b"frames", 700),
            follow.StateTold(3, 9, False, "a:1", 0),
            streams.Refused("fenced, epoch 4"),
        ]

    @pytest.mark.parametrize("kind", range(6))
    def test_a_follow_frame_of_the_wrong_size_is_refused(self, kind: int) -> None:
        with pytest.raises(RemoteProtocolError, match=f"kind {kind}"):
            follow.FollowReader().receive(struct.pack("<HBxI2x", 200, kind, 3) + b"abc")

    def snapshot(self, path: str = "queue/journal/1.log", size: int = 6, crc: int | None = None) -> bytes:
        checksum = zlib.crc32(b"abcdef") if crc is None else crc
        return b"".join(
            (
                follow.encode_open(size, path),
                follow.encode_piece(b"abc"),
                follow.encode_piece(b"def"),
                follow.encode_close(checksum),
                follow.encode_end(b"{}"),
            )
        )

    @given(st.lists(st.integers(0, 500), max_size=8))
    def test_a_snapshot_in_any_split(self, cuts: list[int]) -> None:
        reader = follow.SnapshotReader()
        events = [event for piece in in_pieces(self.snapshot(), cuts) for event in reader.receive(piece)]
        assert events == [
            follow.FileOpened(6, "queue/journal/1.log"),
            follow.PieceSent(b"abc"),
            follow.PieceSent(b"def"),
            follow.FileClosed(zlib.crc32(b"abcdef")),
            follow.SnapshotEnded(b"{}"),
        ]
        assert reader.is_finished

    @pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", "", ".", "a\\b", "a\0b"])
    def test_a_snapshot_cannot_leave_the_directory(self, path: str) -> None:
        with pytest.raises(RemoteProtocolError, match="snapshot file"):
            follow.SnapshotReader().receive(self.snapshot(path))

    @pytest.mark.parametrize("size", [5, 7, -1])
    def test_a_snapshot_file_of_another_size_is_refused(self, size: int) -> None:
        with pytest.raises(RemoteProtocolError):
            follow.SnapshotReader().receive(self.snapshot(size=size))

    def test_a_damaged_snapshot_file_is_found_and_named(self) -> None:
        reader = follow.SnapshotReader()
        with pytest.raises(CorruptData, match=r"1\.log arrived damaged"):
            reader.receive(self.snapshot(crc=1))
        with pytest.raises(RemoteProtocolError):
            reader.receive(follow.encode_end(b"{}"))

    @given(st.binary(max_size=200))
    def test_garbage_raises_nothing_but_protocol_errors(self, data: bytes) -> None:
        for reader in (follow.FollowReader(bytes_max=100), follow.SnapshotReader(bytes_max=100)):
            try:
                reader.receive(data)
            except RemoteProtocolError:
                pass


def test_a_large_body_in_small_pieces_is_joined_once() -> None:
    unread = Unread(1_000_000)
    piece = b"x" * 1000
    joined = [whole for _ in range(1000) if (whole := unread.join(piece)) is not None]
    assert joined == [b"x" * 1_000_000]
    assert len(unread) == 0
