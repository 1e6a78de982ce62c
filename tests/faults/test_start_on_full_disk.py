"""A node starts on a full disk, serves reads, refuses writes with a reason, and takes them again when there is room.

The disk is a small tmpfs; where it cannot be mounted the tests are skipped and say so.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pixiu.model.errors import Unavailable
from pixiu.queue.client import BlockingClient
from tests.e2e.test_surfaces import Served
from tests.faults.test_disk_full import fill
from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import sub
from tests.wire.raw import Raw

pytestmark = [pytest.mark.crash, pytest.mark.feature("QB7")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk here: mount says {mounted.stderr.strip()!r}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def history(served: Served) -> list[str]:
    return [each["text"] for each in served.act(served.token("bob"), "history", **{"with": "alice"})["messages"]]


@pytest.mark.parametrize("ends_by_kill", [True, pytest.param(False, marks=pytest.mark.long)])
def test_serve_starts_on_a_full_disk_and_serves_reads(disk: Path, ends_by_kill: bool) -> None:
    served = Served(disk / "data", "journal.free_bytes_min=16777216")
    served.log = disk.with_suffix(".log")
    served.start()
    try:
        for number in range(50):
            served.act(served.token("alice"), "send", to="bob", text=f"{number}".ljust(2_000, "."))
        wait_for(lambda: len(history(served)) == 50, what="the messages")
        served.stop(kill=ends_by_kill)
        filler = fill(disk, leave=0)
        served.launch()
        wait_for(lambda: is_up(served), what="an answer of the server", timeout_s=30)
        assert len(history(served)) == 50
        answer = send(served, "too late")
        assert answer.status_code == 503
        assert '"unavailable"' in answer.text
        ready = httpx.get(f"{served.url}/readyz")
        assert ready.status_code == 503
        assert "disk is full" in ready.text, ready.text
        filler.unlink()
        wait_for(served.is_ready, what="room to be noticed", timeout_s=30)
        assert send(served, "after").status_code == 200
    finally:
        served.stop(kill=True)


def is_up(served: Served) -> bool:
    try:
        return httpx.get(f"{served.url}/healthz", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def send(served: Served, text: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {served.token('alice')}"}
    return httpx.post(f"{served.url}/v1/actions/send", json={"to": "bob", "text": text}, headers=headers)


@pytest.mark.parametrize("ends_by_kill", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_queue_starts_on_a_full_disk_and_serves_reads(disk: Path, ends_by_kill: bool) -> None:
    with QueueProcess(disk / "data", env={"PIXIU_JOURNAL__FREE_BYTES_MIN": "16777216"}) as queue:
        with BlockingClient(queue.address) as client:
            client.create_topic("t")
            client.publish_many("t", [b"%d" % number * 1000 for number in range(500)])
        if ends_by_kill:
            queue.kill()
        else:
            queue.stop()
        filler = fill(disk, leave=0)
        queue.start()
        with Raw(queue.host, queue.port) as raw:
            assert raw.send(sub(b"t", 0, b"reader")).push()[0].body == b"0" * 1000
        with BlockingClient(queue.address, patience_s=0) as client:
            with pytest.raises(Unavailable, match="disk is full"):
                client.publish("t", b"too late")
            filler.unlink()
            wait_for(lambda: is_accepted(client), what="room to be noticed", timeout_s=15)


def is_accepted(client: BlockingClient) -> bool:
    try:
        client.publish("t", b"after")
    except Unavailable:
        return False
    return True
