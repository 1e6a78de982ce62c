"""Damaged and missing files of ``queue/topics``: the error names a remedy, and the remedy works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.queue.client import BlockingClient
from tests.servers import QueueProcess
from tests.wire.bytes_by_hand import sub
from tests.wire.raw import Raw

BODIES = [b"%03d" % number * 300 for number in range(60)]


def refusal(queue: QueueProcess) -> str:
    """The error that a subscriber gets, at once or after the messages before the damage."""
    with Raw(queue.host, queue.port) as raw:
        raw.send(sub(b"t", 0, b"reader", batch=255))
        while True:
            code, rest = raw.answer()
            if code == 400:
                return raw.read_exact(int.from_bytes(rest[:2], "little")).decode()
            raw.read_exact(int.from_bytes(rest[2:6], "little"))
            raw.send(b"\0\0")


@pytest.mark.parametrize("damage", ["flip", "remove the middle", pytest.param("remove all", marks=pytest.mark.long)])
def test_the_remedy_for_a_damaged_topic_is_named_and_works(tmp_path: Path, damage: str) -> None:
    env = {"PIXIU_TOPICS__SEGMENT_BYTES": "4096"} if damage == "remove the middle" else {}
    with QueueProcess(tmp_path / "data", env=env) as queue:
        with BlockingClient(queue.address) as client:
            client.create_topic("t")
            for body in BODIES:
                client.publish("t", body)
        queue.stop()
        files = sorted((queue.data / "queue" / "topics").rglob("*.log"))
        file = files[len(files) // 2]
        data = file.read_bytes()
        if damage == "flip":
            file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        else:
            for each in files if damage == "remove all" else [file]:
                each.unlink()
        queue.start()
        told = refusal(queue)
        found = re.search(
            r"queue/topics/\S+ byte \d+: .*stop the node .*: (pixiu queue verify --repair) --data DIR", told
        )
        assert found is not None, told
        with BlockingClient(queue.address) as client:
            client.publish("t", b"after")
        queue.stop()
        remedy = [sys.executable, "-m", *shlex.split(found[1]), "--data", str(queue.data)]
        done = subprocess.run(remedy, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        queue.start()
        with Raw(queue.host, queue.port) as raw:
            items = raw.send(sub(b"t", 0, b"reader", batch=255)).consume(len(BODIES) + 1)
        assert [item.body for item in items] == [*BODIES, b"after"]
