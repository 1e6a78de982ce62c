"""Copying the log and changing the leader require a key; what smss's clients do requires none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.queue_wire.requests import (
    encode_follow,
    encode_follow_progress,
    encode_promote,
    encode_snapshot,
)
from pixiu.model.errors import NotAllowed, PixiuError
from pixiu.queue.client import BlockingClient
from pixiu.runtime.backup import backup_running
from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import STATUS, message, pub, replica, sub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.wire.fixtures import Connect

SECRET = "a secret of sixteen and more"
NEEDED = "the key of the cluster is needed for this"


def secret_file(folder: Path, text: str = SECRET) -> list[str]:
    path = folder / f"secret-{abs(hash(text))}"
    path.write_text(text + "\n", encoding="utf-8")
    path.chmod(0o600)
    return ["--set", f"replication.secret_file={path}"]


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[QueueProcess]:
    with QueueProcess(
        tmp_path / "leader", args=secret_file(tmp_path, f"{SECRET}\nthe one of before, still taken")
    ) as one:
        yield one


@pytest.fixture
def follow(tmp_path: Path, leader: QueueProcess) -> Iterator[Callable[[str], QueueProcess]]:
    started: list[QueueProcess] = []

    def start(text: str) -> QueueProcess:
        more = secret_file(tmp_path, text)
        fast = ["--set", "replication.reconnect_ms=100"]
        one = QueueProcess(tmp_path / f"f{len(started)}", args=["--follow", leader.address, *more, *fast])
        started.append(one.start())
        return one

    yield start
    for one in started:
        one.close()


def last_event_id(queue: QueueProcess) -> int:
    with BlockingClient(queue.address, patience_s=5) as client:
        return int(client.status()["last_event_id"])


@pytest.mark.feature("X-Follow")
def test_followers_with_the_secret_copy_and_others_are_told_why_not(
    leader: QueueProcess, follow: Callable[[str], QueueProcess], connect: Connect
) -> None:
    raw = connect(leader)
    raw.create(b"orders")
    raw.send(pub(b"orders", message(b"one"))).ok()
    assert [item.body for item in connect(leader).send(sub(b"orders")).push()] == [b"one"], "as smss's clients do"
    for text in (SECRET, "the one of before, still taken"):
        with_secret = follow(text)
        wait_for(lambda it=with_secret: last_event_id(it) == last_event_id(leader), what="the copy")  # type: ignore[misc]
    wrong = follow("quite another secret")
    wait_for(lambda: "wrong key" in wrong.stderr, what="a line at the follower")
    assert "has shown a wrong key" in leader.stderr
    assert last_event_id(wrong) == 0
    with BlockingClient(leader.address) as client:
        assert len(client.status()["followers"]) == 2


@pytest.mark.feature("X-Follow")
def test_snapshots_and_smss_replicas_need_it_too(leader: QueueProcess, connect: Connect, tmp_path: Path) -> None:
    connect(leader).create(b"orders")
    assert connect(leader).refused(replica(0)).startswith(NEEDED)
    with pytest.raises(PixiuError, match=NEEDED):
        backup_running(leader.address, tmp_path / "b1", lambda _: None)
    with pytest.raises(NotAllowed, match="wrong key"):
        backup_running(leader.address, tmp_path / "b2", lambda _: None, key="x" * 16)
    assert backup_running(leader.address, tmp_path / "b3", lambda _: None, key=SECRET).event_id == 1
    assert connect(leader).refused(encode_promote(force=True)).startswith(NEEDED)
    assert backup_running(leader.address, tmp_path / "b4", lambda _: None, key=leader.key).files > 0


NO_EPOCH = 0
LAST_EPOCH = 2**31 - 1


def follow_request(highest_epoch: int, *, name: bytes = b"stranger") -> bytes:
    return encode_follow(name, last_event_id=0, last_epoch=0, highest_epoch=highest_epoch)


@pytest.mark.feature("X-Follow", "X-Snapshot")
def test_a_connection_without_a_key_can_neither_copy_nor_fence(tmp_path: Path, connect: Connect) -> None:
    with QueueProcess(tmp_path / "data") as queue:
        raw = connect(queue)
        raw.create(b"orders")
        for request in (
            follow_request(NO_EPOCH),
            follow_request(LAST_EPOCH),
            encode_snapshot(),
            replica(0),
            encode_promote(force=True),
        ):
            assert connect(queue).refused(request).startswith(NEEDED), request
        raw.send(pub(b"orders", message(b"one"))).ok()
        queue.restart()
        connect(queue).send(pub(b"orders", message(b"two"))).ok()
        with pytest.raises(PixiuError, match=NEEDED):
            backup_running(queue.address, tmp_path / "b1", lambda _: None)
        assert backup_running(queue.address, tmp_path / "b2", lambda _: None, key=queue.key).event_id >= 3


@pytest.mark.feature("X-Follow")
def test_a_peer_cannot_raise_the_epoch_by_more_than_a_bounded_step(tmp_path: Path, connect: Connect) -> None:
    with QueueProcess(tmp_path / "data") as queue:
        raw = connect(queue)
        raw.create(b"orders")
        for epoch in (LAST_EPOCH, 2**32 - 1, 2_000_000):
            assert "is not believed" in connect(queue).show_key(queue).refused(follow_request(epoch))
        follower = connect(queue).show_key(queue).send(follow_request(NO_EPOCH))
        follower.send(encode_follow_progress(durable_event_id=0, epoch=LAST_EPOCH))
        wait_for(lambda: not raw.extension(STATUS).json()["followers"], what="the follower to be refused")
        raw.send(pub(b"orders", message(b"one"))).ok()
        queue.restart()
        connect(queue).send(pub(b"orders", message(b"two"))).ok()


def test_a_follower_without_a_key_says_which_option_to_give(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pixiu", "queue", "serve", "--data", str(tmp_path / "copy"), "--port", "0"]
    done = subprocess.run(
        [*command, "--follow", "127.0.0.1:1"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=30
    )
    assert done.returncode == 2
    assert "--secret-file LEADER-DATA/node.key" in done.stderr
    assert "start both nodes with --secret-file FILE" in done.stderr


def test_a_follower_of_the_default_directory_uses_its_key(tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "pixiu-data") as leader:
        command = [sys.executable, "-m", "pixiu", "queue", "serve", "--data", "copy", "--port", "0"]
        follower = subprocess.Popen([*command, "--follow", leader.address], cwd=tmp_path, stdout=subprocess.DEVNULL)
        try:
            with BlockingClient(leader.address) as client:
                wait_for(lambda: len(client.status()["followers"]) == 1, what="the follower", timeout_s=20)
        finally:
            follower.terminate()
            follower.wait(15)


@pytest.mark.feature("W37")
def test_smss_followers_are_served_without_a_key_only_where_a_setting_says_so(tmp_path: Path, connect: Connect) -> None:
    with QueueProcess(tmp_path / "data", args=["--set", "replication.smss_followers=true"]) as queue:
        connect(queue).create(b"orders")
        assert connect(queue).send(replica(0)).block().topic == b"orders"
        assert connect(queue).refused(encode_snapshot()).startswith(NEEDED)
        queue.args = []
        queue.restart()
        assert connect(queue).refused(replica(0)).startswith(NEEDED)
