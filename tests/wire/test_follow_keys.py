"""Copies of everything are for who shows the cluster's secret; what smss's clients do needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pixiu.machines.queue_wire.requests import encode_promote
from pixiu.model.errors import NotAllowed, PixiuError
from pixiu.queue.client import BlockingClient
from pixiu.runtime.backup import backup_running
from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import message, pub, replica, sub

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
        more = secret_file(tmp_path, text) if text else []
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
    wrong, without = follow("quite another secret"), follow("")
    wait_for(lambda: "wrong key" in wrong.stderr, what="a line at the follower")
    wait_for(lambda: NEEDED in without.stderr, what="a line at the follower without a secret")
    assert "has shown a wrong key" in leader.stderr and "refused without the cluster's key" in leader.stderr
    assert last_event_id(wrong) == last_event_id(without) == 0
    with BlockingClient(leader.address) as client:
        assert len(client.status()["followers"]) == 2


@pytest.mark.feature("X-Follow")
def test_snapshots_and_smss_replicas_need_it_too(leader: QueueProcess, connect: Connect, tmp_path: Path) -> None:
    connect(leader).create(b"orders")
    assert connect(leader).refused(replica(0)) == NEEDED
    with pytest.raises(PixiuError, match=NEEDED):
        backup_running(leader.address, tmp_path / "b1", lambda _: None)
    with pytest.raises(NotAllowed, match="wrong key"):
        backup_running(leader.address, tmp_path / "b2", lambda _: None, key="x" * 16)
    assert backup_running(leader.address, tmp_path / "b3", lambda _: None, key=SECRET).event_id == 1
    assert connect(leader).refused(encode_promote(force=True)) == NEEDED, "nor does everyone say who leads"
    node_key = (leader.data / "node.key").read_text(encoding="ascii").strip()
    assert backup_running(leader.address, tmp_path / "b4", lambda _: None, key=node_key).files > 0


def test_without_a_secret_a_queue_that_others_reach_says_so(tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "open", args=["--set", "queue.host=0.0.0.0"]) as queue:
        wait_for(lambda: "can copy all of it" in queue.stderr, what="the warning")
