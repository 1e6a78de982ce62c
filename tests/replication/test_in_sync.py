"""Leader and followers as real processes, acknowledging only what every in-sync member has on disk."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pixiu.model.errors import PixiuError, Unavailable
from pixiu.queue.client import BlockingClient
from tests.servers import QueueProcess, wait_for

QUICK = (
    "--set", "replication.acknowledge=in-sync",
    "--set", "replication.heartbeat_ms=100",
    "--set", "replication.in_sync_timeout_ms=800",
    "--set", "replication.reconnect_ms=200",
)  # fmt: skip


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def start(stack: ExitStack, data: Path, *args: str, follow: QueueProcess | None = None) -> QueueProcess:
    following = follow.follow_args if follow is not None else ()
    return stack.enter_context(QueueProcess(data, args=[*QUICK, *following, *args]))


def in_sync(process: QueueProcess) -> int:
    with BlockingClient(process.address, patience_s=0) as client:
        found = client.status()["in_sync"]
    assert isinstance(found, list)
    return len(found)


def bodies(process: QueueProcess, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with BlockingClient(process.address) as client:
        for delivery in client.subscribe(topic, batch=255):
            found.append(delivery.body)
            if len(found) == count:
                break
    return found


def test_without_enough_members_publishes_are_refused_and_taken_again_when_they_are_back(
    stack: ExitStack, tmp_path: Path
) -> None:
    leader = start(stack, tmp_path / "a", "--set", "replication.min_isr=2")
    with BlockingClient(leader.address, patience_s=0) as client:
        with pytest.raises(Unavailable, match="in sync"):
            client.create_topic("t")
        follower = start(stack, tmp_path / "b", follow=leader)
        wait_for(lambda: in_sync(leader) == 2, what="the follower to be in sync")
        client.create_topic("t")
        client.publish("t", b"one")
        follower.kill()
        wait_for(lambda: in_sync(leader) == 1, what="the dead follower to leave the in-sync set")
        with pytest.raises(PixiuError):
            client.publish("t", b"refused")
        follower.restart()
        wait_for(lambda: in_sync(leader) == 2, what="the follower to be back")
        client.publish("t", b"two")
    assert bodies(leader, "t", 2)[0] == b"one"
    assert bodies(leader, "t", 2)[-1] in (b"two", b"refused")


def test_what_was_acknowledged_in_sync_survives_the_loss_of_the_leader(stack: ExitStack, tmp_path: Path) -> None:
    leader = start(stack, tmp_path / "a", "--set", "replication.min_isr=2")
    follower = start(stack, tmp_path / "b", "--set", "replication.min_isr=1", follow=leader)
    wait_for(lambda: in_sync(leader) == 2, what="the follower to be in sync")
    with BlockingClient(leader.address) as client:
        client.create_topic("t")
    acknowledged: list[list[bytes]] = [[] for _ in range(4)]

    def publish(number: int) -> None:
        try:
            with BlockingClient(leader.address, patience_s=0, response_timeout_s=3) as client:
                for count in range(100_000):
                    body = b"%d-%d" % (number, count)
                    client.publish("t", body)
                    acknowledged[number].append(body)
        except PixiuError:
            return

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: sum(map(len, acknowledged)) > 400, what="some hundred acknowledged publishes")
    leader.kill()
    for thread in threads:
        thread.join()
    with BlockingClient(follower.address, key=follower.key) as client:
        client.promote(force=True)
        client.publish("t", b"end")
    kept: list[bytes] = []
    with BlockingClient(follower.address) as client:
        for delivery in client.subscribe("t", batch=255):
            kept.append(delivery.body)
            if delivery.body == b"end":
                break
    assert len(kept) == len(set(kept)), "none is doubled"
    for number, bodies_sent in enumerate(acknowledged):
        mine = [body for body in kept if body.startswith(b"%d-" % number)]
        assert mine[: len(bodies_sent)] == bodies_sent, "none is lost, and their order is kept"


def test_an_old_leader_that_comes_back_is_fenced(stack: ExitStack, tmp_path: Path) -> None:
    leader = start(stack, tmp_path / "a", "--set", "replication.acknowledge=local")
    follower = start(stack, tmp_path / "b", "--set", "replication.acknowledge=local", follow=leader)
    wait_for(lambda: in_sync(leader) == 2, what="the follower to be in sync")
    with BlockingClient(leader.address) as client:
        client.create_topic("t")
    wait_for(lambda: _has_topic(follower, "t"), what="the topic to be copied")
    with BlockingClient(follower.address, key=follower.key) as client:
        wait_for(lambda: client.status()["state"] == "in-sync", what="the follower to hear that it is in sync")
        client.promote()
        client.publish("t", b"by the new leader")
    third = start(stack, tmp_path / "c", "--set", "replication.acknowledge=local", follow=follower)
    wait_for(lambda: _has_topic(third, "t"), what="the third node to be copied")
    third.stop()
    third.args = [*QUICK, "--set", "replication.acknowledge=local", *leader.follow_args]
    third.start()  # It has seen the new epoch, and asks the old leader, who learns of it.
    with BlockingClient(leader.address, patience_s=0) as client:
        wait_for(lambda: client.hello().role == "follower", what="the old leader to stop leading")
        with pytest.raises(Unavailable):
            client.publish("t", b"too late")


def _has_topic(process: QueueProcess, name: str) -> bool:
    with BlockingClient(process.address, patience_s=0) as client:
        return name in {topic.name for topic in client.topics()}
