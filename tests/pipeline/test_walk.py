"""The batch parser against protobuf itself."""

from typing import Any

import pytest

pytest.importorskip("numpy")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.pixiu_pb2 import MsgChat, Record
from pixiu.pipeline.records.walk import PADDING, walk

numbers = st.integers(0, 2**63 - 1) | st.sampled_from([0, 1, 127, 128, 2**14, 2**28, 2**35, 2**56 - 1, 2**56, 2**60])
signed = numbers | st.integers(-(2**63), -1)

chats = st.builds(
    MsgChat,
    fromId=signed,
    toId=numbers,
    tm=numbers,
    devId=st.text(max_size=5),
    sendId=st.text(max_size=200),
    data=st.binary(max_size=300),
    refMessageId=numbers,
    params=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
)
records = st.builds(
    lambda at, actor, chat, to, group, options, session, ledger: Record(
        at=at, actor=actor, chat=chat.SerializeToString(), to=to, group=group, options=options, session=session
    )
    if not ledger
    else Record(at=at, ledger={"platforms": ["ios"], "acked": {"user": [actor], "platform": [0], "first": [1]}}),
    numbers, signed, chats, numbers, numbers, st.integers(0, 7), numbers, st.booleans(),
)  # fmt: skip


def padded(messages: list[bytes]) -> tuple[Any, Any, Any]:
    data = b"\0" + b"".join(messages) + bytes(PADDING)
    ends = 1 + np.cumsum([len(message) for message in messages], dtype=np.int64)
    starts = np.concatenate([[1], ends[:-1]]).astype(np.int64) if messages else ends
    return np.frombuffer(data, dtype=np.uint8), starts, ends


@given(st.lists(records, max_size=20))
def test_records_like_protobuf(made: list[Record]) -> None:
    buffer, starts, ends = padded([record.SerializeToString() for record in made])
    walked = walk(buffer, starts, ends)
    assert not walked.is_bad.any()
    for row, record in enumerate(made):
        for field, name in ((1, "at"), (2, "actor"), (4, "to"), (5, "group"), (6, "options"), (7, "session")):
            assert walked.number(field)[row] == getattr(record, name)
        begin, end = (int(side[row]) for side in walked.span(3))
        assert buffer[begin:end].tobytes() == record.chat
        assert bool(walked.has(20)[row]) == record.HasField("ledger")


@given(st.lists(chats, max_size=20))
def test_chats_like_protobuf(made: list[MsgChat]) -> None:
    buffer, starts, ends = padded([chat.SerializeToString() for chat in made])
    walked = walk(buffer, starts, ends)
    assert not walked.is_bad.any()
    for row, chat in enumerate(made):
        for field, name in ((3, "fromId"), (4, "toId"), (5, "tm"), (11, "refMessageId")):
            assert walked.number(field)[row] == getattr(chat, name)
        begin, end = (int(side[row]) for side in walked.span(9))
        assert buffer[begin:end].tobytes() == chat.data


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_garbage_is_bad_or_parses_and_never_reads_beyond_its_end(made: list[bytes]) -> None:
    buffer, starts, ends = padded(made)
    walked = walk(buffer, starts, ends)
    for field in list(walked.seen):
        _, span_ends = walked.span(field)
        assert (span_ends <= ends).all()
