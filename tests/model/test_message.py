"""Messages as clients see them, and the hand-written record of the plain ones."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.machines.session import CODECS
from pixiu.model.message import ENCRYPTIONS, KINDS, PRIORITIES, message_view, numbers_in
from pixiu.model.pixiu_pb2 import DELETED, GROUP, NORMAL, P2P, SYSTEM, MsgChat, Record
from pixiu.model.plain_record import plain_record


class Names:
    def user_name(self, number: int) -> str:
        return f"user {number}"

    def group_name(self, number: int) -> str:
        return f"group {number}"


def view(chat: MsgChat) -> dict[str, object]:
    return message_view(chat.SerializeToString(), Names())


def test_a_plain_message_shows_what_it_has() -> None:
    chat = MsgChat(msgId=2**60, fromId=1, toId=2, tm=3, sendId="s", data="é".encode(), chatType=P2P, priority=NORMAL)
    assert view(chat) == {
        "message_id": str(2**60), "from": "user 1", "to": "user 2", "at": 3, "kind": "text", "text": "é",
        "send_id": "s",
    }  # fmt: skip


@given(
    kind=st.sampled_from(sorted(KINDS)), enc=st.sampled_from(["", *ENCRYPTIONS]), data=st.binary(max_size=20),
    priority=st.sampled_from(sorted(PRIORITIES)), subtype=st.integers(-(2**31), 2**31 - 1),
    key_print=st.integers(-(2**63), 2**63 - 1), fields=st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
)  # fmt: skip
def test_what_the_server_need_not_understand_passes_through(
    kind: str, enc: str, data: bytes, priority: str, subtype: int, key_print: int, fields: dict[str, str]
) -> None:
    chat = MsgChat(
        msgId=1, fromId=1, toId=2, chatType=GROUP, msgType=KINDS[kind], data=data, priority=PRIORITIES[priority],
        subMsgType=subtype, keyPrint=key_print, params=fields, refMessageId=9,
    )  # fmt: skip
    if enc:
        chat.encType = ENCRYPTIONS[enc]
    shown = view(chat)
    assert shown["kind"] == kind
    assert shown["group"] == "group 2"
    assert shown["ref"] == "9"
    assert shown.get("enc", "") == enc
    assert shown.get("priority", "normal") == priority
    assert shown.get("subtype", 0) == subtype
    assert shown.get("key_print", "0") == str(key_print)
    assert shown.get("fields", {}) == fields
    if kind == "text" and not enc:
        assert shown["text"] == data.decode(errors="replace")
        assert "body" not in shown
    else:
        assert shown.get("body", "") == b64encode(data).decode()
        assert "text" not in shown


def test_a_recalled_message_shows_no_content() -> None:
    chat = MsgChat(msgId=1, fromId=1, toId=2, tm=3, chatType=P2P, data=b"secret", sendId="s", status=DELETED)
    assert view(chat) == {
        "message_id": "1", "from": "user 1", "to": "user 2", "at": 3, "kind": "text", "recalled": True,
    }  # fmt: skip


def test_a_notice_shows_public_ids_in_its_fields() -> None:
    chat = MsgChat(msgId=9, fromId=1, toId=5, chatType=SYSTEM, priority=NORMAL)
    chat.params.update({"action": "join", "user": "7", "group": "5"})
    shown = view(chat)
    assert shown["group"] == "group 5"
    assert shown["kind"] == "system"
    assert shown["fields"] == {"action": "join", "user": "user 7", "group": "group 5"}


@pytest.mark.parametrize("params", [{"group": "x"}, {"user": "-1"}, {"about": ""}, {"group": "0"}])
def test_no_fields_of_the_system_break_the_view(params: dict[str, str]) -> None:
    chat = MsgChat(msgId=9, fromId=0, toId=5, chatType=SYSTEM, params=params)
    assert view(chat)["kind"] == "system"


@given(
    data=st.binary(max_size=300), send_id=st.text(max_size=16), device=st.text(max_size=10),
    user=st.integers(1, 2**63 - 1), to=st.integers(0, 2**63 - 1), group=st.integers(1, 2**63 - 1),
    at=st.integers(1, 2**50), options=st.integers(0, 7), session=st.integers(0, 2**63 - 1),
)  # fmt: skip
def test_the_record_written_by_hand_is_what_protobuf_writes(
    data: bytes,
    send_id: str,
    device: str,
    user: int,
    to: int,
    group: int,
    at: int,
    options: int,
    session: int,
) -> None:
    chat = MsgChat(
        fromId=user, toId=to or group, tm=at, devId=device, sendId=send_id, data=data, priority=NORMAL,
        chatType=P2P if to else GROUP,
    )  # fmt: skip
    record = Record(
        at=at, actor=user, chat=chat.SerializeToString(), to=to, group=0 if to else group, options=options,
        session=session,
    )  # fmt: skip
    written = plain_record(data, send_id.encode(), at, user, to, 0 if to else group, device, options, session)
    assert written == record.SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 70_000])
def test_long_texts_are_written_by_hand_too(size: int) -> None:
    written = plain_record(b"x" * size, b"", 1, 1, 2, 0, "", 7, 0)
    assert MsgChat.FromString(Record.FromString(written).chat).data == b"x" * size


class Recorder(Names):
    """Notes who is asked for."""

    def __init__(self) -> None:
        self.users: set[int] = set()
        self.groups: set[int] = set()

    def user_name(self, number: int) -> str:
        self.users.add(number)
        return super().user_name(number)

    def group_name(self, number: int) -> str:
        self.groups.add(number)
        return super().group_name(number)


@given(
    chat_type=st.sampled_from([P2P, GROUP, SYSTEM]), sender=st.integers(0, 9), to=st.integers(0, 9),
    fields=st.dictionaries(st.sampled_from(["group", "about", "user", "x"]), st.sampled_from(["", "0", "17", "no"])),
    is_recalled=st.booleans(),
)  # fmt: skip
def test_the_numbers_of_a_body_are_those_that_it_takes_to_show_it(
    chat_type: int, sender: int, to: int, fields: dict[str, str], is_recalled: bool
) -> None:
    chat = MsgChat(msgId=5, fromId=sender, toId=to, chatType=chat_type, params=fields)  # type: ignore[arg-type]
    if is_recalled:
        chat.status = DELETED
    body = chat.SerializeToString()
    users, groups = map(set, numbers_in(body))
    for codec in CODECS.values():
        asked = Recorder()
        codec.encode_message(body, asked)
        assert asked.users <= users and asked.groups <= groups
    assert numbers_in(b"\xff\xff") == ([], [])
