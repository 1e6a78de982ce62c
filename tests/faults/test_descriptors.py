"""Too few file descriptors: new connections are turned away, those that are open go on, and nothing is lost."""

import contextlib
import resource
import sys
from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import message, pub, sub
from tests.wire.raw import Closed, Raw

pytestmark = [pytest.mark.crash, pytest.mark.feature("QA7", "QF2")]

FEW = 700


@pytest.fixture
def few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers started in this test may open no more files than this."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nulimit -n {FEW}\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def open_files(pid: int) -> int:
    """How many descriptors a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.usefixtures("few_descriptors")
def test_with_few_descriptors_new_connections_are_refused_and_old_ones_are_served(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(QueueProcess(tmp_path / "data"))
        first = stack.enter_context(Raw(queue.host, queue.port))
        first.create(b"t")
        reader = stack.enter_context(Raw(queue.host, queue.port))
        reader.send(sub(b"t", 0, b"reader"))
        refusals = 0
        open_ones = []
        for _ in range(FEW):
            raw = stack.enter_context(Raw(queue.host, queue.port))
            try:
                raw.quiet(0.005)
            except AssertionError:
                refusals += 1
                break
            open_ones.append(raw)
        assert refusals, f"{len(open_ones)} connections, and none was refused"
        late = stack.enter_context(Raw(queue.host, queue.port))
        assert late.error().startswith("too many connections")
        late.closed()
        for number, raw in enumerate(open_ones):
            raw.pub(b"t", b"%d" % number)
        assert reader.push()[0].body == b"0"
        # Topics are opened and written to as before: room was kept for them.
        for number in range(40):
            first.create(b"more-%d" % number)
            first.pub(b"more-%d" % number, b"x")
        assert open_files(queue.pid) <= FEW
        for raw in open_ones[:5]:
            raw.close()

        def is_taken() -> bool:
            with Raw(queue.host, queue.port) as raw:
                try:
                    raw.pub(b"t", b"again")
                except (AssertionError, Closed, ConnectionError):
                    return False
                return True

        wait_for(is_taken, what="a place to come free")


def test_a_topic_that_cannot_be_opened_catches_up_when_it_can(tmp_path: Path) -> None:
    """The journal has the message, so it is acknowledged; its topic follows when there are descriptors again."""
    with QueueProcess(tmp_path / "data") as queue, Raw(queue.host, queue.port) as raw:
        for name in (b"a", b"b"):
            raw.create(name)
        raw.pub(b"a", b"a-0")
        reader = Raw(queue.host, queue.port)
        reader.send(sub(b"b", 0, b"reader"))
        reader.quiet(0.1)
        _, hard = resource.prlimit(queue.pid, resource.RLIMIT_NOFILE)
        try:
            resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, (open_files(queue.pid), hard))
        except PermissionError:
            pytest.skip("may not lower the limit of another process")
        try:
            for number in range(5):
                raw.pub(b"b", b"b-%d" % number)
                raw.pub(b"a", b"a-%d" % (number + 1))
            reader.quiet(0.2)
        finally:
            resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, (hard, hard))
        raw.send(pub(b"b", message(b"b-5"))).ok()
        bodies: list[bytes] = []
        while len(bodies) < 6:
            bodies += [item.body for item in reader.push(5.0)]
            reader.send(b"\0\0")
        reader.close()
        assert bodies == [b"b-%d" % number for number in range(6)]
        with Raw(queue.host, queue.port) as other:
            other.send(sub(b"a", 0, b"other", batch=255))
            assert [item.body for item in other.push()] == [b"a-%d" % number for number in range(6)]
        assert "topic log is behind" in queue.stderr
        queue.kill()
        queue.start()
        with Raw(queue.host, queue.port) as other:
            other.send(sub(b"b", 0, b"other", batch=255))
            assert [item.body for item in other.push()] == bodies
