"""What things take in Redis: the numbers of docs/engines.md."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.conversation import Direct
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS
from pixiu.model.pixiu_pb2 import NORMAL, MsgChat
from pixiu.ports.sendkeys import Sent
from tests.engines import ValkeyProcess

COUNT = 20_000
FIRST = 200_000_000_000 << NODE_BITS + SEQUENCE_BITS


def chat(number: int) -> MsgChat:
    return MsgChat(
        msgId=FIRST + number, fromId=7, toId=8, tm=1_794_758_247_535, data=b"x" * 60, sendId=f"send-{number}"
    )


def test_what_things_take(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path) as server:
        stores = RedisStores(RedisAddress.parse(server.url), "n1")

        def taken(write: Callable[[int], object]) -> float:
            before = used(server)
            for number in range(1, COUNT + 1):
                write(number)
                if number % 1000 == 0:
                    stores.commit({})
            return (used(server) - before) / COUNT

        for user in range(1, 101):
            stores.inboxes.open(user, "ios")

        def add(number: int) -> None:
            at, message_id = 1_794_758_247_535 + number, FIRST + number
            stores.inboxes.add(number % 100 + 1, "ios", message_id, number, at, options=7, session=0)

        streams = stores.streams
        assert streams is not None
        said = MsgChat(fromId=7, toId=8, tm=1_794_758_247_535, data=b"x" * 60, priority=NORMAL).SerializeToString()

        def say(number: int) -> None:
            streams.say_to_user(number, FIRST + number, number % 100 + 1, (number + 1) % 100 + 1, said)

        sizes = {
            "a message in two streams": taken(say),
            "an id that waits": taken(add),
            "a body of 100 bytes": taken(lambda number: stores.bodies.put(FIRST + number, b"x" * 100, 3)),
            "a send key": taken(lambda n: stores.keys.put((n % 100).to_bytes(8, "big") + b"%d" % n, Sent(n, n, n))),
            "an unread count": taken(lambda number: stores.unread.add(number // 20, Direct(number % 20), number)),
        }
        stores.close()
    bounds = {
        "a message in two streams": 300,
        "an id that waits": 400,
        "a body of 100 bytes": 500,
        "a send key": 150,
        "an unread count": 150,
    }
    assert {name for name, size in sizes.items() if not 0 < size <= bounds[name]} == set(), sizes


def used(server: ValkeyProcess) -> int:
    lines: list[bytes] = server.told("INFO", "memory").splitlines()
    return next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"used_memory:"))


@pytest.mark.feature("B21")
def test_a_recent_entry_is_smaller_as_protobuf_than_as_json() -> None:
    message = chat(1)
    as_json = json.dumps(
        {
            "message_id": str(message.msgId),
            "from": str(message.fromId),
            "to": str(message.toId),
            "at": message.tm,
            "text": message.data.decode(),
            "send_id": message.sendId,
        }
    )
    assert len(message.SerializeToString()) * 3 < len(as_json) * 2
