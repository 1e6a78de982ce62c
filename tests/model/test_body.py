"""Bodies: a record's chat with its number, and what is left of a recalled message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.body import body_of, text_of, tombstone
from pixiu.model.ids import SNOWFLAKE_EPOCH_MS
from pixiu.model.pixiu_pb2 import AES, DELETED, DELIVERED, GROUP, HIGH, IMAGE, P2P, ChatType, MsgChat

FIELDS = [
    "msgId", "userId", "fromId", "toId", "tm", "devId", "sendId", "msgType", "data", "priority", "refMessageId",
    "status", "sendReply", "recvReply", "readReply", "encType", "chatType", "subMsgType", "keyPrint",
]  # fmt: skip


@pytest.mark.feature("B05")
def test_the_fields_of_a_message_have_the_stated_numbers() -> None:
    numbers = {field.name: field.number for field in MsgChat.DESCRIPTOR.fields if field.number <= 19}
    assert numbers == {name: index for index, name in enumerate(FIELDS, start=1)}


@pytest.mark.feature("B05")
@pytest.mark.parametrize("chat_type", [P2P, GROUP])
def test_a_message_with_every_field_survives_the_wire(chat_type: ChatType) -> None:
    chat = MsgChat(
        msgId=2**62, userId=1, fromId=2, toId=3, tm=4, devId="d", sendId="s", msgType=IMAGE, data=b"\x00\xff",
        priority=HIGH, refMessageId=5, status=DELIVERED, sendReply=6, recvReply=7, readReply=8, encType=AES,
        chatType=chat_type, subMsgType=9, keyPrint=10, params={"a": "b"},
    )  # fmt: skip
    again = MsgChat.FromString(chat.SerializeToString())
    assert again == chat
    assert [name for name in FIELDS if not getattr(again, name)] == []


@given(
    number=st.integers(1, 2**63 - 1),
    data=st.binary(max_size=50),
    send_id=st.text(max_size=10),
    params=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
)
def test_a_body_is_the_chat_of_the_record_with_its_number(
    number: int, data: bytes, send_id: str, params: dict[str, str]
) -> None:
    chat = MsgChat(fromId=7, data=data, sendId=send_id, params=params)
    body = body_of(chat.SerializeToString(), number)
    chat.msgId = number
    assert MsgChat.FromString(body) == chat


def test_a_body_begins_with_the_bytes_of_the_record() -> None:
    chat = MsgChat(fromId=7, data=b"x").SerializeToString()
    assert body_of(chat, 2**61) == chat + MsgChat(msgId=2**61).SerializeToString()


def test_a_tombstone_says_who_where_and_when_but_not_what() -> None:
    message_id = 1000 << 22
    stone = MsgChat.FromString(tombstone(message_id, from_id=1, to_id=9, is_group=True))
    assert (stone.msgId, stone.fromId, stone.toId, stone.chatType) == (message_id, 1, 9, GROUP)
    assert stone.tm == SNOWFLAKE_EPOCH_MS + 1000
    assert stone.status == DELETED
    assert stone.data == b""


def test_a_text_is_cut_by_characters() -> None:
    assert text_of(MsgChat(data="貔貅貔貅".encode()), 3) == "貔貅貔"


def test_nothing_is_shown_of_what_is_encrypted_or_no_text() -> None:
    assert text_of(MsgChat(data=b"secret", encType=AES), 100) == ""
    assert text_of(MsgChat(data=b"\x89PNG", msgType=IMAGE), 100) == ""
    assert text_of(MsgChat(data=b"text"), 0) == ""
