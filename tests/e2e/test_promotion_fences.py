"""A manual promotion fences the old leader before the promoted node accepts writes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from pixiu.model.errors import NotLeader, Unavailable
from pixiu.queue.client import BlockingClient
from tests.e2e.test_promotion import queue_address
from tests.e2e.test_surfaces import Served
from tests.servers import QueueProcess, wait_for

QUICK = ("--set", "replication.heartbeat_ms=100", "--set", "replication.reconnect_ms=200")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def promote(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pixiu", "queue", "promote", "--data", str(data), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def status(process: QueueProcess) -> dict[str, Any]:
    with BlockingClient(process.address, patience_s=0) as client:
        return dict(client.status())


def start_pair(stack: ExitStack, tmp_path: Path) -> tuple[QueueProcess, QueueProcess]:
    """A leader with one message in topic t, and a follower in sync that has copied it."""
    leader = stack.enter_context(QueueProcess(tmp_path / "old", args=QUICK))
    follower = stack.enter_context(QueueProcess(tmp_path / "new", args=[*QUICK, *leader.follow_args]))
    with BlockingClient(leader.address) as client:
        client.create_topic("t")
        client.publish("t", b"one")
    wait_for(lambda: status(follower)["last_event_id"] >= status(leader)["last_event_id"], what="the copy")
    wait_for(lambda: status(follower)["state"] == "in-sync", what="the follower to be in sync")
    return leader, follower


def publish_refused(process: QueueProcess) -> None:
    with BlockingClient(process.address, patience_s=0) as client, pytest.raises((NotLeader, Unavailable)):
        client.publish("t", b"too late")


def bodies(process: QueueProcess, count: int) -> list[bytes]:
    with BlockingClient(process.address) as client:
        found: list[bytes] = []
        for delivery in client.subscribe("t", batch=255):
            found.append(delivery.body)
            if len(found) == count:
                break
    return found


@pytest.mark.feature("X-Promote")
@pytest.mark.parametrize("options", [(), ("--force",)])
def test_promotion_fences_a_reachable_old_leader(stack: ExitStack, tmp_path: Path, options: tuple[str, ...]) -> None:
    leader, follower = start_pair(stack, tmp_path)
    done = promote(follower.data, *options)
    assert done.returncode == 0, done.stderr
    publish_refused(leader)
    assert "warning" not in done.stderr
    found = status(leader)
    assert (found["role"], found["problem"].split(":")[0]) == ("follower", "fenced by epoch 1000")
    with BlockingClient(follower.address) as client:
        client.publish("t", b"two")
    leader.stop()
    leader.args = [*QUICK, *follower.follow_args]
    leader.start()
    wait_for(lambda: status(leader)["last_event_id"] >= status(follower)["last_event_id"], what="the copy")
    assert bodies(leader, 2) == bodies(follower, 2) == [b"one", b"two"]


@pytest.mark.feature("X-Promote")
def test_promotion_of_an_unreachable_leaders_follower_needs_force(stack: ExitStack, tmp_path: Path) -> None:
    leader, follower = start_pair(stack, tmp_path)
    leader.signal(signal.SIGSTOP)
    try:
        done = promote(follower.data)
        assert done.returncode != 0
        assert f"cannot fence the old leader {leader.address}" in done.stderr
        assert "stop it and promote again, or promote with --force" in " ".join(done.stderr.split())
        assert status(follower)["role"] == "follower"
        done = promote(follower.data, "--force")
        assert done.returncode == 0, done.stderr
        assert f"warning: the old leader {leader.address} is not fenced yet" in done.stderr
        assert status(follower)["unfenced_leader"] == leader.address
        follower.args = [*QUICK, "--secret-file", str(leader.data / "node.key")]
        follower.restart()  # the node keeps trying after a restart
    finally:
        leader.signal(signal.SIGCONT)
    wait_for(lambda: status(follower)["unfenced_leader"] == "", what="the old leader to be fenced", timeout_s=20)
    assert status(leader)["problem"].startswith("fenced by epoch 1001")
    publish_refused(leader)
    assert bodies(leader, 1) == [b"one"]


@pytest.mark.feature("X-Promote")
def test_old_leader_that_was_stopped_is_fenced_when_it_starts_again(stack: ExitStack, tmp_path: Path) -> None:
    leader, follower = start_pair(stack, tmp_path)
    leader.kill()
    done = promote(follower.data)
    assert done.returncode == 0, done.stderr
    assert f"warning: the old leader {leader.address} is not fenced yet" in done.stderr
    leader.restart()  # by mistake, without --follow
    wait_for(lambda: status(follower)["unfenced_leader"] == "", what="the old leader to be fenced")
    assert status(leader)["role"] == "follower"
    publish_refused(leader)


@pytest.mark.feature("QE5")
def test_fenced_server_refuses_messages_over_http(tmp_path: Path) -> None:
    old = Served(tmp_path / "old", *QUICK[1::2])
    old.start()
    follow = ["--follow", queue_address(old), "--secret-file", str(old.data / "node.key")]
    new = Served(tmp_path / "new", *QUICK[1::2], more=follow)
    try:
        old.act(old.token("alice"), "send", to="bob", text="one")
        new.start()
        wait_for(lambda: served_state(new) == "in-sync", what="the follower to be in sync")
        done = promote(new.data)
        assert done.returncode == 0, done.stderr
        assert not old.is_ready()
        headers = {"Authorization": f"Bearer {old.token('alice')}"}
        late = {"to": "bob", "text": "too late"}
        answer = httpx.post(f"{old.url}/v1/actions/send", json=late, headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.text
    finally:
        old.stop(kill=True)
        new.stop(kill=True)


def served_state(served: Served) -> str:
    command = [sys.executable, "-m", "pixiu", "queue", "status", "--json", "--data", str(served.data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return str(json.loads(done.stdout)["state"]) if done.returncode == 0 else ""
