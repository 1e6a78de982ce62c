"""Requests that make sense, and ways to spoil them."""

from itertools import pairwise

from hypothesis import strategies as st

from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message

NAMES = [b"t", b"t", b"u", b"", b"pixiu.x", b"..", b"x" * 129, "订单".encode()]

names = st.sampled_from(NAMES)
messages = st.builds(
    lambda body, headers: Message(body, headers).encode(),
    st.binary(min_size=1, max_size=60),
    st.lists(st.tuples(st.binary(min_size=1, max_size=5), st.binary(max_size=5)), max_size=2).map(tuple),
)
payloads = st.lists(messages, min_size=1, max_size=4).map(b"".join)
traces = st.binary(max_size=3)
event_ids = st.integers(-2, 60)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Any command, well formed."""
    name, trace_id = draw(names), draw(traces)
    subscriber = draw(st.binary(max_size=4))
    choices = [
        lambda: wire.encode_pub(name, draw(payloads), want_event_id=draw(st.booleans()), trace_id=trace_id),
        lambda: wire.encode_pub(b"t", Message(b"same size").encode()) * draw(st.integers(1, 5)),
        lambda: wire.encode_create_topic(name, expires_at_ms=draw(st.sampled_from([0, 1, 1_760_000_100_000]))),
        lambda: wire.encode_delete_topic(name, want_event_id=draw(st.booleans()), trace_id=trace_id),
        lambda: wire.encode_delay(name, draw(payloads), delay_ms=draw(st.sampled_from([-1, 0, 999, 1000, 2**62]))),
        lambda: wire.encode_alive(trace_id=trace_id),
        lambda: wire.encode_replica(after=draw(event_ids)),
        lambda: wire.encode_topic_info(name),
        lambda: wire.encode_valid_list(through=draw(event_ids)),
        lambda: wire.encode_list(),
        lambda: wire.encode_sub(name, subscriber, after=draw(event_ids), batch=draw(st.integers(0, 255))) + draw(acks),
        lambda: (
            wire.encode_subscribe(
                name,
                subscriber,
                start=draw(st.integers(0, 3)),
                value=draw(event_ids),
                take_over=draw(st.booleans()),
                remember=draw(st.booleans()),
            )
            + draw(acks)
        ),
        lambda: wire.encode_append(name, draw(messages), key=subscriber, unless_after=draw(event_ids)),
        lambda: wire.encode_hello(),
        lambda: wire.encode_positions(name),
        lambda: wire.encode_set_position(name, subscriber, event_id=draw(event_ids)),
        lambda: wire.encode_delays(after=draw(event_ids), limit=draw(st.integers(0, 5))),
        lambda: wire.encode_cancel_delay(draw(event_ids)),
        lambda: wire.encode_promote(),
        lambda: wire.encode_status(),
        lambda: wire.encode_authorize(draw(st.sampled_from([b"0" * 64, b"wrong"]))),
        lambda: wire.encode_snapshot(),
        lambda: wire.encode_flush(),
        lambda: wire.encode_extension(draw(st.integers(128, 159)), draw(st.binary(max_size=30)), topic=name),
    ]
    return draw(st.sampled_from(choices))()


acks = st.sampled_from([b"", b"", b"\0\0", b"\1\0", b"\0\0\0\0\1\0", b"\2\0", b"\0"])


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """Requests with a few bytes changed, left out, doubled or put in."""
    data = bytearray(b"".join(draw(st.lists(requests(), min_size=1, max_size=6))))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        count = draw(st.integers(1, 8))
        match draw(st.sampled_from(["change", "drop", "double", "insert", "huge"])):
            case "change":
                data[at] = draw(st.integers(0, 255))
            case "drop":
                del data[at : at + count]
            case "double":
                data[at:at] = data[at : at + count]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                data[at : at + 4] = b"\xff\xff\xff\x7f"
    return bytes(data)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes, cut at these places."""
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


cuts = st.lists(st.integers(0, 10_000), max_size=12)
