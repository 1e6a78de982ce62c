"""``pixiu verify``: two copies of one log are equal, conversation by conversation, or it is said where they are not."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pixiu.cli.main import main
from pixiu.node.embedded import EmbeddedNode
from pixiu.queue.client import BlockingClient
from tests.servers import QueueProcess, wait_for

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: its exit code, output and errors."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    return run_one


async def talk(root: Path, *texts: str) -> None:
    async with EmbeddedNode(root) as node:
        for name in ("11", "22", "33"):
            await node.create_user(name)
        for text in texts:
            await node.send("11", to="22", text=text)
            await node.send("22", to="33", text="the same everywhere")


def test_a_copy_is_equal_and_so_is_one_that_is_behind(tmp_path: Path, run: Run) -> None:
    asyncio.run(talk(tmp_path / "a", "one", "two"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (code, said.startswith("equal (")) == (0, True)
    asyncio.run(talk(tmp_path / "a", "three"))
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert code == 0
    assert json.loads(said)["equal"]


def test_the_conversation_that_differs_is_named_and_only_that(tmp_path: Path, run: Run) -> None:
    asyncio.run(talk(tmp_path / "a", "one"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (segment,) = (tmp_path / "b" / "queue" / "journal").glob("*.log")
    _change(segment, b"one", b"two")
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    found = json.loads(said)
    assert code == 1
    assert [each["conversation"] for each in found["differences"]] == ["topic pixiu.notify", "u:11-22"]
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 1
    assert "NOT equal: 2 differ (" in said


def _change(segment: Path, old: bytes, new: bytes) -> None:
    """Say something else in a segment, with checksums that match: what another history would look like."""
    from pixiu.queue.storage.record import encode_frame, read_frames

    data = segment.read_bytes()
    out = b"".join(
        encode_frame(
            frame.block.replace(old, new), epoch=frame.epoch, count=frame.count, flushed_through=frame.flushed_through
        )
        for _, frame in read_frames(data)
    )
    assert out != data
    segment.write_bytes(out)


@pytest.mark.feature("X52")
def test_a_follower_is_compared_with_its_leader_while_both_run(tmp_path: Path, run: Run) -> None:
    asyncio.run(talk(tmp_path / "a", "one", "two"))
    with (
        QueueProcess(tmp_path / "a") as leader,
        QueueProcess(tmp_path / "b", args=[*leader.follow_args]) as follower,
    ):
        for here, there in ((leader.address, str(follower.data)), (str(leader.data), str(follower.data))):

            def are_equal(ends: tuple[str, str] = (here, there)) -> bool:
                code, out, _ = run("verify", *ends, "--secret-file", str(leader.data / "node.key"), "--json")
                return code == 0 and json.loads(out)["records"] > 0  # those that both have: none, at first

            wait_for(are_equal, what=f"{here} and {there} to be equal")


@pytest.mark.feature("X52")
def test_topics_of_plain_queues_are_compared_by_event_id(tmp_path: Path, run: Run) -> None:
    with QueueProcess(tmp_path / "a") as queue, BlockingClient(queue.address) as client:
        for topic in ("orders", "letters"):
            client.create_topic(topic)
            client.publish_many(topic, [b"one of " + topic.encode(), b"two"])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (code, said) == (0, "equal (0 conversations, 2 topics, through event 6)\n")
    (segment,) = (tmp_path / "b" / "queue" / "journal").glob("*.log")
    _change(segment, b"one of orders", b"six of orders")
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert code == 1
    assert [each["conversation"] for each in json.loads(said)["differences"]] == ["topic orders"]


def test_logs_without_a_common_event_are_not_called_equal(tmp_path: Path, run: Run) -> None:
    for name in ("a", "b"):
        with QueueProcess(tmp_path / name):
            pass
    code, said, _ = run("verify", str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 1
    assert said.startswith("nothing was compared")


def test_what_is_no_copy_is_said(tmp_path: Path, run: Run) -> None:
    code, _, error = run("verify", str(tmp_path), "nonsense")
    assert code == 1
    assert "there is no log in" in error
    asyncio.run(talk(tmp_path / "a", "one"))
    code, _, error = run("verify", str(tmp_path / "a"), "nonsense")
    assert code == 2
    assert "neither a data directory nor HOST:PORT" in error
