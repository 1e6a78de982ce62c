"""W22 to W24: TopicInfo, List and ValidList."""

import json
from typing import Any

import pytest

from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import OK, list_topics, topic_info, valid_list
from tests.wire.fixtures import Connect, StartServer, unique_name, wait_for_topic
from tests.wire.raw import Raw

KEYS = [
    "name",
    "createTimeStamp",
    "expireAt",
    "createEventId",
    "stateChangeTime",
    "stateChangeEventId",
    "state",
    "topicRoot",
]


def as_go_writes_it(value: Any) -> bytes:
    """Compact, with the three characters escaped that Go's encoder escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


@pytest.mark.feature("W22")
def test_w22_one_object_with_the_keys_in_their_order(raw: Raw, topic: bytes) -> None:
    body = raw.send(topic_info(topic)).raw_json()
    info = json.loads(body)
    assert list(info) == KEYS
    assert body == as_go_writes_it(info)
    assert info["name"] == topic.decode()
    assert info["state"] == 0
    assert isinstance(info["topicRoot"], str)
    assert all(isinstance(info[key], int) for key in KEYS[1:7])


@pytest.mark.feature("W22", "W07")
def test_w22_a_name_is_required_and_must_be_known(raw: Raw) -> None:
    assert raw.refused(topic_info(b"")) == "topic name is required"
    assert raw.refused(topic_info(b"", trace=b"trace")) == "topic name is required"
    assert raw.refused(topic_info(unique_name())) == "topic not exist"


@pytest.mark.feature("W22", "W36")
def test_w22_a_follower_shows_the_same_object(connect: Connect, raw: Raw, topic: bytes, follower: QueueProcess) -> None:
    other = connect(follower)
    wait_for_topic(other, topic)
    shown, original = other.info(topic), raw.info(topic)
    assert {**shown, "topicRoot": ""} == {**original, "topicRoot": ""}


AWKWARD = [
    "z",
    "a",
    "B",
    "界",
    "é",
    "a-<b>&c",
    'quote"back\\slash',
    "ctrl\x01",
    "a.b",
    "aa",
    "\U0001f409",
    "~",
]


@pytest.mark.feature("W23", "W24", "W03")
def test_w23_lists_of_nothing_have_no_body_and_full_ones_are_ordered_by_name_bytes(
    start_server: StartServer, connect: Connect
) -> None:
    raw = connect(start_server())
    assert raw.send(list_topics()).read_exact(10) == OK
    assert raw.send(valid_list()).read_exact(10) == OK
    assert raw.send(valid_list(7)).read_exact(10) == OK
    raw.quiet(0.02)
    for name in AWKWARD:
        raw.create(name.encode())
    body = raw.send(list_topics()).raw_json()
    listed = json.loads(body)
    assert [entry["name"].encode() for entry in listed] == sorted(name.encode() for name in AWKWARD)
    assert all(list(entry) == KEYS for entry in listed)
    assert body == as_go_writes_it(listed)
    assert b"a-\\u003cb\\u003e\\u0026c" in body
    for entry in listed:
        assert entry == raw.info(entry["name"].encode())
    # ValidList: 0 is all, n is what was created up to n; a deleted topic is omitted.
    by_id = {entry["createEventId"]: entry["name"] for entry in listed}
    assert sorted(by_id) == list(range(1, len(AWKWARD) + 1))
    assert raw.send(valid_list(0)).json() == listed
    for limit in (1, 5, len(AWKWARD), 1000):
        expected = [entry for entry in listed if entry["createEventId"] <= limit]
        assert raw.send(valid_list(limit)).json() == expected
    raw.delete(AWKWARD[0].encode())
    assert raw.send(valid_list(1)).read_exact(10) == OK
    assert AWKWARD[0] not in [entry["name"] for entry in raw.send(valid_list()).json()]
    for name in AWKWARD[1:]:
        raw.delete(name.encode())
    assert raw.send(list_topics()).read_exact(10) == OK
    assert raw.send(valid_list()).read_exact(10) == OK
    raw.quiet(0.02)


@pytest.mark.feature("W23")
def test_w23_a_list_larger_than_a_socket_buffer_arrives_whole(start_server: StartServer, connect: Connect) -> None:
    raw = connect(start_server("--flush", "none"))
    names = [b"n" * 100 + b"%05d" % number for number in range(3000)]
    for start in range(0, 3000, 500):
        part = names[start : start + 500]
        raw.send(b"".join(bytes([2, 105, 0]) + bytes(17) + name + bytes(8) for name in part))
        for _ in part:
            raw.ok()
    raw.send(list_topics() * 3)
    for _ in range(3):
        assert [entry["name"].encode() for entry in raw.json()] == names
