"""What a message becomes in the streams of its receiver and its sender."""

from collections.abc import Iterator

import pytest

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.pixiu_pb2 import DELETE, NORMAL, P2P, SYSTEM, MsgChat
from tests.engines import ValkeyProcess

AT = 1_760_000_000_000


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=["seed", "cluster"])
def stores(request: pytest.FixtureRequest, valkey: ValkeyProcess) -> Iterator[RedisStores]:
    valkey.told("FLUSHALL")
    opened = RedisStores(RedisAddress.parse(f"{valkey.url}?layout={request.param}"), "n1")
    yield opened
    opened.close()


def entries(stores: RedisStores, user: int) -> list[dict[str, bytes]]:
    found = []
    for _, parts in stores.client.ask([("XRANGE", stores.keys_of.stream % user, "-", "+")])[0]:
        names = [name.decode() for name in parts[::2]]
        assert len(set(names)) == len(names), "a name comes once"
        found.append(dict(zip(names, parts[1::2], strict=True)))
    return found


def say(stores: RedisStores, chat: MsgChat, *, event_id: int = 1) -> None:
    assert stores.streams is not None
    stores.streams.say_to_user(event_id, 1000 + event_id, chat.fromId, chat.toId, chat.SerializeToString())


def test_the_body_is_at_the_receiver_and_the_sender_points_to_it(stores: RedisStores) -> None:
    chat = MsgChat(fromId=1, toId=2, tm=AT, chatType=P2P, data="schön".encode(), sendId="a", priority=NORMAL)
    chat.params["at"] = "x"
    say(stores, chat)
    stores.commit({})
    (body,) = entries(stores, 2)
    assert body == {
        "id": b"1001", "uid": b"1", "tuid": b"2", "at": b"%d" % AT, "text": "schön".encode(), "send_id": b"a",
        "field:at": b"x",
    }  # fmt: skip
    ((entry, _),) = stores.client.ask([("XRANGE", stores.keys_of.stream % 2, "-", "+")])[0]
    assert entries(stores, 1) == [{"FW": (stores.keys_of.stream % 2).encode(), "id": b"1001", "entry": entry}]


@pytest.mark.parametrize("data", [b"\xff\x00\xfe", b"\xc3", bytes(range(256))])
def test_bytes_that_are_no_text_arrive_as_they_are(stores: RedisStores, data: bytes) -> None:
    say(stores, MsgChat(fromId=1, toId=2, tm=AT, chatType=P2P, data=data))
    stores.commit({})
    assert entries(stores, 2)[0]["text"] == data
    assert len(entries(stores, 1)) == 1


def test_a_note_to_oneself_is_there_once(stores: RedisStores) -> None:
    say(stores, MsgChat(fromId=2, toId=2, tm=AT, chatType=P2P, data=b"x"))
    stores.commit({})
    assert [entry["text"] for entry in entries(stores, 2)] == [b"x"]


def test_a_notice_has_its_own_names_once_each(stores: RedisStores) -> None:
    params = {"action": "contact", "uid": "7", "text": "own"}
    say(stores, MsgChat(fromId=1, toId=2, tm=AT, chatType=SYSTEM, msgType=DELETE, data=b"x", params=params))
    stores.commit({})
    (found,) = entries(stores, 2)
    assert (found["action"], found["uid"], found["by"]) == (b"recall", b"7", b"1")


def test_a_commit_that_is_told_again_says_nothing_twice(stores: RedisStores) -> None:
    say(stores, MsgChat(fromId=1, toId=2, tm=AT, chatType=P2P, data=b"one"))
    stores._overlay.save()
    stores._commits.commit(stores.overlay.commands())
    stores._commits._number -= 1  # the answer was lost
    say(stores, MsgChat(fromId=2, toId=1, tm=AT, chatType=P2P, data=b"two"), event_id=2)
    stores.commit({})
    assert [entry["id"] for entry in entries(stores, 1)] == [b"1001", b"1002"]
    assert [entry["id"] for entry in entries(stores, 2)] == [b"1001", b"1002"]
